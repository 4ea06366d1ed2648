"""Counters of what is spent, for budgets: they live in Redis, and are read from the ledger where Redis has none.

Until they are known again nothing is reserved against them (fail-closed), so no budget is overrun meanwhile. How it is
that nothing is counted twice or left out is told in `load.lua` and docs/quotas.md.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from functools import cache
from typing import Any, cast
from uuid import UUID

import structlog
from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection, transaction
from django.utils.module_loading import import_string

from chatsite.accounts.models import ApiKey
from chatsite.database import run_db
from chatsite.errors import Unavailable
from chatsite.ids import new_id
from chatsite.redis import SCHEMA, Arg, async_client, sync_client
from quotas.budgets import Unit
from quotas.models import LedgerEntry
from quotas.money import units
from quotas.periods import MAX_ROLLING_DAYS, Period, today
from quotas.protocol import Used
from quotas.scripts import LOAD, REMEMBER_MS, quota_prefix, read_sql

Counter = tuple[str, Unit]  # subject and unit
READ_MS = 10_000  # in which the ledger has to be read; whoever takes longer begins anew
WAIT_SECONDS = 2.0  # for another process that reads it
STEP_SECONDS = 0.02
HELD_MS = 60_000  # that a reservation lives which was made again: its runner or the sweep renews it long before
KEPT_DAYS = MAX_ROLLING_DAYS + 1
_COUNTED_IN = f"{SCHEMA}:quotas:server"  # in which run of the server the counters were read

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Open:
    """A request that is not settled, and the most that it may be billed for (cost in 1e-10 of the currency)."""

    id: UUID
    user_id: UUID
    api_key_id: UUID | None
    most: int
    cost: int


@dataclass(frozen=True)
class Requests:
    """Of one organization, as PostgreSQL has them: those that are open; those that are ended, but not released.

    `ended`: tokens of the minute that each has used. `waiting`: those that are to reserve later, and hold nothing yet.
    """

    open: Sequence[Open]
    ended: Mapping[UUID, int]
    waiting: Sequence[UUID] = ()


@dataclass(frozen=True)
class _Snapshot:
    requests: Requests
    ended: Mapping[UUID, Used]
    keys: Mapping[UUID, UUID]  # API key -> the chain of those that replaced one another
    days: Mapping[Counter, Mapping[int, int]]


async def read(organization_id: UUID, wanted: Sequence[Counter]) -> None:
    """Makes the counters known, or waits until another process has. Raises Unavailable, RedisError."""
    client, key, token = async_client(), f"{quota_prefix(organization_id)}:loading", str(new_id())
    if not await client.set(key, token, nx=True, px=READ_MS):
        await _others(key)
        return
    try:
        found = await run_db(_snapshot, organization_id, wanted)
        loaded = await LOAD(client, quota_prefix(organization_id), token, *_arguments(found, wanted))
        log.info("budgets read from the ledger", organization=str(organization_id), counted=bool(loaded))
    except (DatabaseError, InterfaceError) as error:
        log.warning("budgets not read from the ledger", error=str(error))
        raise Unavailable("The budgets cannot be checked now. Try again shortly.", retry_after=2) from error
    finally:
        if await client.get(key) == token.encode():
            await client.delete(key)


async def _others(key: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while await async_client().exists(key):
        if time.monotonic() > deadline:
            raise Unavailable("The budgets are being counted. Try again shortly.", retry_after=2)
        await asyncio.sleep(STEP_SECONDS)


def forget(organization_id: UUID) -> None:
    """The ledger has changed by itself: counters are read anew when they are needed. Raises RedisError."""
    prefix = quota_prefix(organization_id)
    sync_client().delete(f"{prefix}:counted", f"{prefix}:loading")  # what is being read now is old already


async def forget_where_redis_restarted() -> None:
    """A server that starts again may have lost its last moments, and so may one that takes over from another.

    Its counters would be too low. All of them are read anew when they are needed, once for each server's run. Raises
    RedisError.
    """
    client = async_client()
    run = (await client.info("server"))["run_id"].encode()
    if await client.get(_COUNTED_IN) == run:
        return
    forgotten = 0
    async for key in client.scan_iter(match=f"{SCHEMA}:{{o:*}}:counted", count=1000):
        forgotten += await client.delete(key, key.removesuffix(b"counted") + b"loading") > 0
    await client.set(_COUNTED_IN, run)
    log.info("counters of budgets are read anew", organizations=forgotten)


@cache
def _requests_of() -> Callable[[UUID], Requests]:
    """Requests are known to a room above, which names itself in the settings."""
    return cast(Callable[[UUID], Requests], import_string(settings.OPEN_REQUESTS))


def _snapshot(organization_id: UUID, wanted: Sequence[Counter]) -> _Snapshot:
    """Requests and ledger as of one moment."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        requests = _requests_of()(organization_id)
        keys = dict(ApiKey.objects.filter(organization_id=organization_id).values_list("id", "chain_id"))
        days = {counter: _by_day(organization_id, counter, keys) for counter in wanted}
        ended = _settled(requests.ended)
    return _Snapshot(requests, ended, keys, days)


def _settled(ended: Mapping[UUID, int]) -> dict[UUID, Used]:
    rows = LedgerEntry.objects.filter(request_id__in=list(ended), kind=LedgerEntry.Kind.USAGE)
    return {row.request_id: Used(ended[row.request_id], row.input + row.output, units(row.cost)) for row in rows}


def _by_day(organization_id: UUID, counter: Counter, keys: Mapping[UUID, UUID]) -> dict[int, int]:
    subject, unit = counter
    _, _, id = subject.partition(":")
    of_chain = [key for key, chain in keys.items() if str(chain) == id]
    days = Period(today() - timedelta(days=KEPT_DAYS), today() + timedelta(days=2))
    found = spent_by_day(
        organization_id,
        days,
        user=UUID(id) if subject.startswith("user:") else None,
        keys=of_chain if subject.startswith("key:") else None,
    )
    return {day: tokens if unit is Unit.TOKENS else units(cost) for day, (tokens, cost) in found.items()}


def spent_by_day(
    organization_id: UUID, period: Period, *, user: UUID | None = None, keys: Sequence[UUID] | None = None
) -> dict[int, tuple[int, Decimal]]:
    """Tokens and cost by day (since 1970), of all in the organization, or of one user or some keys."""
    first, last = period.ids
    given: dict[str, Any] = {
        "organization": organization_id,
        "first": first,
        "last": last,
        "user": user,
        "keys": None if keys is None else list(keys),
    }
    with connection.cursor() as cursor:
        cursor.execute(read_sql("spent_by_day"), given)
        return {int(day): (int(tokens), cost) for day, tokens, cost in cursor.fetchall()}


def _arguments(found: _Snapshot, wanted: Sequence[Counter]) -> list[Arg]:
    """As load.lua wants them, behind the token."""
    args: list[Arg] = [HELD_MS, REMEMBER_MS, len(found.ended)]
    for id, used in found.ended.items():
        args += (str(id), used.tokens, used.billed, used.cost)
    args.append(len(found.requests.open))
    for each in found.requests.open:
        chain = found.keys.get(each.api_key_id) if each.api_key_id else None
        args += (str(each.id), each.most, each.cost, str(each.user_id), str(chain) if chain else "-")
    for counter in wanted:
        days = found.days[counter]
        args += (*counter, len(days))
        for day, amount in days.items():
            args += (day, amount)
    return args
