"""Ending asyncio tasks for certain."""

import asyncio
import time
from collections.abc import Iterable
from typing import Any

STEP_SECONDS = 0.1


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
