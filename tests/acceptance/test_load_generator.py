"""A public load generator for LLM endpoints runs against the site as against any other, and counts what we count."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.installation import MODEL, MODEL_PATH, ROOT, Installation, fake_engine, installation, models_toml
from tests.waiting import wait_until_sync

pytestmark = pytest.mark.long
ENGINE_PYTHON = ROOT / "var" / "engine" / "bin" / "python"
REQUESTS, TOKENS = 64, 50


def bench(site: Installation, folder: Path, backend: str, path: str) -> dict[str, Any]:
    """The report of `vllm bench serve`."""
    command = [
        str(ENGINE_PYTHON), str(Path(__file__).with_name("vllm_bench.py")),
        f"--backend={backend}", f"--base-url=http://127.0.0.1:{site.port}", f"--endpoint={path}",
        f"--model={MODEL}", f"--tokenizer={MODEL_PATH}", "--dataset-name=random", "--random-input-len=200",
        f"--random-output-len={TOKENS}", f"--num-prompts={REQUESTS}", "--max-concurrency=16", "--seed=7",
        "--save-result", f"--result-dir={folder}", f"--result-filename={backend}.json",
    ]  # fmt: skip
    environment = {**os.environ, "OPENAI_API_KEY": site.key, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return dict(json.loads((folder / f"{backend}.json").read_text()))


def test_vllm_bench_serve_runs_and_its_counts_are_the_ledgers(tmp_path: Path) -> None:
    with fake_engine(tokens_per_second=200) as (engine, _), installation(models_toml(engine)) as site:
        chat = bench(site, tmp_path, "openai-chat", "/v1/chat/completions")
        plain = bench(site, tmp_path, "openai", "/v1/completions")
        for report in (chat, plain):
            assert (report["completed"], report["failed"]) == (REQUESTS, 0)
            assert report["total_output_tokens"] == REQUESTS * TOKENS
        ledger = "SELECT count(*), sum(output) FROM quotas_ledgerentry"
        calls = 2 * REQUESTS
        wait_until_sync(lambda: site.query(ledger) == [(calls, calls * TOKENS)], 15, str(site.query(ledger)))
