"""Who follows a call that several may follow, in any process: a set in Redis for each request.

The last to leave cancels the call. A reader is `<process>/<number>`, so that one whose process is gone
(inference.presence) is known to be none.
"""

from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from django.conf import settings

from chatsite.ids import new_id
from chatsite.redis import Call, Script, async_client, run_pipeline
from inference import presence
from inference.redis import keys

_FOLDER = Path(__file__).parent / "redis"
CLOSED = b"closed"  # in the set once the last one has left
JOIN, LEAVE = (Script.load(_FOLDER / f"{name}.lua") for name in ("join", "leave"))


def new_reader(process: UUID) -> str:
    """A reader in that process."""
    return f"{process}/{new_id()}"


async def join(requests: Sequence[UUID], reader: str) -> bool:
    """False when the last reader of one of them had left: it is being cancelled. Raises redis errors."""
    return all(await _called(JOIN, requests, reader))


async def leave(requests: Sequence[UUID], reader: str) -> dict[UUID, list[UUID]]:
    """The processes of the readers that each request has left; none: cancel it. Raises redis errors."""
    left = await _called(LEAVE, requests, reader)
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


async def _called(script: Script, requests: Sequence[UUID], reader: str) -> list:  # type: ignore[type-arg]
    calls = [Call(script, keys.log(request), (reader, settings.PROMPT_TTL_SECONDS)) for request in requests]
    results = await run_pipeline(async_client(), calls)
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results


def _process(reader: bytes) -> UUID:
    return UUID(reader.decode().partition("/")[0])
