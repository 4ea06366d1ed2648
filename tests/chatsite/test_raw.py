"""The wrapper of raw routes, called as a server calls it."""

import asyncio
import json
import logging
import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from chatsite import raw
from chatsite.database import run_db
from chatsite.raw import RawRouter, Route, sse_event
from tests.asgi_client import Exchange, call, exchange, http_scope
from tests.chatsite.raw_routes import KEY, ORIGIN, app, session_headers, streams, whoami
from tests.conftest import Person
from tests.waiting import wait_until

__all__ = ["app"]


async def test_a_handler_gets_params_query_and_body_and_its_answer_is_sent(app: RawRouter) -> None:
    answer = await call(app, "POST", "/t/notes/n1?a=1&b=%C3%A9", headers=KEY, json_body={"text": "hi"})
    assert answer.status == 201
    assert answer.json() == {"text": "hi", "id": "n1", "query": {"a": "1", "b": "é"}}
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["content-length"] == str(len(answer.body))
    assert answer.headers["x-extra"] == "1"
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_other_paths_and_protocols_go_to_the_fallback(app: RawRouter) -> None:
    assert (await call(app, "GET", "/elsewhere")).body == b"django"
    assert (await call(app, "GET", "/t/whoami/more")).body == b"django"
    assert (await call(app, "GET", "/t/served-by-django")).body == b"django"


async def test_a_method_that_nobody_serves_is_405(app: RawRouter) -> None:
    answer = await call(app, "DELETE", "/t/whoami", headers=KEY)
    assert (answer.status, answer.json()["code"], answer.headers["allow"]) == (
        405,
        "method_not_allowed",
        "GET, HEAD, POST",
    )


async def test_the_callers_request_id_is_kept_when_sane(app: RawRouter) -> None:
    kept = await call(app, "GET", "/t/whoami", headers={**KEY, "x-request-id": "abc-123_X"})
    assert kept.headers["x-request-id"] == "abc-123_X"
    for strange in ("a b", "x" * 65, '"},{"level":"error', ""):
        made = await call(app, "GET", "/t/whoami", headers={**KEY, "x-request-id": strange})
        assert re.fullmatch(r"[0-9a-f-]{36}", made.headers["x-request-id"])


async def test_nobody_is_401_in_problem_form(app: RawRouter) -> None:
    answer = await call(app, "GET", "/t/whoami", headers={"x-request-id": "r1"})
    assert answer.status == 401
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.json() == {
        "type": "about:blank",
        "title": "Unauthorized",
        "status": 401,
        "detail": "Sign in, or send an API key as `Authorization: Bearer <key>`.",
        "code": "not_authenticated",
        "request_id": "r1",
    }


async def test_a_key_without_the_scope_is_403_and_is_told_which(app: RawRouter, database: None, person: Person) -> None:
    person.key.scopes = ["read"]
    await run_db(person.key.save)
    answer = await call(app, "POST", "/t/notes/n1", headers=person.headers, body=b"never read")
    assert (answer.status, answer.json()["code"]) == (403, "insufficient_scope")
    assert answer.json()["detail"] == "This needs the scope “chat”, which this API key does not have. It has read."
    assert answer.headers["www-authenticate"] == 'Bearer error="insufficient_scope", scope="chat"'
    assert (await call(app, "GET", "/t/whoami", headers=person.headers)).status == 200


async def test_the_missing_scope_in_the_form_of_openai_s_api(app: RawRouter, database: None, person: Person) -> None:
    answer = await call(app, "GET", "/t/batches", headers=person.headers)
    assert answer.status == 403
    assert answer.json() == {
        "error": {
            "message": "This needs the scope “batch”, which this API key does not have. It has chat and read.",
            "type": "permission_error",
            "param": None,
            "code": "insufficient_scope",
        }
    }


async def test_a_session_has_every_scope(app: RawRouter, database: None, person: Person) -> None:
    assert (await call(app, "GET", "/t/batches", headers=await session_headers(person))).status == 200


def test_a_route_cannot_be_made_without_a_scope() -> None:
    with pytest.raises(TypeError, match="scope"):
        Route(["GET"], re.compile(r"/t/open"), whoami)  # type: ignore[call-arg]


@pytest.mark.parametrize("host", ["evil.example", "", "testserver.evil.example", "a b"])
async def test_a_foreign_host_is_refused(app: RawRouter, host: str) -> None:
    answer = await call(app, "GET", "/t/whoami", headers={**KEY, "host": host})
    assert (answer.status, answer.json()["param"]) == (400, "Host")


BAD_BODIES = [
    (b"", None),
    (b"{", None),
    (b"[" * 100_000, None),
    (b'{"text": "\xff"}', None),
    (b'{"text": "\\ud800 and more"}', None),
    (b'{"text": "\\udc00\\ud800 and more"}', None),
    (b'{"text": 1}', "text"),
    (b'{"text": "a", "tags": ["b", 2]}', "tags[1]"),
    (b"{}", "text"),
    (b'{"text": "a", "txt": "b"}', "txt"),
    (rb'{"text": "a\u0000"}', "text"),
    (rb'{"text": "a", "tags": ["b", "\u0000"]}', "tags[1]"),
    (b"[]", None),
    (b"null", None),
]


@pytest.mark.parametrize(("body", "param"), BAD_BODIES)
async def test_a_bad_body_is_an_error_that_names_the_field(app: RawRouter, body: bytes, param: str | None) -> None:
    answer = await call(app, "POST", "/t/notes/n1", headers=KEY, body=body)
    assert (answer.status, answer.json()["code"]) == (400, "invalid_input")
    assert answer.json().get("param") == param


async def test_a_valid_surrogate_pair_is_one_character(app: RawRouter) -> None:
    answer = await call(app, "POST", "/t/notes/n1", headers=KEY, body=b'{"text": "\\ud83d\\ude00"}')
    assert answer.json()["text"] == "\U0001f600"


async def test_a_body_too_large_is_refused_by_its_length_unread(app: RawRouter, settings: Any) -> None:
    settings.MAX_BODY_BYTES = 10
    answer = await call(app, "POST", "/t/notes/n1", headers=KEY, json_body={"text": "too much"})
    assert (answer.status, answer.json()["code"]) == (413, "too_large")


async def test_a_body_too_large_in_chunks_is_refused_on_the_way(app: RawRouter, settings: Any) -> None:
    settings.MAX_BODY_BYTES = 10
    exchange = Exchange(app, http_scope("POST", "/t/notes/n1", KEY), b"")
    exchange._incoming.get_nowait()
    for _ in range(3):
        exchange._incoming.put_nowait({"type": "http.request", "body": b"123456", "more_body": True})
    assert (await exchange.answer()).status == 413


@pytest.mark.parametrize("length", ["-1", "ten", "1e3", "\u00b2"])
async def test_a_strange_content_length_is_refused(app: RawRouter, length: str) -> None:
    answer = await call(app, "POST", "/t/notes/n1", headers={**KEY, "content-length": length})
    assert (answer.status, answer.json()["param"]) == (400, "Content-Length")


async def test_a_body_that_does_not_arrive_is_408(app: RawRouter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw, "BODY_SECONDS", 0.05)
    stalled = Exchange(app, http_scope("POST", "/t/notes/n1", KEY), b"")
    stalled._incoming.get_nowait()
    assert (await stalled.answer()).status == 408


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
async def test_only_json_is_taken(app: RawRouter, kind: str) -> None:
    headers = {**KEY, "content-type": kind}
    answer = await call(app, "POST", "/t/notes/n1", headers=headers, json_body={"text": "a"})
    assert (answer.status, answer.json()["code"]) == (415, "unsupported_media_type")


async def test_a_session_may_write_with_origin_and_token(database: None, app: RawRouter, person: Person) -> None:
    answer = await call(app, "POST", "/t/whoami", headers=await session_headers(person, **ORIGIN))
    assert answer.json() == {"user": str(person.user.id), "key": None}


@pytest.mark.parametrize(
    "change",
    [
        {"origin": None},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"x-csrftoken": None},
        {"x-csrftoken": "x" * 32},
    ],
)
async def test_a_session_is_protected_from_other_sites(
    database: None, app: RawRouter, person: Person, change: dict[str, str | None]
) -> None:
    headers = {**await session_headers(person, **ORIGIN), **change}
    answer = await call(app, "POST", "/t/whoami", headers={k: v for k, v in headers.items() if v is not None})
    assert (answer.status, answer.json()["code"]) == (403, "permission_denied")


async def test_a_session_reads_without_a_token(database: None, app: RawRouter, person: Person) -> None:
    headers = await session_headers(person)
    del headers["x-csrftoken"]
    assert (await call(app, "GET", "/t/whoami", headers=headers)).status == 200


async def test_a_key_ignores_the_cookie(database: None, app: RawRouter, person: Person, stranger: Person) -> None:
    headers = {**await session_headers(stranger), **person.headers}
    assert (await call(app, "POST", "/t/whoami", headers=headers)).json()["user"] == str(person.user.id)
    bad = {**await session_headers(stranger, **ORIGIN), "authorization": "Bearer sk-wrong"}
    assert (await call(app, "POST", "/t/whoami", headers=bad)).status == 401


async def test_an_unexpected_error_is_logged_and_tells_nothing(
    app: RawRouter, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        answer = await call(app, "GET", "/t/fail", headers={**KEY, "x-request-id": "r7"})
    assert answer.status == 500
    assert answer.json()["code"] == "internal_error"
    assert answer.json()["request_id"] == "r7"
    assert b"secret detail" not in answer.body
    assert any("secret detail" in str(record.msg) for record in caplog.records)


async def test_an_error_carries_its_retry_hint_rounded_up(app: RawRouter) -> None:
    answer = await call(app, "GET", "/t/fail?limit=1", headers=KEY)
    assert (answer.status, answer.headers["retry-after"]) == (429, "2")
    assert (answer.json()["retry_after"], answer.json()["param"]) == (1.2, "x")


async def test_a_stream_is_sent_as_it_comes(app: RawRouter) -> None:
    async with exchange(app, "GET", "/t/ticks", headers=KEY) as running:
        await wait_until(lambda: len(running.received.chunks) >= 3)
        headers = running.received.headers
        assert headers["content-type"] == "text/event-stream"
        assert headers["cache-control"] == "no-cache, no-transform"
        assert headers["x-accel-buffering"] == "no"
        assert headers["x-message-id"] == "msg_1"
        assert "x-request-id" in headers
        assert "content-length" not in headers
        first = running.received.chunks[0].decode()
    assert first == 'id: a.1\ndata: {"type":"token","text":"1"}\n\n'


async def test_a_caller_that_hangs_up_ends_its_stream_at_once(app: RawRouter) -> None:
    async with exchange(app, "GET", "/t/ticks", headers=KEY) as running:
        await wait_until(lambda: running.received.chunks)
        before = asyncio.get_running_loop().time()
        running.hang_up()
        await running.answer(within=1)
        assert asyncio.get_running_loop().time() - before < 0.5
        assert streams[0].closed
        assert not running.received.finished


async def test_a_cancelled_application_closes_its_stream(app: RawRouter) -> None:
    async with exchange(app, "GET", "/t/ticks", headers=KEY) as running:
        await wait_until(lambda: running.received.chunks)
        running.task.cancel()
        await asyncio.gather(running.task, return_exceptions=True)
        assert streams[0].closed


async def test_a_handler_learns_that_the_caller_has_gone(app: RawRouter) -> None:
    async with exchange(app, "GET", "/t/goodbye", headers=KEY) as running:
        await asyncio.sleep(0)
        running.hang_up()
        assert (await running.answer(within=1)).status == 204


@pytest.mark.parametrize(("query", "code"), [("", "internal_error"), ("?known=1", "conflict")])
async def test_an_error_in_a_stream_is_its_last_event(app: RawRouter, query: str, code: str) -> None:
    answer = await call(app, "GET", f"/t/broken-stream{query}", headers=KEY)
    assert (answer.status, answer.finished) == (200, True)
    assert answer.chunks[0] == b"data: 1\n\n"
    event = json.loads(answer.chunks[1].decode().removeprefix("data: "))
    assert (event["type"], event["messageId"], event["code"]) == ("error", "msg_1", code)
    assert "secret detail" not in event["message"]


async def test_s8_a_silent_stream_is_kept_alive_by_comments(app: RawRouter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw, "KEEPALIVE_SECONDS", 0.02)
    async with exchange(app, "GET", "/t/silent", headers=KEY) as running:
        await wait_until(lambda: running.received.chunks[:2] == [b": \n\n"] * 2)


async def test_each_request_has_one_access_line_with_its_route(
    app: RawRouter, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="chatsite.access"):
        await call(app, "POST", "/t/notes/n1?q=private", headers={**KEY, "x-request-id": "r9"}, body=b"{")
    lines = [record.msg for record in caplog.records if record.name == "chatsite.access"]
    assert len(lines) == 1
    assert lines[0]["route"] == "/t/notes/{id}"
    assert (lines[0]["status"], lines[0]["method"], lines[0]["request_id"]) == (400, "POST", "r9")
    assert "private" not in str(lines[0])


def test_payloads_may_hold_ids_times_and_money() -> None:
    payload = {"id": UUID(int=1), "at": datetime(2026, 1, 2, tzinfo=UTC), "cost": Decimal("0.10")}
    data = b'data: {"id":"00000000-0000-0000-0000-000000000001","at":"2026-01-02T00:00:00Z","cost":"0.10"}'
    assert sse_event(payload) == data + b"\n\n"
