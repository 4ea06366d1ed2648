"""The real vLLM behind the whole site: a streamed answer, exact prompts and counts, stop, and a dead replica."""

import json
import signal
import time
import urllib.request
from typing import Any

import psutil
import pytest

from inference.runner.process import REFRESH_SECONDS
from tests.acceptance.installation import MODEL, Installation, installation, models_toml
from tests.fakes.cutting_proxy import cutting_proxy
from tests.waiting import wait_until_sync

pytestmark = pytest.mark.engine
EMOJI = "Reply with many emoji, and nothing else: cats, boats, fruit, faces, flags."


def running(url: str) -> float:
    with urllib.request.urlopen(f"{url}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("vllm:num_requests_running"))


def tokenize(url: str, messages: list[dict[str, str]]) -> list[int]:
    body = json.dumps({"model": MODEL, "messages": messages}).encode()
    request = urllib.request.Request(f"{url}/tokenize", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        tokens: list[int] = json.loads(answer.read())["tokens"]
        return tokens


def reply(site: Installation, text: str, conversation: str = "", **options: Any) -> list[dict[str, Any]]:
    path = f"/v1/conversations/{conversation or site.conversation()}/messages"
    return list(site.events("POST", path, {"content": text, **options}))


def text_of(events: list[dict[str, Any]]) -> str:
    return "".join(event["text"] for event in events if event["type"] == "token")


def engine_url(site: Installation) -> str:
    return str(site.query("SELECT url FROM inference_replica WHERE enabled")[0][0])


def test_a_streamed_answer_from_the_real_engine() -> None:
    started = time.monotonic()
    with installation(models_toml(engine="{start = true}"), within=300) as site:
        url = engine_url(site)
        conversation = site.conversation()
        events = reply(site, "What is a river? Answer in one sentence.", conversation, max_tokens=40)
        kinds = [event["type"] for event in events if event["type"] != "queued"]
        assert kinds[0] == "started"
        assert kinds[-1] == "done"
        assert kinds.count("token") > 5  # it grew before it was done
        done = events[-1]
        said = [{"role": "user", "content": "What is a river? Answer in one sentence."}]
        assert done["usage"]["input"] == len(tokenize(url, said))
        message = site.call("GET", f"/v1/messages/{done['messageId']}")
        assert message["content"] == text_of(events)
        assert message["usage"] == done["usage"]
        # A second turn: the engine has the first in its cache, and counts what we count.
        said += [{"role": "assistant", "content": message["content"]}, {"role": "user", "content": "And a lake?"}]
        second = reply(site, "And a lake?", conversation, max_tokens=5)[-1]
        assert second["usage"]["input"] == len(tokenize(url, said))
        # S10: stop frees the engine.
        stream = site.events("POST", f"/v1/conversations/{conversation}/messages", {"content": "Tell a long story."})
        stopped = ""
        for event in stream:
            stopped = stopped or event.get("messageId", "")
            if event["type"] == "token":
                break
        assert running(url) == 1
        site.call("POST", f"/v1/messages/{stopped}/stop")
        wait_until_sync(lambda: running(url) == 0, 1.0)
        rest = list(stream)
        assert rest[-1]["type"] == "done"
        assert rest[-1]["status"] == "stopped"
        assert site.query("SELECT count(*) FROM quotas_ledgerentry") == [(3,)]
        descendants = psutil.Process(site.process.pid).children(recursive=True)
        ending = time.monotonic()
        site.process.send_signal(signal.SIGINT)
        site.process.wait(15)
        assert time.monotonic() - ending < 10
        assert [process for process in descendants if process.is_running() and process.status() != "zombie"] == []
    assert time.monotonic() - started < 300


@pytest.mark.long
def test_s2_a_killed_replica_is_followed_by_the_other_token_by_token() -> None:
    """At temperature 0 the joined text equals that of an uninterrupted run, wherever it is cut."""
    with installation(models_toml(engine="{start = true, count = 2}"), {"CHAT_TEMPERATURE": "0"}, within=400) as site:
        urls = [str(row[0]) for row in site.query("SELECT url FROM inference_replica WHERE enabled")]
        wait_until_sync(lambda: all(_answers(url) for url in urls), 300)
        whole = reply(site, EMOJI, max_tokens=48)
        assert whole[-1]["type"] == "done"
        for cut in (1, 7, 20):
            wait_until_sync(lambda: all(_answers(url) for url in urls), 300)
            time.sleep(2)  # a probe sees both
            parts: list[dict[str, Any]] = []
            path = f"/v1/conversations/{site.conversation()}/messages"
            killed = False
            for event in site.events("POST", path, {"content": EMOJI, "max_tokens": 48}):
                parts.append(event)
                if not killed and sum(e["type"] == "token" for e in parts) >= cut:
                    busy = next(url for url in urls if running(url))
                    _kill_engine(site, busy)
                    killed = True
            assert killed
            assert parts[-1]["type"] == "done", parts[-1]
            assert any(event["type"] == "retrying" for event in parts)
            assert text_of(parts) == text_of(whole)
            assert parts[-1]["usage"]["output"] == whole[-1]["usage"]["output"]


@pytest.mark.long
def test_s2_a_stream_cut_at_every_token_is_joined_exactly() -> None:
    """Two replicas, emoji, temperature 0: the text is that of an uninterrupted run, wherever a connection breaks."""
    with installation(models_toml(engine="{start = true, count = 2}"), {"CHAT_TEMPERATURE": "0"}, within=400) as site:
        urls = [str(row[0]) for row in site.query("SELECT url FROM inference_replica WHERE enabled ORDER BY url")]
        wait_until_sync(lambda: all(_answers(url) for url in urls), 300)
        with cutting_proxy(urls) as proxy:
            for url, through in zip(urls, proxy.urls, strict=True):
                site.execute(f"UPDATE inference_replica SET url = '{through}' WHERE url = '{url}'")
            time.sleep(REFRESH_SECONDS + 2)  # until runners know
            whole = reply(site, EMOJI, max_tokens=48)
            assert whole[-1]["type"] == "done", whole[-1]
            tokens = whole[-1]["usage"]["output"]
            assert tokens >= 20
            for cut in range(1, tokens):
                proxy.cut_after = cut
                parts = reply(site, EMOJI, max_tokens=48)
                assert parts[-1]["type"] == "done", (cut, parts[-1])
                assert proxy.cuts == cut, cut
                assert text_of(parts) == text_of(whole), cut
                assert parts[-1]["usage"]["output"] == tokens, cut
        [(used,)] = site.query("SELECT sum(output) FROM quotas_ledgerentry")
        assert used == tokens * tokens  # none was billed twice


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2):
            return True
    except OSError:
        return False


def _kill_engine(site: Installation, url: str) -> None:
    for process in site.find("api_server", f"--port {url.rsplit(':', 1)[1]}"):
        for child in process.children(recursive=True):
            child.kill()
        process.kill()
