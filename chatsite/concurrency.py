"""Ending asyncio tasks for certain, and long work beside the event loop."""

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

from django.utils import timezone

STEP_SECONDS = 0.1
P = ParamSpec("P")
R = TypeVar("R")


async def in_thread(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Runs what takes long and uses no database, such as rendering, in a thread, in the caller's time zone."""
    zone = timezone.get_current_timezone()

    def call() -> R:
        with timezone.override(zone):
            return function(*args, **kwargs)

    return await asyncio.to_thread(call)


async def end_tasks(tasks: Iterable["asyncio.Task[Any]"], within: float | None = None) -> "set[asyncio.Task[Any]]":
    """Cancels until all have ended, or `within` seconds are over; returns those that have not.

    Once is not enough: redis-py sends through `asyncio.wait_for`, which in Python 3.11 loses a cancellation that comes
    in the moment in which the send completes.
    """
    deadline = None if within is None else time.monotonic() + within
    waiting = {task for task in tasks if not task.done()}
    while waiting and (deadline is None or time.monotonic() < deadline):
        for task in waiting:
            task.cancel()
        _, waiting = await asyncio.wait(waiting, timeout=STEP_SECONDS)
    return waiting


async def discard(task: "asyncio.Future[Any]") -> None:
    """Ends a task whose result nobody wants any more; one that is done is left as it is."""
    if not task.done():
        task.cancel()
        await asyncio.wait([task])
    if not task.cancelled():
        task.exception()  # retrieved: the caller has its own reason to stop, or has seen it already
