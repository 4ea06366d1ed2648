import asyncio
import time

import psycopg
from django.db import connection

from chatsite.database import run_db


def backend() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid(), pg_sleep(0.05)")
        return int(cursor.fetchone()[0])


async def test_calls_run_side_by_side_not_on_one_shared_thread(database: None) -> None:
    await run_db(backend)
    started = time.monotonic()
    backends = await asyncio.gather(*(run_db(backend) for _ in range(8)))
    assert len(set(backends)) > 1
    assert time.monotonic() - started < 8 * 0.05 + 0.3


async def test_after_a_restart_no_call_meets_a_dead_connection(database: None) -> None:
    backends = set(await asyncio.gather(*(run_db(backend) for _ in range(8))))
    settings = connection.get_connection_params()
    with psycopg.connect(dbname=settings["dbname"], user=settings["user"], host=settings.get("host")) as other:
        for pid in backends:
            other.execute("SELECT pg_terminate_backend(%s)", [pid])
    await asyncio.sleep(0.1)
    assert backends.isdisjoint(await asyncio.gather(*(run_db(backend) for _ in range(8))))
