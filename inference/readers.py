"""Who follows a call that several may follow, in any process: a set in Redis for each request.

The last to leave cancels the call. A reader is `<process>/<number>`, so that one whose process is gone
(inference.presence) is known to be none. Redis may lose the set: each reader enters itself again and again, and whoever
leaves when it was lost waits until the others have.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID
from weakref import ref

import structlog
from django.conf import settings
from redis.exceptions import RedisError

from chatsite.ids import new_id
from chatsite.redis import Call, Script, async_client, run_pipeline
from inference import presence
from inference.redis import keys

log = structlog.get_logger(__name__)
AGAIN_SECONDS = 1.0  # from one entering to the next
LOST_SECONDS = 3.0  # after which all who read are in the set again
_FOLDER = Path(__file__).parent / "redis"
CLOSED = b"closed"  # in the set once the last one has left
JOIN, LEAVE = (Script.load(_FOLDER / f"{name}.lua") for name in ("join", "leave"))


def new_reader(process: UUID) -> str:
    """A reader in that process."""
    return f"{process}/{new_id()}"


async def join(requests: Sequence[UUID], reader: str, *, new: bool = False) -> bool:
    """False when the last reader of one of them had left: it is being cancelled. Raises redis errors.

    `new`: the call has just been accepted, so that nobody can have read it before.
    """
    return all(await _called(JOIN, requests, reader, 0 if new else int(LOST_SECONDS * 1000)))


async def leave(requests: Sequence[UUID], reader: str) -> dict[UUID, list[UUID]]:
    """The processes of the readers that each request has left; none: cancel it. Raises redis errors.

    Waits for LOST_SECONDS where Redis has lost who reads.
    """
    left = await _called(LEAVE, requests, reader, 0)
    if None in left:
        await asyncio.sleep(LOST_SECONDS)
        again = await _called(LEAVE, requests, reader, 1)
        left = [after if before is None else before for before, after in zip(left, again, strict=True)]
    return {request: [_process(each) for each in others] for request, others in zip(requests, left, strict=True)}


async def adopters(requests: Sequence[UUID]) -> dict[UUID, UUID]:
    """Of each request that has a reader in a process that is there: that process. Raises redis errors."""
    async with async_client().pipeline(transaction=False) as pipe:
        for request in requests:
            pipe.smembers(keys.readers(request))
        found = await pipe.execute()
    processes = [{_process(reader) for reader in members if reader != CLOSED} for members in found]
    here = set(await presence.here(set().union(*processes)))
    return {request: min(there) for request, each in zip(requests, processes, strict=True) if (there := each & here)}


class Stay:
    """Keeps a reader that has joined in the set, until it leaves or `hold` is no more. Made in an event loop."""

    def __init__(self, requests: Sequence[UUID], reader: str, hold: presence.Hold) -> None:
        self._reader = reader
        self._over = asyncio.Event()
        self._task = asyncio.create_task(_enter_again(requests, reader, ref(hold), self._over))

    def end(self) -> None:
        """Idempotent."""
        self._over.set()

    async def leave(self, requests: Sequence[UUID]) -> dict[UUID, list[UUID]]:
        """As `leave`; what enters the reader has ended before."""
        self.end()
        await self._task
        return await leave(requests, self._reader)


async def _enter_again(requests: Sequence[UUID], reader: str, hold: "ref[presence.Hold]", over: asyncio.Event) -> None:
    while True:
        try:
            await asyncio.wait_for(over.wait(), AGAIN_SECONDS)
        except TimeoutError:
            if hold() is None:
                return
        else:
            return
        try:
            await join(requests, reader)
        except (RedisError, OSError) as error:
            log.warning("reader not entered again", error=str(error))


async def _called(script: Script, requests: Sequence[UUID], reader: str, *more: int) -> list:  # type: ignore[type-arg]
    calls = [Call(script, keys.log(request), (reader, settings.PROMPT_TTL_SECONDS, *more)) for request in requests]
    results = await run_pipeline(async_client(), calls)
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results


def _process(reader: bytes) -> UUID:
    return UUID(reader.decode().partition("/")[0])
