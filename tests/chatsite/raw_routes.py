"""An application of raw routes, and who calls it."""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from django.conf import settings as site_settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.backends.cached_db import SessionStore
from django.middleware.csrf import _get_new_csrf_string
from django.urls import path

from chatsite import scopes
from chatsite.accounts.authentication import Authenticated
from chatsite.accounts.protocol import Principal
from chatsite.database import run_db
from chatsite.errors import Conflict, NotAuthenticated, RateLimited
from chatsite.ids import new_id
from chatsite.raw import Body, EmptyAnswer, JsonAnswer, RawRequest, RawRouter, Route, StreamAnswer, sse_event
from chatsite.scopes import Scope
from tests.conftest import Person

ORIGIN = {"origin": "http://testserver"}
streams: list["Ticks"] = []


class Note(Body):
    text: str
    tags: list[str] = []


class Ticks:
    """A stream that goes on until it is closed."""

    def __init__(self) -> None:
        self.closed = False
        streams.append(self)

    async def __call__(self) -> AsyncIterator[bytes]:
        try:
            number = 0
            while True:
                number += 1
                yield sse_event({"type": "token", "text": str(number)}, f"a.{number}")
                await asyncio.sleep(0.01)
        finally:
            self.closed = True


async def echo(request: RawRequest) -> JsonAnswer:
    note = request.json(Note)
    return JsonAnswer(
        201, {"text": note.text, "id": request.params["id"], "query": dict(request.query)}, {"x-extra": "1"}
    )


async def whoami(request: RawRequest) -> JsonAnswer:
    return JsonAnswer(200, {"user": request.principal.user_id, "key": request.principal.api_key_id})


async def tick(request: RawRequest) -> StreamAnswer:
    return StreamAnswer(Ticks()(), {"X-Message-Id": "msg_1"})


async def two_then_fail(request: RawRequest) -> StreamAnswer:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"data: 1\n\n"
        raise Conflict if request.query.get("known") else RuntimeError("secret detail")

    return StreamAnswer(chunks(), {"X-Message-Id": "msg_1"})


async def silent(request: RawRequest) -> StreamAnswer:
    async def chunks() -> AsyncIterator[bytes]:
        await request.disconnected.wait()
        yield b""

    return StreamAnswer(chunks())


async def wait_for_goodbye(request: RawRequest) -> EmptyAnswer:
    await request.disconnected.wait()
    return EmptyAnswer()


async def fail(request: RawRequest) -> JsonAnswer:
    if request.query.get("limit"):
        raise RateLimited(retry_after=1.2, param="x")
    raise RuntimeError("secret detail")


async def fallback(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 299, "headers": []})
    await send({"type": "http.response.body", "body": b"django"})


ROUTES = [
    Route(["POST"], re.compile(r"/t/notes/(?P<id>[^/]+)"), echo, Scope.CHAT),
    Route(["GET", "POST"], re.compile(r"/t/whoami"), whoami, Scope.READ),
    Route(["GET"], re.compile(r"/t/ticks"), tick, Scope.READ),
    Route(["GET"], re.compile(r"/t/broken-stream"), two_then_fail, Scope.READ),
    Route(["GET"], re.compile(r"/t/silent"), silent, Scope.READ),
    Route(["GET"], re.compile(r"/t/goodbye"), wait_for_goodbye, Scope.READ),
    Route(["GET"], re.compile(r"/t/fail"), fail, Scope.READ),
    Route(["GET"], re.compile(r"/t/batches"), whoami, Scope.BATCH, openai=True),
    Route(["POST"], re.compile(r"/t/served-by-django"), whoami, Scope.CHAT),  # other methods are Django's
]


urlpatterns = [path("t/served-by-django", lambda _: None)]


KEY = {"authorization": "Bearer known"}
CALLER = Principal(new_id(), new_id(), new_id(), scopes.ALL)


async def authenticate(scope: Any) -> Authenticated:
    """Knows one key, without a database."""
    if (b"authorization", b"Bearer known") not in scope["headers"]:
        raise NotAuthenticated
    return Authenticated(CALLER, by_cookie=False)


@pytest.fixture(autouse=True)
def app(settings: Any, request: pytest.FixtureRequest) -> RawRouter:
    """The router; with the real authentication where the test takes people."""
    settings.ROOT_URLCONF = __name__
    if not {"person", "stranger"} & set(request.fixturenames):
        settings.RAW_AUTHENTICATOR = f"{__name__}.authenticate"
    streams.clear()
    return RawRouter(ROUTES, fallback)


def sign_in(person: Person) -> str:
    """A session as the login page makes it; returns its key."""
    session = SessionStore()
    session[SESSION_KEY] = str(person.user.pk)
    session[BACKEND_SESSION_KEY] = site_settings.AUTHENTICATION_BACKENDS[0]
    session[HASH_SESSION_KEY] = person.user.get_session_auth_hash()
    session.create()
    return str(session.session_key)


async def session_headers(person: Person, **more: str) -> dict[str, str]:
    token = _get_new_csrf_string()
    key = await run_db(sign_in, person)
    return {"cookie": f"sessionid={key}; csrftoken={token}", "x-csrftoken": token, **more}
