"""The site does what its OpenAPI document says, all of it, whatever it is sent: schemathesis tries.

No answer is a fault of the site, has a status, body, header or media type that the document does not name, takes what
the document forbids, or refuses what it allows; streamed events are looked at one by one.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.live_site import MODEL, ROOT, LiveSite

CONFIG = Path(__file__).parent / "contract.toml"
SEED = 20260
QUICK = 20  # examples for each operation, beside those that are the same in each run


@pytest.fixture
def site(site: LiveSite) -> LiveSite:
    """Where replies are quick and short."""
    site.engine("options", tokens_per_second=0, stop=0.3)
    return site


def run(site: LiveSite, folder: Path, *options: str, **variables: str) -> None:
    """Fails with what was found."""
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(CONFIG), "--no-color", "run"]
    run = subprocess.run(
        [*command, f"{site.url}/v1/openapi.json", "--continue-on-failure", f"--seed={SEED}", *options],
        cwd=folder,  # it leaves its own notes there
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert run.returncode == 0, run.stdout[-20_000:] + run.stderr[-2000:]


def with_key(site: LiveSite, folder: Path, examples: int) -> None:
    conversation = site.call("demo", "POST", "/v1/conversations", {"model": MODEL})["id"]
    body = {"content": "What is there to find?", "max_tokens": 3, "stream": False}
    reply = site.call("demo", "POST", f"/v1/conversations/{conversation}/messages", body)
    key = f"Authorization: Bearer {site.accounts['demo'].api_key}"
    run(site, folder, "-H", key, f"--max-examples={examples}", REPLY=reply["id"], REQUEST=reply["request"])


def test_the_document_holds(site: LiveSite, tmp_path: Path) -> None:
    with_key(site, tmp_path, QUICK)


def test_without_a_key_nothing_is_told(site: LiveSite, tmp_path: Path) -> None:
    run(site, tmp_path, "--max-examples=2", "--phases=fuzzing", KEYLESS="1")


@pytest.mark.long
def test_the_document_holds_for_long(site: LiveSite, tmp_path: Path) -> None:
    with_key(site, tmp_path, 200)
