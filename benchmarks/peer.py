"""LiteLLM's proxy in front of the same engine, to be measured beside the platform in one run."""

import json
import os
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.house import MODEL, tree_cpu
from tests.acceptance.installation import free_port

KEY = "sk-benchmark"


@dataclass(frozen=True)
class Peer:
    port: int
    process: psutil.Process
    version: str

    def cpu(self) -> dict[str, float]:
        """CPU seconds so far."""
        return {"proxy": tree_cpu(self.process)}


@contextmanager
def litellm(executable: Path, engine: str) -> Iterator[Peer]:
    """One worker, no database, no logging: what it does least. `executable` is the `litellm` of its own environment."""
    port = free_port()
    route = {
        "model_name": MODEL,
        "litellm_params": {"model": f"openai/{MODEL}", "api_base": f"{engine}/v1", "api_key": "x"},
    }
    config = {"model_list": [route], "general_settings": {"master_key": KEY}, "litellm_settings": {"callbacks": []}}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.yaml"
        path.write_text(json.dumps(config))  # JSON is YAML
        command = [str(executable), f"--config={path}", "--host=127.0.0.1", f"--port={port}", "--num_workers=1"]
        environment = {**os.environ, "LITELLM_LOG": "ERROR", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            _wait(port, process)
            version = subprocess.run([str(executable), "--version"], capture_output=True, text=True, check=False).stdout
            yield Peer(port, psutil.Process(process.pid), version.strip().rpartition(" ")[2])
        finally:
            process.terminate()
            process.wait(20)


def _wait(port: int, process: "subprocess.Popen[bytes]", within: float = 120) -> None:
    deadline = time.monotonic() + within
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health/liveliness", timeout=2).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError("LiteLLM did not start") from None
            time.sleep(0.5)
