"""Database calls from async code: in threads, as many as the connection pool serves, never the one shared thread.

A thread keeps its connection from one call to the next: to take it from the pool, have it checked there by a round trip
and give it back costs more than most calls. One that gets no more work gives it back, and so does one after each call
while others wait for the pool.
"""

import asyncio
import atexit
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from datetime import tzinfo
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

from django.conf import settings
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils import timezone
from psycopg.pq import TransactionStatus

P = ParamSpec("P")
R = TypeVar("R")
Told = Callable[[], None]  # tells the caller what came of it
Job = Callable[[], Told]

KEPT_SECONDS = 0.5  # a connection, without work
EXIT_SECONDS = 10.0  # for calls that are under way when the process ends


class _Threads:
    """Work goes to the thread that had some last: its connection is there, and others may give theirs back."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._lock = threading.Lock()
        self._idle: list[SimpleQueue[Job]] = []  # where each of those that wait gets its work, the latest last
        self._jobs: deque[Job] = deque()  # for which there is no thread yet

    def do(self, job: Job) -> None:
        with self._lock:
            if self._idle:
                self._idle.pop().put(job)
                return
            self._jobs.append(job)
            if self._count < self._most:
                self._count += 1
                name = f"database_{self._count}"
                threading.Thread(target=self._work, args=(SimpleQueue(),), name=name, daemon=True).start()

    def finish(self) -> None:
        """Waits for what is under way. Idle threads end with the process."""
        deadline = time.monotonic() + EXIT_SECONDS
        while len(self._idle) < self._count and time.monotonic() < deadline:
            time.sleep(0.01)

    def _work(self, inbox: "SimpleQueue[Job]") -> None:
        job = self._jobs_or_idle(inbox)
        while True:
            tell = (job or self._wait(inbox))()
            job = self._jobs_or_idle(inbox)  # before it is told: whoever hears it may have the next job
            tell()

    def _jobs_or_idle(self, inbox: "SimpleQueue[Job]") -> Job | None:
        with self._lock:
            if self._jobs:
                return self._jobs.popleft()
            self._idle.append(inbox)
            return None

    def _wait(self, inbox: "SimpleQueue[Job]") -> Job:
        try:
            return inbox.get(timeout=KEPT_SECONDS)
        except Empty:
            connections.close_all()
            return inbox.get()


_threads = _Threads(settings.DATABASE_POOL_SIZE)
atexit.register(_threads.finish)


async def run_db(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Runs `function`, which may use the ORM, in a thread, with the caller's log fields and time zone."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[R] = loop.create_future()
    call = partial(_call, timezone.get_current_timezone(), function, *args, **kwargs)
    _threads.do(partial(_answer, partial(copy_context().run, call), loop, answer))
    return await answer


def _call(zone: tzinfo, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    with timezone.override(zone):
        return function(*args, **kwargs)


def _answer(call: Callable[[], R], loop: asyncio.AbstractEventLoop, answer: "asyncio.Future[R]") -> Told:
    if answer.cancelled():
        return _nothing
    try:
        _give_back(_is_gone)
        try:
            tell: Told = partial(_set_result, answer, call())
        finally:
            _give_back(_is_to_go)
    except BaseException as error:
        tell = partial(_set_exception, answer, error)
    return partial(_tell, loop, tell)


def _tell(loop: asyncio.AbstractEventLoop, tell: Told) -> None:
    with suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits
        loop.call_soon_threadsafe(tell)


def _nothing() -> None:
    return None


def _give_back(why: Callable[[BaseDatabaseWrapper], bool]) -> None:
    """To the pool, which checks what it gets."""
    for connection in connections.all(initialized_only=True):
        if connection.connection is not None and why(connection):
            connection.close()


def _is_gone(connection: BaseDatabaseWrapper) -> bool:
    """Whether the server has hung up, or said something that nobody asked for: seen without asking it."""
    poll = select.poll()
    poll.register(connection.connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _is_to_go(connection: BaseDatabaseWrapper) -> bool:
    """Left dirty, or wanted by another thread: while the pool is short, each call has a connection in its turn."""
    within = connection.connection.info.transaction_status != TransactionStatus.IDLE
    return within or connection.errors_occurred or not connection.autocommit or _others_wait(connection)


def _others_wait(connection: BaseDatabaseWrapper) -> bool:
    pool = getattr(connection, "pool", None)
    return pool is not None and pool.get_stats()["requests_waiting"] > 0


def _set_result(answer: "asyncio.Future[Any]", result: object) -> None:
    if not answer.done():
        answer.set_result(result)


def _set_exception(answer: "asyncio.Future[Any]", error: BaseException) -> None:
    if not answer.done():
        answer.set_exception(error)
