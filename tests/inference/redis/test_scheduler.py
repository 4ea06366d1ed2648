"""The Lua operations against a plain Python model of the same rules: random operations, crashes, zombies, lost data."""

import os
from dataclasses import dataclass, field
from uuid import UUID

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from chatsite.ids import new_id
from chatsite.redis import Script, sync_client
from inference.redis import keys
from inference.redis import scheduler as operations

PREFIX = keys.scheduler("property-test")
LANES = ("enterprise", "paid", "free", "batch")
REPLICAS = {UUID(int=1): 2, UUID(int=2): 3}  # id -> slots
MAX_ATTEMPTS = 3
FAR_MS = 4_000_000_000_000
STEPS = int(os.environ.get("PROPERTY_STEPS", "60"))
EXAMPLES = int(os.environ.get("PROPERTY_EXAMPLES", "170"))  # x steps: some 10^4 operations


def call(script: Script, *args: object) -> object:
    return script.call_sync(sync_client(), PREFIX, *args)  # type: ignore[arg-type]


def forget_everything() -> None:
    client = sync_client()
    for key in client.scan_iter(f"{PREFIX.replace('[', '?')}*"):
        client.delete(key)


@dataclass
class Known:
    """What the model knows of one request."""

    lane: str
    state: str = "queued"
    attempt: int = 0
    failures: int = 0
    replica: UUID | None = None
    cancelled: bool = False
    outcome: str = ""
    order: int = 0
    holders: list[int] = field(default_factory=list)  # attempts that some runner, alive or zombie, thinks it holds


class SchedulerMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        forget_everything()
        self.known: dict[UUID, Known] = {}
        self.created: list[UUID] = []
        self.holders: dict[UUID, list[int]] = {}
        self.count = 0

    def queue(self, lane: str) -> list[UUID]:
        waiting = [
            (r.order, request_id) for request_id, r in self.known.items() if r.state == "queued" and r.lane == lane
        ]
        return [request_id for _, request_id in sorted(waiting)]

    def taken(self, replica: UUID) -> int:
        return sum(r.state == "running" and r.replica == replica for r in self.known.values())

    @rule(lane=st.sampled_from(LANES), tokens=st.integers(1, 5000))
    def enqueue(self, lane: str, tokens: int) -> None:
        request_id = new_id()
        assert call(operations.ENQUEUE, str(request_id), lane, "tenant", tokens, FAR_MS, 0, 0, "") == 1
        assert call(operations.ENQUEUE, str(request_id), lane, "tenant", tokens, FAR_MS, 0, 0, "") == 0
        self.count += 1
        self.known[request_id] = Known(lane, order=self.count)
        self.created.append(request_id)
        # Ranks are milliseconds: give each its own, so that the model's order is the queue's.
        sync_client().zadd(f"{PREFIX}:q:{lane}", {str(request_id): self.count})
        sync_client().hset(f"{PREFIX}:req:{request_id}", "rank", self.count)

    @rule(data=st.data(), replica=st.sampled_from(sorted(REPLICAS)))
    @precondition(lambda self: self.created)
    def commit(self, data: st.DataObject, replica: UUID) -> None:
        request_id = data.draw(st.sampled_from(self.created))
        answer = call(operations.COMMIT, str(request_id), str(replica), REPLICAS[replica], "runner", 100_000, 1)
        known = self.known.get(request_id)
        if known is None or known.state != "queued" or self.queue(known.lane)[0] != request_id:
            assert answer == 0
        elif self.taken(replica) >= REPLICAS[replica]:
            assert answer == -1
        else:
            known.attempt += 1
            assert answer == known.attempt
            known.state, known.replica = "running", replica
            self.holders.setdefault(request_id, []).append(known.attempt)

    @rule(data=st.data())
    @precondition(lambda self: self.holders)
    def heartbeat(self, data: st.DataObject) -> None:
        request_id = data.draw(st.sampled_from(sorted(self.holders)))
        attempt = data.draw(st.sampled_from(self.holders[request_id]))
        [answer] = call(operations.HEARTBEAT, 100_000, str(request_id), attempt, 5)  # type: ignore[misc]
        known = self.known.get(request_id)
        if known is None:
            assert answer == b"unknown"
        elif known.state != "running" or known.attempt != attempt:
            assert answer == b"stale"
        else:
            assert answer == (b"cancelled" if known.cancelled else b"ok")

    @rule(data=st.data())
    @precondition(lambda self: self.created)
    def cancel(self, data: st.DataObject) -> None:
        request_id = data.draw(st.sampled_from(self.created))
        answer = call(operations.CANCEL, str(request_id))
        known = self.known.get(request_id)
        if known is None:
            assert answer == b"unknown"
            return
        assert answer == known.state.encode()
        if known.state == "queued":
            known.state, known.outcome = "ended", "cancelled"
        known.cancelled = True

    @rule(data=st.data(), failed=st.booleans())
    @precondition(lambda self: self.holders)
    def release(self, data: st.DataObject, failed: bool) -> None:
        request_id = data.draw(st.sampled_from(sorted(self.holders)))
        attempt = data.draw(st.sampled_from(self.holders[request_id]))
        answer = call(operations.RELEASE, str(request_id), attempt, 3, int(failed), "", MAX_ATTEMPTS, 10_000_000)
        known = self.known.get(request_id)
        if known is None or known.state != "running" or known.attempt != attempt:
            assert answer == b"stale"
            return
        assert answer == self.give_back(known, failed).encode()

    def give_back(self, known: Known, failed: bool) -> str:
        known.failures += failed
        known.replica = None
        if known.cancelled:
            known.state, known.outcome = "ended", "cancelled"
        elif known.failures >= MAX_ATTEMPTS:
            known.state, known.outcome = "ended", "failed"
        else:
            known.state = "queued"
        return known.outcome or "queued"

    @rule(data=st.data())
    @precondition(lambda self: any(r.state == "running" for r in self.known.values()))
    def runner_dies_and_is_reaped(self, data: st.DataObject) -> None:
        running = sorted(request_id for request_id, r in self.known.items() if r.state == "running")
        request_id = data.draw(st.sampled_from(running))
        sync_client().zadd(f"{PREFIX}:lease", {str(request_id): 1})
        self.reap()

    @rule()
    def reap(self) -> None:
        for score, request_id in [(s, i) for i, s in sync_client().zrange(f"{PREFIX}:lease", 0, -1, withscores=True)]:
            if score == 1:
                self.give_back(self.known[UUID(request_id.decode())], True)
        ended = call(operations.REAP, MAX_ATTEMPTS, 0, 10_000_000)
        expected = {(str(i).encode(), r.outcome.encode()) for i, r in self.known.items() if r.state == "ended"}
        assert {(i, outcome) for i, outcome in ended} == expected  # type: ignore[attr-defined]

    @rule(data=st.data())
    @precondition(lambda self: self.created)
    def settle(self, data: st.DataObject) -> None:
        request_id = data.draw(st.sampled_from(self.created))
        assert call(operations.SETTLE, str(request_id)) == int(request_id in self.known)
        self.known.pop(request_id, None)

    @rule()
    def redis_is_lost(self) -> None:
        forget_everything()
        self.known.clear()

    @rule(data=st.data(), replica=st.sampled_from(sorted(REPLICAS)))
    @precondition(lambda self: self.holders)
    def reopen(self, data: st.DataObject, replica: UUID) -> None:
        request_id = data.draw(st.sampled_from(sorted(self.holders)))
        attempt = self.holders[request_id][-1]
        known = self.known.get(request_id)
        args = (str(request_id), "free", "tenant", attempt, 5, str(replica), "runner", 100_000, FAR_MS, 7)
        answer = call(operations.REOPEN, *args)
        if known is None:
            assert answer == 1
            self.count += 1
            self.known[request_id] = Known("free", "running", attempt, replica=replica, order=FAR_MS + self.count)
            sync_client().hset(f"{PREFIX}:req:{request_id}", "rank", FAR_MS + self.count)
        else:
            assert answer == int(known.state == "running" and known.attempt == attempt)

    @invariant()
    def counters_equal_the_live_leases(self) -> None:
        client = sync_client()
        leases = {UUID(request_id.decode()) for request_id in client.zrange(f"{PREFIX}:lease", 0, -1)}
        assert leases == {request_id for request_id, r in self.known.items() if r.state == "running"}
        for replica in REPLICAS:
            assert int(client.hget(f"{PREFIX}:rep:{replica}", "n") or 0) == self.taken(replica)

    @invariant()
    def queues_hold_what_waits_in_order(self) -> None:
        for lane in LANES:
            queued = [UUID(raw.decode()) for raw in sync_client().zrange(f"{PREFIX}:q:{lane}", 0, -1)]
            assert queued == self.queue(lane)

    @invariant()
    def nothing_is_left_behind(self) -> None:
        names = {key.decode().rpartition(":")[2] for key in sync_client().scan_iter(f"{PREFIX}:req:*")}
        assert names == {str(request_id) for request_id in self.known}
        deadlines = {UUID(raw.decode()) for raw in sync_client().zrange(f"{PREFIX}:deadline", 0, -1)}
        assert deadlines == {request_id for request_id, r in self.known.items() if r.state == "queued"}


SchedulerMachine.TestCase.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestSchedulerOperations = SchedulerMachine.TestCase


@pytest.fixture(autouse=True)
def clean() -> None:
    forget_everything()


def test_a_wait_that_is_over_ends_as_expired_but_not_while_the_model_loads() -> None:
    request_id = new_id()
    call(operations.ENQUEUE, str(request_id), "free", "tenant", 5, 1, 0, 0, "")
    assert call(operations.REAP, MAX_ATTEMPTS, 1, 10_000) == []
    client = sync_client()
    assert client.zscore(f"{PREFIX}:deadline", str(request_id)) > 1
    client.zadd(f"{PREFIX}:deadline", {str(request_id): 1})
    assert call(operations.REAP, MAX_ATTEMPTS, 0, 10_000) == [[str(request_id).encode(), b"expired"]]
    assert client.zcard(f"{PREFIX}:q:free") == 0


def test_lanes_share_by_weight_and_idling_earns_no_credit() -> None:
    replica = str(UUID(int=9))

    def serve_next() -> str:
        heads, _ = call(operations.PEEK, 1, replica)  # type: ignore[misc]
        request_id, lane = heads[0][0].decode(), heads[0][1].decode()
        weight = {"paid": 30, "free": 15}[lane]
        assert call(operations.COMMIT, request_id, replica, 1000, "runner", 100_000, 300 / weight) > 0  # type: ignore[operator]
        call(operations.SETTLE, request_id)
        return lane

    for _ in range(90):
        call(operations.ENQUEUE, str(new_id()), "paid", "a", 300, FAR_MS, 0, 0, "")
    assert {serve_next() for _ in range(30)} == {"paid"}
    for _ in range(60):
        call(operations.ENQUEUE, str(new_id()), "free", "b", 300, FAR_MS, 0, 0, "")
    served = [serve_next() for _ in range(60)]
    assert abs(served.count("paid") - 40) <= 1  # 30 : 15, from now on; the free lane gets nothing for having been idle
    assert served[:3].count("free") <= 2
