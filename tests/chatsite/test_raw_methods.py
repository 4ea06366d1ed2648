"""The wrapper of raw routes: HEAD, and what becomes of an exchange whose task ends."""

import asyncio
import re

import pytest

from chatsite.raw import EmptyAnswer, RawRequest, RawRouter, Route
from chatsite.scopes import Scope
from tests.asgi_client import Exchange, call, exchange, http_scope
from tests.chatsite.raw_routes import KEY, app
from tests.waiting import wait_until

__all__ = ["app"]


@pytest.mark.parametrize("path", ["/t/whoami", "/t/ticks", "/t/fail?limit=1", "/t/batches"])
async def test_head_is_answered_as_get_is_without_the_body(app: RawRouter, path: str) -> None:
    headers = {**KEY, "x-request-id": "r1"}
    async with exchange(app, "GET", path, headers=headers) as running:
        await wait_until(lambda: running.received.chunks)
        expected = running.received
    answer = await call(app, "HEAD", path, headers=headers)
    assert (answer.status, answer.headers, answer.body) == (expected.status, expected.headers, b"")
    assert answer.finished


async def test_head_is_refused_where_there_is_nothing_to_get(app: RawRouter) -> None:
    answer = await call(app, "HEAD", "/t/notes/n1", headers=KEY)
    assert (answer.status, answer.headers["allow"], answer.body) == (405, "POST", b"")


async def test_an_exchange_that_is_cancelled_counts_as_left(app: RawRouter) -> None:
    """By a server that ends, say: then nobody hears of a caller who goes."""
    left: list[str] = []

    async def wait(request: RawRequest) -> EmptyAnswer:
        request.disconnected.then(lambda: left.append("left"))
        await asyncio.sleep(60)
        return EmptyAnswer()

    app.routes = (Route(["GET"], re.compile("/t/wait"), wait, Scope.READ),)
    running = Exchange(app, http_scope("GET", "/t/wait", KEY), b"")
    await asyncio.sleep(0.01)
    assert not left
    running.task.cancel()
    await asyncio.gather(running.task, return_exceptions=True)
    assert left == ["left"]
