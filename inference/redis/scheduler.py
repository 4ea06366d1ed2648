"""The scheduler's operations: one Lua file each, on the slot of one model's shard.

`inference.scheduling.book` says what each of them does. Those whose name ends in `_call` are for pipelines.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from redis.asyncio import Redis

from chatsite.redis import Arg, Call, Script
from inference.redis import keys, rules
from inference.scheduling.answers import (
    Answer,
    Committed,
    Counters,
    Head,
    Outcome,
    Peeked,
    Refusal,
    Released,
    Running,
    State,
)

FOLDER = Path(__file__).parent
SHARED = (FOLDER / "clock.lua", FOLDER / "rules.lua")
NAMES = (
    "enqueue",
    "peek",
    "commit",
    "first_token",
    "heartbeat",
    "cancel",
    "preempt",
    "release",
    "reap",
    "settle",
    "set_aside",
    "reopen",
    "place",
    "ahead",
    "running",
)
SCRIPTS = {name: Script.load(FOLDER / f"{name}.lua", *SHARED) for name in NAMES}


@dataclass(frozen=True)
class Waiting:
    """`ahead`: requests of its lane that are served before it under the present order."""

    ahead: int
    preemptions: int


class Scheduler:
    """One model's queues and leases. Raises redis errors; every operation may be repeated."""

    def __init__(self, client: Redis, model: str) -> None:
        self.client = client
        self.prefix = keys.scheduler(model)

    def call(self, name: str, *args: Arg) -> Call:
        return Call(SCRIPTS[name], self.prefix, args)

    async def run(self, call: Call) -> Any:
        return await call.script(self.client, call.prefix, *call.args)

    def enqueue_call(
        self,
        id: str,
        lane: str,
        tenant: str,
        *,
        input: int,
        uncached: int,
        kv: int,
        deadline: int,
        peak_rate: float | None = None,
        weight: float = 1.0,
        rank: float | None = None,
        attempt: int = 0,
        emitted: int = 0,
    ) -> Call:
        """Returns 1, or 0 when the scheduler knows the request already. Without `peak_rate`, the pool's counts."""
        ranked = "" if rank is None else repr(rank)
        rate = "" if peak_rate is None else peak_rate
        numbers = (input, uncached, kv, deadline, rate, ranked, attempt, emitted)
        return self.call("enqueue", rules.packed(), id, lane, tenant, weight, *numbers, "")

    def peek_call(self, most: int, replicas: Sequence[str] = ()) -> Call:
        """For `peeked`."""
        return self.call("peek", rules.packed(), most, *replicas)

    async def peek(self, most: int, replicas: Sequence[str] = ()) -> Peeked:
        return peeked(await self.run(self.peek_call(most, replicas)), replicas)

    def commit_call(self, head: Head, replica: str, runner: str, uncached: int, *, passing: bool = False) -> Call:
        """For `committed`. `passing`: those whose turn it is found no place."""
        numbers = (uncached, head.attempt, int(passing))
        return self.call("commit", rules.packed(), head.id, replica, runner, *numbers)

    def first_token_call(self, id: str, attempt: int) -> Call:
        """Returns an Answer's value."""
        return self.call("first_token", id, attempt)

    def heartbeat_call(self, running: Sequence[tuple[str, int, int]]) -> Call:
        """`running`: (id, attempt, tokens emitted). Returns the value of an Answer for each."""
        return self.call("heartbeat", rules.packed(), *(part for each in running for part in each))

    async def heartbeat(self, running: Sequence[tuple[str, int, int]]) -> list[Answer]:
        return [Answer(answer.decode()) for answer in await self.run(self.heartbeat_call(running))]

    def cancel_call(self, id: str, *, waiting: bool = False) -> Call:
        """Returns the value of a State. `waiting`: only if it waits."""
        return self.call("cancel", id, int(waiting))

    async def cancel(self, id: str, *, waiting: bool = False) -> State:
        """QUEUED: it waited, and is ended now. RUNNING: its runner was told, unless only what waits is to be ended."""
        return State((await self.run(self.cancel_call(id, waiting=waiting))).decode())

    async def preempt(self, id: str, attempt: int) -> Answer:
        return Answer((await self.run(self.call("preempt", id, attempt))).decode())

    def release_call(
        self, id: str, attempt: int, *, emitted: int, failed: bool = False, preempted: bool = False, avoid: str = ""
    ) -> Call:
        """Returns the value of a Released."""
        how = "failed" if failed else "preempted" if preempted else ""
        return self.call("release", rules.packed(), id, attempt, emitted, how, avoid)

    async def release(
        self, id: str, attempt: int, *, emitted: int, failed: bool = False, preempted: bool = False, avoid: str = ""
    ) -> Released:
        call = self.release_call(id, attempt, emitted=emitted, failed=failed, preempted=preempted, avoid=avoid)
        return Released((await self.run(call)).decode())

    def set_aside_call(self, id: str, attempt: int) -> Call:
        return self.call("set_aside", id, attempt)

    async def set_aside(self, id: str, attempt: int) -> bool:
        """One that has not begun is forgotten, and may be enqueued again; False when that attempt holds it no more."""
        return bool(await self.run(self.set_aside_call(id, attempt)))

    def reap_call(self, *, loading: bool) -> Call:
        """For `ended`."""
        return self.call("reap", rules.packed(), int(loading))

    async def reap(self, *, loading: bool) -> list[tuple[str, Outcome]]:
        return ended(await self.run(self.reap_call(loading=loading)))

    def settle_call(self, id: str, emitted: int = 0, length: int | None = None) -> Call:
        """`emitted`: tokens in all, where they are known; `length`: see `output_lengths.observed`.

        Returns 1 when the request was known.
        """
        return self.call("settle", rules.packed(), id, emitted, "" if length is None else length)

    def reopen_call(
        self,
        id: str,
        lane: str,
        tenant: str,
        *,
        attempt: int,
        replica: str,
        runner: str,
        input: int,
        kv: int,
        emitted: int,
        uncached: int,
        deadline: int,
        rank: float,
        weight: float = 1.0,
    ) -> Call:
        """Returns 1, or 0 when another process has entered the request meanwhile."""
        numbers = (input, kv, emitted, uncached, deadline, repr(rank))
        return self.call("reopen", rules.packed(), id, lane, tenant, weight, attempt, replica, runner, *numbers)

    async def knows(self, ids: Sequence[UUID]) -> list[bool]:
        async with self.client.pipeline(transaction=False) as pipe:
            for request_id in ids:
                pipe.exists(keys.place(self.prefix, request_id))
            return [bool(known) for known in await pipe.execute()]

    async def running(self) -> list[Running]:
        return [_running(raw) for raw in await self.run(self.call("running"))]

    def before_next_call(self, lane: str, tenant: str, coming: int) -> Call:
        """Returns how many of the lane would be served before one that the tenant brought now."""
        return self.call("ahead", rules.packed(), lane, tenant, coming)

    async def before_next(self, lane: str, tenant: str, coming: int) -> int:
        return int(await self.run(self.before_next_call(lane, tenant, coming)))

    async def place(self, id: str) -> Waiting | None:
        """None when the request does not wait."""
        state, ahead, preemptions = await self.run(self.call("place", id))
        return Waiting(int(ahead), int(preemptions)) if state == b"queued" else None


def peeked(answer: Sequence[Any], replicas: Sequence[str]) -> Peeked:
    """What `peek` returned. A replica that nobody has described takes no requests."""
    heads, counters, waited_for = answer
    held = {id: _counters(raw) for id, raw in zip(replicas, counters, strict=True)}
    return Peeked(tuple(_head(raw) for raw in heads), held, waited_for.decode())


def committed(answer: Sequence[Any]) -> Committed:
    return Committed(int(answer[0]), Refusal(answer[1].decode()))


def ended(answer: Sequence[Any]) -> list[tuple[str, Outcome]]:
    return [(id.decode(), Outcome(outcome.decode())) for id, outcome in answer]


def _head(raw: Sequence[Any]) -> Head:
    id, lane, tenant, input, uncached, kv, attempt, emitted, preemptions, rank, deadline, avoid, *marks = raw
    turn, failures, passing, lead = marks
    return Head(
        id=id.decode(),
        lane=lane.decode(),
        tenant=tenant.decode(),
        input=int(input),
        uncached=int(uncached),
        kv=int(kv),
        attempt=int(attempt),
        emitted=int(emitted),
        preemptions=int(preemptions),
        rank=float(rank),
        deadline=int(deadline),
        avoid=tuple(avoid.decode().split()),
        turn=bool(turn),
        failures=int(failures),
        passing=bool(passing),
        lead=int(lead),
    )


def _counters(raw: Sequence[bytes | None]) -> Counters:
    qpf, kv, n, capkv, capn, rate, open_, read = (value or b"0" for value in raw)
    return Counters(int(qpf), int(kv), int(n), int(capkv), int(capn), float(rate), open_ == b"1", int(read))


def _running(raw: Sequence[bytes | None]) -> Running:
    id, expiry, lane, tenant, attempt, replica, runner, committed_at, qpf, kv, emitted, preemptions, prefilled, read = (
        (value or b"0").decode() for value in raw
    )
    return Running(
        id=id,
        lane=lane,
        tenant=tenant,
        attempt=int(attempt),
        replica=replica,
        runner=runner,
        expiry=int(expiry),
        committed_at=int(committed_at),
        qpf=int(qpf),
        kv=int(kv),
        emitted=int(emitted),
        preemptions=int(preemptions),
        first_token=prefilled == "1" or int(emitted) > 0,
        read=int(read),
    )
