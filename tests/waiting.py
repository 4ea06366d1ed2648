"""Waiting for something to become true, with a deadline, instead of sleeping and hoping."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")
STEP_SECONDS = 0.01
PATIENCE_SECONDS = 15.0  # for a machine that does other things as well: a tokenizer alone takes 4 s to load there


async def wait_until(probe: Callable[[], T | Awaitable[T]], within: float = PATIENCE_SECONDS, message: str = "") -> T:
    """Calls `probe` (a function or a coroutine function) until its result is true; returns that result.

    `within` seconds: given where a test is about how long something may take.
    """
    deadline = time.monotonic() + within
    while True:
        result: Any = probe()
        if inspect.isawaitable(result):
            result = await result
        if result:
            return result
        if time.monotonic() > deadline:
            raise AssertionError(message or f"not true within {within} s; last seen: {result!r}")
        await asyncio.sleep(STEP_SECONDS)


def wait_until_sync(probe: Callable[[], T], within: float = PATIENCE_SECONDS, message: str = "") -> T:
    """`wait_until` for code without an event loop."""
    deadline = time.monotonic() + within
    while True:
        result = probe()
        if result:
            return result
        if time.monotonic() > deadline:
            raise AssertionError(message or f"not true within {within} s; last seen: {result!r}")
        time.sleep(STEP_SECONDS)
