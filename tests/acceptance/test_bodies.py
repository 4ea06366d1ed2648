"""Bodies that are too large, sent without an account to the real daphne."""

import json
import socket
import time
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest

from tests.acceptance.live_site import LiveSite


def connect(site: LiveSite) -> HTTPConnection:
    parts = urlsplit(site.url)
    assert parts.hostname
    return HTTPConnection(parts.hostname, parts.port, timeout=10)


@pytest.mark.parametrize("path", ["/v1/conversations", "/accounts/login/", "/nowhere"])
def test_a_length_above_the_limit_is_refused_at_once(site: LiveSite, path: str) -> None:
    connection = connect(site)
    started = time.monotonic()
    connection.putrequest("POST", path)
    connection.putheader("Content-Length", "99999999999")
    connection.endheaders(b"x" * 4096)
    answer = connection.getresponse()
    problem = json.loads(answer.read())
    assert time.monotonic() - started < 2
    assert (answer.status, problem["code"]) == (413, "too_large")
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.headers["Connection"] == "close"


def test_a_body_in_chunks_is_cut(site: LiveSite) -> None:
    parts = urlsplit(site.url)
    chunk = b"%x\r\n%s\r\n" % (65536, b"x" * 65536)
    with socket.create_connection((parts.hostname, parts.port), timeout=10) as caller:
        caller.sendall(b"POST /v1/conversations HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(3 * 1024 * 1024 // len(chunk)):  # and never the last one
            caller.sendall(chunk)
        answer = b""
        while b"\r\n\r\n" not in answer:
            piece = caller.recv(65536)
            assert piece, "closed without an answer"
            answer += piece
        assert answer.startswith(b"HTTP/1.1 413 ")
        with pytest.raises(ConnectionResetError):  # or an empty answer, which is an end too
            while caller.recv(65536):
                continue
            raise ConnectionResetError


def test_a_body_within_the_limit_reaches_the_site(site: LiveSite) -> None:
    connection = connect(site)
    connection.request("POST", "/v1/conversations", json.dumps({"title": "x" * 1_000_000}))
    assert connection.getresponse().status == 401
