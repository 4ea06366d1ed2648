"""The scheduler's operations: one Lua file each, on the slot of one model's shard."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from redis.asyncio import Redis

from chatsite.redis import Call, Script
from inference.protocol import QueuePlace
from inference.redis import keys

_FOLDER = Path(__file__).parent
ENQUEUE, PEEK, COMMIT, HEARTBEAT, CANCEL, RELEASE, REAP, SETTLE, REOPEN, PLACE = (
    Script.load(_FOLDER / f"{name}.lua")
    for name in (
        "enqueue",
        "peek",
        "commit",
        "heartbeat",
        "cancel",
        "release",
        "reap",
        "settle",
        "reopen",
        "place",
    )
)


@dataclass(frozen=True)
class Head:
    """A request at the front of a lane. `avoid` is the replica that just failed it."""

    id: UUID
    lane: str
    input: int
    attempt: int
    emitted: int
    avoid: UUID | None


@dataclass(frozen=True)
class Peeked:
    """The heads in the order in which they should be served, and how many requests each replica has."""

    heads: list[Head]
    taken: list[int]


class Scheduler:
    """One model's queues and leases. Raises redis errors; every operation may be repeated."""

    def __init__(self, client: Redis, model: str) -> None:
        self.client = client
        self.prefix = keys.scheduler(model)

    def enqueue_call(
        self,
        request_id: UUID,
        lane: str,
        tenant: UUID,
        *,
        tokens: int,
        deadline_ms: int,
        attempt: int = 0,
        emitted: int = 0,
    ) -> Call:
        """Returns 0 when the scheduler knows the request already."""
        args = (str(request_id), lane, str(tenant), tokens, deadline_ms, attempt, emitted, "")
        return Call(ENQUEUE, self.prefix, args)

    async def peek(self, most: int, replicas: Sequence[UUID]) -> Peeked:
        heads, taken = await PEEK(self.client, self.prefix, most, *map(str, replicas))
        return Peeked([_head(raw) for raw in heads], [int(n) for n in taken])

    def commit_call(
        self, head: Head, replica: UUID, *, slots: int, runner: UUID, lease_seconds: float, weight: float
    ) -> Call:
        """Returns the attempt's number, 0 when the head has gone, -1 when the replica is full."""
        cost = head.input / weight
        args = (str(head.id), str(replica), slots, str(runner), int(lease_seconds * 1000), cost)
        return Call(COMMIT, self.prefix, args)

    async def heartbeat(self, lease_seconds: float, running: Sequence[tuple[UUID, int, int]]) -> list[str]:
        """`running`: (id, attempt, tokens emitted). An answer for each: ok, cancelled, stale or unknown."""
        args: list[str | int] = [int(lease_seconds * 1000)]
        for request_id, attempt, emitted in running:
            args += (str(request_id), attempt, emitted)
        return [answer.decode() for answer in await HEARTBEAT(self.client, self.prefix, *args)]

    async def cancel(self, request_id: UUID) -> str:
        """queued (it waited, and is ended now), running (its runner was told), ended or unknown."""
        return str((await CANCEL(self.client, self.prefix, str(request_id))).decode())

    async def release(
        self,
        request_id: UUID,
        attempt: int,
        *,
        emitted: int,
        failed: bool,
        avoid: UUID | None,
        max_attempts: int,
        wait_seconds: float,
    ) -> str:
        """Gives a running request back: queued, cancelled, failed, or stale when the attempt no longer holds it."""
        args = (
            str(request_id),
            attempt,
            emitted,
            int(failed),
            str(avoid or ""),
            max_attempts,
            int(wait_seconds * 1000),
        )
        return str((await RELEASE(self.client, self.prefix, *args)).decode())

    async def reap(self, *, max_attempts: int, loading: bool, wait_seconds: float) -> list[tuple[UUID, str]]:
        """Takes back expired leases; returns what ended here as (id, outcome) until `settle` forgets it."""
        ended = await REAP(self.client, self.prefix, max_attempts, int(loading), int(wait_seconds * 1000))
        return [(UUID(request_id.decode()), outcome.decode()) for request_id, outcome in ended]

    def settle_call(self, request_id: UUID) -> Call:
        return Call(SETTLE, self.prefix, (str(request_id),))

    async def reopen(
        self,
        request_id: UUID,
        *,
        lane: str,
        tenant: UUID,
        attempt: int,
        emitted: int,
        replica: UUID,
        runner: UUID,
        lease_seconds: float,
        deadline_ms: int,
        tokens: int,
    ) -> bool:
        """After Redis lost it: False when another process has entered the request meanwhile."""
        args = (
            str(request_id),
            lane,
            str(tenant),
            attempt,
            emitted,
            str(replica),
            str(runner),
            int(lease_seconds * 1000),
            deadline_ms,
            tokens,
        )
        return bool(await REOPEN(self.client, self.prefix, *args))

    async def knows(self, request_ids: Sequence[UUID]) -> list[bool]:
        async with self.client.pipeline(transaction=False) as pipe:
            for request_id in request_ids:
                pipe.exists(keys.place(self.prefix, request_id))
            return [bool(known) for known in await pipe.execute()]

    async def place(self, request_id: UUID) -> QueuePlace | None:
        """None when the request does not wait."""
        state, position, gap = await PLACE(self.client, self.prefix, str(request_id))
        if state != b"queued" or not position:
            return None
        return QueuePlace(int(position), round(int(position) * float(gap) / 1000, 1) if gap else None)


def _head(raw: list[bytes]) -> Head:
    request_id, lane, tokens, attempt, emitted, avoid = (value.decode() for value in raw)
    return Head(UUID(request_id), lane, int(tokens), int(attempt), int(emitted), UUID(avoid) if avoid else None)
