"""What keeps one WebSocket within bounds: unacknowledged bytes, frames that come in, tasks that must end with it."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

from chatsite.error_responses import convert
from chatsite.errors import AppError, RateLimited

OUTSTANDING_BYTES: Final = 256 * 1024
STALL_SECONDS: Final = 30.0  # without an acknowledgement while that much is outstanding
FRAMES_PER_SECOND: Final = 20.0
FRAMES_BURST: Final = 60.0
R = TypeVar("R")


_carried: "set[asyncio.Task[Any]]" = set()  # strong references: the loop keeps only weak ones


async def carry_through(work: Coroutine[Any, Any, R]) -> R:
    """Awaits it; whoever leaves meanwhile does not cut it short. An error that nobody awaits any more is logged if it
    is a fault of ours."""
    task = asyncio.create_task(work)
    _carried.add(task)
    task.add_done_callback(_carried.discard)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(_look_at)
        raise


def _look_at(task: "asyncio.Task[Any]") -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None:
        convert(error)  # which logs what is not expected


class TooSlow(AppError):
    """The page does not read what it is sent."""

    code = "too_slow"
    status = 408


class TooManyFrames(RateLimited):
    """Too many messages at once."""


class Outbox:
    """Sends frames in order; waits while `OUTSTANDING_BYTES` are not acknowledged.

    The server's own `send` never waits: without this, what a stalled reader does not read piles up in memory. A reader
    acknowledges by telling how many frames it has handled.
    """

    def __init__(self, send: Callable[[str], Awaitable[None]], stall_seconds: float = STALL_SECONDS) -> None:
        self._send = send
        self._stall_seconds = stall_seconds
        self._sizes: deque[int] = deque()
        self._acknowledged = 0  # frames
        self._room = asyncio.Event()
        self.outstanding = 0  # bytes

    async def put(self, frame: str) -> None:
        """Raises TooSlow."""
        while self.outstanding >= OUTSTANDING_BYTES:
            self._room.clear()
            try:
                await asyncio.wait_for(self._room.wait(), self._stall_seconds)
            except TimeoutError:
                raise TooSlow from None
        size = len(frame) if frame.isascii() else len(frame.encode())
        self._sizes.append(size)
        self.outstanding += size
        await self._send(frame)

    def acknowledge(self, frames: int) -> None:
        """`frames`: handled since the connection was opened. More than were sent count as all."""
        while self._acknowledged < frames and self._sizes:
            self.outstanding -= self._sizes.popleft()
            self._acknowledged += 1
        self._room.set()


class FrameBudget:
    """A token bucket for what a page sends."""

    def __init__(self) -> None:
        self._left = FRAMES_BURST
        self._at = time.monotonic()

    def spend(self) -> None:
        """Raises TooManyFrames."""
        now = time.monotonic()
        self._left = min(FRAMES_BURST, self._left + (now - self._at) * FRAMES_PER_SECOND)
        self._at = now
        if self._left < 1:
            raise TooManyFrames
        self._left -= 1
