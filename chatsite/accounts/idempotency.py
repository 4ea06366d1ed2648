"""`Idempotency-Key`: a repeated POST gets the first one's answer instead of a second effect.

A record belongs to a principal, a route (method and path) and a key. While the call runs its status is null; afterwards
it holds the answer. Only answers are kept, not errors: a refused call has changed nothing, so its repeat is judged
anew. A call whose process died is taken over after `TAKEOVER_SECONDS`.

A handler that starts something long calls `record` inside the transaction that starts it, so that no crash in between
can lead to a second effect; its answer then names what was started, as `{"message": "msg_..."}`, and a repeat
re-attaches to it. When what was started came to nothing, `reopen` makes the repeat a first call again.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import wraps
from http import HTTPStatus
from typing import Any, TypeVar, cast

from django.db import connection
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from chatsite.accounts.models import IdempotentCall
from chatsite.accounts.protocol import Principal
from chatsite.database import run_db
from chatsite.errors import IdempotencyInFlight, IdempotencyMismatch, InvalidInput

HEADER = "Idempotency-Key"
TAKEOVER_SECONDS = 60
KEEP = timedelta(hours=24)
ROUTE_LENGTH = 200
KEY_LENGTH = 255
View = TypeVar("View", bound=Callable[..., HttpResponseBase])


@dataclass(frozen=True)
class Replay:
    """What the first call answered."""

    status: int
    answer: Any
    since: datetime = field(default_factory=timezone.now, compare=False)  # when its record was made


async def begin(principal: Principal, route: str, key: str, body: bytes) -> Replay | None:
    """Opens the record of a call. None: go on, then `finish` or `abandon`. A Replay: answer with it.

    Raises IdempotencyInFlight, IdempotencyMismatch, InvalidInput (a key that is empty, too long or not printable).
    """
    return await run_db(begin_sync, principal, route, key, body)


async def reopen(principal: Principal, route: str, key: str, replay: Replay) -> bool:
    """What the first call started came to nothing, so it is called anew: go on as after `begin` gave None.

    False when somebody else was first: begin again.
    """
    return await run_db(_reopen, principal, route, key, replay)


async def finish(principal: Principal, route: str, key: str, status: int, answer: Any) -> None:
    """Keeps the answer (JSON) of the call; one that is not a success is forgotten instead."""
    await run_db(record, principal, route, key, status, answer)


async def abandon(principal: Principal, route: str, key: str) -> None:
    """The call failed and changed nothing: the key may be used again at once."""
    await run_db(abandon_sync, principal, route, key)


def begin_sync(principal: Principal, route: str, key: str, body: bytes) -> Replay | None:
    """`begin`, for code in a thread. Call it outside of any transaction: others must see the record."""
    _check(route, key)
    digest = hashlib.sha256(body).hexdigest()
    for _ in range(3):  # the record may be abandoned between the insert that met it and the read
        if _insert(principal, route, key, digest):
            return None
        found = _records(principal, route, key).first()
        if found is not None:
            return _join(found, digest)
    raise IdempotencyInFlight(retry_after=1)


def record(principal: Principal, route: str, key: str, status: int, answer: Any) -> None:
    """`finish`, for code in a thread or in the transaction that has the effect."""
    if not HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        abandon_sync(principal, route, key)
        return
    _records(principal, route, key).update(status=status, answer=answer)


def abandon_sync(principal: Principal, route: str, key: str) -> None:
    """`abandon`, for code in a thread."""
    _records(principal, route, key).filter(status=None).delete()


def forget_old() -> int:
    """Removes records older than a day; returns how many."""
    count, _ = IdempotentCall.objects.filter(created_at__lt=timezone.now() - KEEP).delete()
    return count


def _check(route: str, key: str) -> None:
    if not 0 < len(key) <= KEY_LENGTH or not key.isascii() or not key.isprintable():
        raise InvalidInput(f"An {HEADER} is 1 to {KEY_LENGTH} printable ASCII characters.", param=HEADER)
    if len(route) > ROUTE_LENGTH:
        raise InvalidInput("This path is too long.")


def _insert(principal: Principal, route: str, key: str, digest: str) -> bool:
    """False when the record was there. In SQL, because the ORM does not tell whether a conflict was ignored."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {IdempotentCall._meta.db_table} (principal, route, key, body_digest, created_at) "
            "VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
            [principal.scope, route, key, digest, timezone.now()],
        )
        return bool(cursor.rowcount == 1)


def _join(found: IdempotentCall, digest: str) -> Replay | None:
    if found.body_digest != digest:
        raise IdempotencyMismatch(param=HEADER)
    if found.status is not None:
        return Replay(found.status, found.answer, found.created_at)
    now = timezone.now()
    if now - found.created_at > timedelta(seconds=TAKEOVER_SECONDS):
        dead = IdempotentCall.objects.filter(pk=found.pk, status=None, created_at=found.created_at)
        if dead.update(created_at=now):
            return None
    raise IdempotencyInFlight(retry_after=1)


def _reopen(principal: Principal, route: str, key: str, replay: Replay) -> bool:
    same = _records(principal, route, key).filter(created_at=replay.since, status=replay.status)
    return bool(same.update(status=None, answer=None, created_at=timezone.now()))


def _records(principal: Principal, route: str, key: str) -> Any:
    return IdempotentCall.objects.filter(principal=principal.scope, route=route, key=key)


def idempotent(view: View) -> View:
    """Decorates a POST handler of an API view (a method that takes the view and the request)."""

    @wraps(view)
    def handle(self: Any, request: Request, *args: Any, **kwargs: Any) -> HttpResponseBase:
        key = request.headers.get(HEADER)
        if key is None:
            return view(self, request, *args, **kwargs)
        principal, route = cast(Principal, request.auth), f"{request.method} {request.path}"
        replay = begin_sync(principal, route, key, request._request.body)
        if replay is not None:
            return Response(replay.answer, status=replay.status)
        try:
            response = view(self, request, *args, **kwargs)
        except BaseException:
            abandon_sync(principal, route, key)
            raise
        record(principal, route, key, response.status_code, _answer_of(self, response))
        return response

    return cast(View, handle)


def _answer_of(view: Any, response: HttpResponseBase) -> Any:
    """The answer as the caller sees it: rendered, so that ids and times are text."""
    if isinstance(response, Response):
        return json.loads(view.request.accepted_renderer.render(response.data) or b"null")
    return json.loads(response.content) if isinstance(response, HttpResponse) and response.content else None
