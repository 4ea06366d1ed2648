"""kill -9 of the web server: calls of the OpenAI-compatible API end, replies of conversations go on. One that is frozen
is as good as gone, and its callers are told.
"""

import json
import urllib.request
from collections.abc import Iterator
from http.client import HTTPResponse

import psutil
import pytest

from tests.acceptance.live_site import MODEL, LiveSite
from tests.waiting import wait_until_sync

CALLS = "SELECT status, output_tokens FROM inference_request WHERE owner_kind = 'completion' ORDER BY id DESC LIMIT 1"
REPLY = "SELECT status FROM conversations_message ORDER BY id DESC LIMIT 1"
BILLED = "SELECT output FROM quotas_ledgerentry ORDER BY id DESC LIMIT 1"
WITHIN = 15.0  # seconds: the presence lives 4, is missed for 4, and each is looked at once a second


@pytest.fixture
def site(site: LiveSite) -> Iterator[LiveSite]:
    yield site
    site.end("web")
    site.start_again("web")


def open_stream(site: LiveSite) -> HTTPResponse:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Tell me all"}], "stream": True}
    headers = {"authorization": f"Bearer {site.accounts['demo'].api_key}", "content-type": "application/json"}
    data = json.dumps({**body, "max_tokens": 3000}).encode()
    answer = urllib.request.urlopen(
        urllib.request.Request(f"{site.url}/v1/chat/completions", data, headers), timeout=10
    )
    assert isinstance(answer, HTTPResponse)
    return answer


def web_server(site: LiveSite) -> psutil.Process:
    children = psutil.Process(site._processes["web"].process.pid).children(recursive=True)
    [web] = [each for each in children if "daphne" in each.cmdline()]
    return web


def test_s23_calls_of_a_killed_web_server_end_and_what_was_made_is_billed(site: LiveSite) -> None:
    conversation = site.start_reply("Ada", "Tell me more", max_tokens=3000)
    with open_stream(site) as stream:
        for _ in range(20):
            assert stream.readline()
        assert site.engine("state")["running"] == 2
        web_server(site).kill()
        wait_until_sync(lambda: site.engine("state")["running"] == 1, WITHIN, "the call goes on without its caller")
    wait_until_sync(lambda: site.execute(CALLS)[0][0] == "cancelled", 5)
    [(_, output)] = site.execute(CALLS)
    assert output > 10
    wait_until_sync(lambda: site.execute(BILLED) == [(output,)], 5)
    assert site.execute(REPLY) == [("streaming",)], conversation


def test_s23_a_frozen_web_server_s_caller_is_told_that_its_answer_is_not_whole(site: LiveSite) -> None:
    web = web_server(site)
    with open_stream(site) as stream:
        for _ in range(20):
            assert stream.readline()
        web.suspend()
        try:
            wait_until_sync(lambda: site.execute(CALLS)[0][0] == "cancelled", WITHIN)
        finally:
            web.resume()
        *_, last = [line for line in stream.read().decode().split("\n\n") if line.startswith("data: ")]
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "call_cancelled"
