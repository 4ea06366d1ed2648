"""Limits on bodies in daphne's own request class, over a connection in memory and a clock that the test sets."""

import json
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from daphne import http_protocol
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from chatsite import daphne_limits
from chatsite.daphne_limits import BODY_SECONDS, LINGER_SECONDS


class Connection:
    """One connection to daphne; `calls` are the requests that reached the application."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.calls: list[bytes] = []
        server = SimpleNamespace(protocol_connected=Mock(), protocol_disconnected=Mock())
        factory = http_protocol.HTTPFactory(server)
        self.channel: Any = factory.buildProtocol(None)
        connection = self

        class Request(daphne_limits.limited(http_protocol.WebRequest)):
            def process(self) -> None:
                connection.calls.append(self.content.read())

        self.channel.requestFactory = Request
        self.channel.callLater = self.clock.callLater
        self.channel.factory.log = Mock()
        self.transport = StringTransport()
        self.channel.makeConnection(self.transport)

    @property
    def request(self) -> Any:
        return self.channel._channel.requests[0]

    def send(self, data: bytes) -> None:
        self.channel.dataReceived(data)

    def problem(self) -> tuple[bytes, dict[str, Any]]:
        """Head and fields of the one answer."""
        head, _, body = self.transport.value().partition(b"\r\n\r\n")
        return head, json.loads(body)


@pytest.fixture
def connection(settings: Any) -> Connection:
    settings.MAX_BODY_BYTES = 10
    return Connection()


def test_a_body_within_the_limit_passes(connection: Connection) -> None:
    connection.send(b"POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\n01234")
    connection.send(b"56789")
    assert connection.calls == [b"0123456789"]
    assert not [call for call in connection.clock.getDelayedCalls() if call.active()]


def test_a_body_in_chunks_within_the_limit_passes(connection: Connection) -> None:
    connection.send(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n01234\r\n5\r\n56789\r\n0\r\n\r\n")
    assert connection.calls == [b"0123456789"]


@pytest.mark.parametrize("kind", [b"application/x-www-form-urlencoded", b"multipart/form-data; boundary=x"])
def test_a_form_is_left_to_the_application(connection: Connection, kind: bytes) -> None:
    connection.send(b"POST / HTTP/1.1\r\nContent-Type: " + kind + b"\r\nContent-Length: 7\r\n\r\na=1&b=2")
    assert connection.calls == [b"a=1&b=2"]
    assert connection.request.args == {}


def test_a_length_above_the_limit_is_refused_before_the_body(connection: Connection) -> None:
    connection.send(
        b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nX-Request-Id: r-1\r\nContent-Length: 11\r\n\r\n01234567890"
    )
    head, problem = connection.problem()
    assert head.startswith(b"HTTP/1.1 413 ")
    assert b"\r\nContent-Type: application/problem+json" in head
    assert b"\r\nConnection: close" in head
    assert (problem["status"], problem["code"], problem["request_id"]) == (413, "too_large", "r-1")
    assert connection.calls == []
    assert connection.request.content.closed
    assert not connection.transport.disconnected
    connection.clock.advance(LINGER_SECONDS)
    assert connection.transport.disconnected


def test_a_body_in_chunks_is_cut_at_the_limit(connection: Connection) -> None:
    connection.send(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n01234567\r\n")
    assert connection.transport.value() == b""
    connection.send(b"8\r\n01234567\r\n8\r\n01234567\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n")
    head, problem = connection.problem()
    assert head.startswith(b"HTTP/1.1 413 ")
    assert problem["code"] == "too_large"
    assert connection.calls == []
    assert connection.request.content.closed
    connection.clock.advance(LINGER_SECONDS)
    assert connection.transport.disconnected


@pytest.mark.parametrize("length", [b"Content-Length: 99", b"Transfer-Encoding: chunked"])
def test_who_sends_slowly_is_not_cut_off_before_the_answer_can_be_read(connection: Connection, length: bytes) -> None:
    piece = b"b\r\n01234567890\r\n" if length.startswith(b"T") else b"01234567890"
    connection.send(b"POST / HTTP/1.1\r\n" + length + b"\r\n\r\n")
    for _ in range(8):
        connection.send(piece)
        connection.clock.advance(LINGER_SECONDS - 0.1)
    assert connection.problem()[0].startswith(b"HTTP/1.1 413 ")
    assert not connection.transport.disconnected
    connection.clock.advance(0.1)
    assert connection.transport.disconnected
    assert connection.calls == []


def test_a_refused_body_without_an_end_is_cut_off(connection: Connection) -> None:
    connection.send(b"POST / HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n")
    for _ in range(int(BODY_SECONDS)):
        assert not connection.transport.disconnected
        connection.send(b"0")
        connection.clock.advance(1)
    assert connection.transport.disconnected


def test_a_body_that_drips_is_refused_in_time(monkeypatch: pytest.MonkeyPatch, connection: Connection) -> None:
    monkeypatch.setattr(daphne_limits, "BODY_SECONDS", 3.0)
    connection.send(b"POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\n")
    for _ in range(2):
        connection.clock.advance(1)
        connection.send(b"x")
    assert connection.transport.value() == b""
    connection.clock.advance(1)
    head, problem = connection.problem()
    assert head.startswith(b"HTTP/1.1 408 ")
    assert problem["code"] == "request_timeout"
    connection.clock.advance(LINGER_SECONDS)
    assert connection.transport.disconnected
    assert connection.calls == []


def test_a_caller_that_goes_away_leaves_no_timer(connection: Connection) -> None:
    connection.send(b"POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\n0")
    connection.channel.connectionLost(Failure(ConnectionDone()))
    connection.clock.advance(BODY_SECONDS)
    assert connection.transport.value() == b""


def test_a_caller_of_the_openai_compatible_api_is_told_in_its_form(connection: Connection) -> None:
    connection.send(b"POST /v1/chat/completions?a=1 HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n{")
    head, body = connection.problem()
    assert head.startswith(b"HTTP/1.1 413 ")
    assert b"\r\nContent-Type: application/json" in head
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert (body["error"]["type"], body["error"]["code"]) == ("invalid_request_error", "too_large")


def test_every_status_has_its_name(connection: Connection) -> None:
    daphne_limits.adapt_daphne()
    connection.send(b"GET / HTTP/1.1\r\n\r\n")
    connection.request.setResponseCode(429)
    connection.request.finish()
    assert connection.transport.value().startswith(b"HTTP/1.1 429 Too Many Requests\r\n")
