"""Database calls from async code: side by side, on connections that are good, in the caller's context."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import Any

import psycopg
import pytest
import structlog
from django.conf import settings
from django.db import DataError, connection, transaction
from django.utils import timezone

from chatsite.database import run_db
from tests.waiting import wait_until


def backend() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid(), pg_sleep(0.05)")
        return int(cursor.fetchone()[0])


def pool() -> Any:
    return connection.pool  # type: ignore[attr-defined]


async def test_calls_run_side_by_side_not_on_one_shared_thread(database: None) -> None:
    await run_db(backend)
    started = time.monotonic()
    backends = await asyncio.gather(*(run_db(backend) for _ in range(8)))
    assert len(set(backends)) > 1
    assert time.monotonic() - started < 8 * 0.05 + 0.3


async def test_after_a_restart_no_call_meets_a_dead_connection(database: None) -> None:
    backends = set(await asyncio.gather(*(run_db(backend) for _ in range(8))))
    given = connection.get_connection_params()
    with psycopg.connect(dbname=given["dbname"], user=given["user"], host=given.get("host")) as other:
        for pid in backends:
            other.execute("SELECT pg_terminate_backend(%s)", [pid])
    await asyncio.sleep(0.1)
    assert backends.isdisjoint(await asyncio.gather(*(run_db(backend) for _ in range(8))))


def name() -> str:
    return threading.current_thread().name


async def test_calls_one_after_the_other_keep_their_connection(database: None) -> None:
    assert len({await run_db(backend) for _ in range(5)}) == 1


async def test_a_connection_without_work_is_given_back(database: None) -> None:
    def lent() -> int:
        found = pool().get_stats()
        return int(found["pool_size"] - found["pool_available"])

    used = set(await asyncio.gather(*(run_db(backend) for _ in range(8))))
    most = lent()
    assert most >= len(used)  # others may have some, too
    await wait_until(lambda: lent() <= most - len(used), 10)


async def test_what_fails_leaves_no_open_transaction_behind(database: None) -> None:
    def fail() -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT 1 / 0")

    def forget() -> None:
        transaction.set_autocommit(False)
        backend()

    def state() -> str:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        return str(connection.connection.info.transaction_status.name)

    def begin() -> None:
        with connection.cursor() as cursor:
            cursor.execute("BEGIN")

    for wrong in (fail, forget, begin):
        with suppress(DataError):
            await run_db(wrong)
        assert await run_db(state) == "IDLE"


async def test_an_error_comes_to_the_caller_and_the_thread_goes_on(database: None) -> None:
    def fail() -> None:
        raise SystemExit(3)

    for _ in range(40):  # more than there are threads
        with pytest.raises(SystemExit):
            await run_db(fail)
    assert await run_db(name)


async def test_more_calls_than_threads_wait_and_one_that_is_cancelled_is_not_made(database: None) -> None:
    free, made = threading.Event(), []
    holding = [asyncio.ensure_future(run_db(free.wait)) for _ in range(settings.DATABASE_POOL_SIZE)]
    waiting = [asyncio.ensure_future(run_db(made.append, number)) for number in range(3)]
    await asyncio.sleep(0.05)
    waiting[1].cancel()
    free.set()
    await asyncio.gather(*holding, waiting[0], waiting[2])
    assert sorted(made) == [0, 2]


async def test_calls_see_the_callers_context(database: None) -> None:
    structlog.contextvars.bind_contextvars(request="r1")
    with timezone.override("Asia/Tokyo"):
        fields, zone = await run_db(lambda: (structlog.contextvars.get_contextvars(), timezone.get_current_timezone()))
    assert (fields["request"], str(zone)) == ("r1", "Asia/Tokyo")


def test_a_process_ends_when_its_calls_have() -> None:
    code = (
        "import asyncio, time, django; django.setup()\n"
        "from chatsite.database import run_db\n"
        "async def main():\n"
        "    asyncio.ensure_future(run_db(lambda: (time.sleep(0.5), print('done'))))\n"
        "    await asyncio.sleep(0.1)\n"
        "asyncio.run(main())"
    )
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "chatsite.settings"}
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert (ended.stdout, ended.returncode) == ("done\n", 0)


async def test_while_the_pool_is_short_of_connections_each_call_has_one_in_its_turn(database: None) -> None:
    """As after a restart, when a pool comes back to its size only by and by."""
    found = pool().get_stats()
    lent = found["pool_size"] - found["pool_available"]  # the test's own, and what others have
    taken = [pool().getconn() for _ in range(pool().max_size - lent - 2)]
    done, until = [0] * 6, time.monotonic() + 1.5

    async def ask(number: int) -> None:
        while time.monotonic() < until:
            await run_db(backend)
            done[number] += 1

    try:
        await asyncio.gather(*map(ask, range(6)))
    finally:
        for each in taken:
            pool().putconn(each)
    assert min(done) >= 5 and sum(done) >= 30, done
