"""The Lua operations against the plain Python of the same rules, step by step: crashes, zombies, lost data."""

import os
import random
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from chatsite.redis import sync_client
from inference.redis import rules
from inference.scheduling.settings import LANES, SchedulerSettings
from tests.inference.redis.twin import LuaBook, Twin
from tests.inference.scheduling.test_book_properties import BookMachine, all_is_zero_after, random_step
from tests.inference.scheduling.world import World

STORIES = int(os.environ.get("PROPERTY_STORIES", "40"))
STEPS = 250
CHECKED_EVERY = 5


@pytest.fixture(autouse=True)
def rules_as_they_were() -> Iterator[None]:
    yield
    rules.use(SchedulerSettings())


class TwinMachine(BookMachine):
    def new_world(self) -> World:
        return World(Twin)


class TestLuaDoesWhatTheBookSays(TwinMachine.TestCase):
    settings = settings(
        max_examples=15, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )


def run_stories(stories: int) -> set[str]:
    ends: set[str] = set()
    for seed in range(stories):
        rng, world = random.Random(seed), World(Twin)
        for step in range(STEPS):
            random_step(world, rng)  # both must answer the same; all that they know is compared now and then
            if step % CHECKED_EVERY == 0:
                world.check()
        ends |= {truth.terminal for truth in world.truths.values()}
        all_is_zero_after(world)
        nothing_is_left_behind(world)
    return ends


def nothing_is_left_behind(world: World) -> None:
    """After everything is settled: what replicas hold, clocks, and debts that the floor has not caught up with."""
    kept = ("rep:", "owing:", "lastvt")
    assert {key for key in world.book.lua.left() if not key.startswith(kept)} <= {"idle", "len", "run", "pace", "now"}


def test_s26_lua_does_what_the_book_says_through_crashes_zombies_and_redis_loss() -> None:
    ends = run_stories(STORIES)
    assert ends >= {"succeeded", "cancelled", "failed", "expired"}  # the stories get everywhere


@pytest.mark.long
def test_lua_does_what_the_book_says_in_a_hundred_thousand_steps() -> None:
    run_stories(400)


def test_what_nobody_described_takes_no_requests() -> None:
    book = LuaBook()
    book.enqueue(1, "one", "free", "acme", input=5, uncached=5, kv=9, deadline=9, peak_rate=0)
    assert book.commit(2, "one", "nowhere", "runner", uncached=5, attempt=0).refusal == "replica"
    [counters] = book.peek(2, 1, ["nowhere"]).replicas.values()
    assert (counters.n, counters.capn, counters.open) == (0, 0, False)


def test_lua_passes_the_gate_for_what_is_cached_and_counts_what_is_read_as_the_book_does() -> None:
    book = Twin()
    book.describe(1, "a", capn=100, capkv=0, peak_rate=10_000.0)
    for tenant, lane in (("first", "paid"), ("next", "paid"), ("other", "free")):
        book.enqueue(1, tenant, lane, tenant, input=30_000, uncached=0, kv=30_100, deadline=9, peak_rate=0.0)
    assert book.commit(2, "first", "a", "runner", uncached=15_000, attempt=0).attempt == 1
    assert book.commit(2, "next", "a", "runner", uncached=15_001, attempt=0).refusal == "gate"
    assert book.commit(2, "other", "a", "runner", uncached=5000, attempt=0).refusal == "gate"
    assert book.commit(2, "next", "a", "runner", uncached=15_000, attempt=0).attempt == 1
    for _ in range(2):
        book.first_token(3, "first", 1)
        assert book.peek(3, 0, ["a"]).replicas["a"].read == 30_000
    book.heartbeat(4, [("next", 1, 1)])
    assert book.peek(4, 0, ["a"]).replicas["a"].read == 60_000
    book.release(5, "next", 1, emitted=1)
    book.settle(5, "first")
    assert book.peek(5, 0, ["a"]).replicas["a"].read == 0


@pytest.mark.parametrize("weight", [1.0, 4.0])
@pytest.mark.parametrize(("wtok", "may"), [(16_384, True), (16_385, False)])
def test_lua_lets_pass_who_is_near_the_least_served_while_that_ones_first_is_young_as_the_book_does(
    weight: float, wtok: int, may: bool
) -> None:
    book = Twin()
    book.describe(1, "a", capn=100, capkv=0, peak_rate=100_000.0)
    said = {"input": 9, "uncached": 9, "kv": 9, "deadline": 10**6, "peak_rate": 0.0}
    book.enqueue(1, "least", "paid", "other", rank=1000.0, **said)
    for number in range(3):
        book.enqueue(1, f"r{number}", "paid", "acme", weight=weight, rank=1500.0 + number, **said)
    assert book.commit(1, "r0", "a", "runner", uncached=wtok, attempt=0).attempt == 1

    def passing(now: int) -> list[str]:
        return [head.id for head in book.peek(now, 9).heads if head.passing]

    assert passing(5999) == (["r1", "r2"] if may else [])
    assert passing(6000) == []
    assert book.commit(5999, "r2", "a", "runner", uncached=9, attempt=0).refusal == "turn"
    assert book.commit(6000, "r2", "a", "runner", uncached=9, attempt=0, passing=True).refusal == "turn"
    assert book.commit(5999, "r2", "a", "runner", uncached=9, attempt=0, passing=True).attempt == int(may)


def test_a_change_of_the_rules_holds_from_the_next_operation_on() -> None:
    book = LuaBook()
    book.describe(1, "a", capn=10, capkv=0, peak_rate=1000.0)
    for name in ("one", "two"):
        book.enqueue(1, name, "free", "acme", input=200, uncached=200, kv=300, deadline=9, peak_rate=0)
    assert book.commit(2, "one", "a", "runner", uncached=200, attempt=0).attempt == 1
    assert book.commit(2, "two", "a", "runner", uncached=200, attempt=0).refusal == "gate"  # 0.25 s x 1000/s
    rules.use(SchedulerSettings.from_dict({"lanes": {"free": {"gate_seconds": 0.4}}}))
    assert book.commit(2, "two", "a", "runner", uncached=200, attempt=0).attempt == 1


def test_the_clock_jumps_and_leases_still_end() -> None:
    """Forward they end early: what ran waits again, once, and what its old runner does has no effect."""
    book, hour = Twin(), 3_600_000
    start = 10 * hour
    book.describe(start, "a", capn=10, capkv=0, peak_rate=1000.0)
    for name in ("one", "two"):
        said = {"input": 9, "uncached": 9, "kv": 9, "deadline": start + 30_000, "peak_rate": 0.0}
        book.enqueue(start, name, "paid", "acme", **said)
        assert book.commit(start, name, "a", "runner", uncached=9, attempt=0).attempt == 1
    back = start - hour
    assert book.heartbeat(back, [("one", 1, 3)]) == ("ok",)  # the runner of the other is dead
    book.reap(back)
    assert {lease.expiry for lease in book.running()} == {back + 7000}
    assert book.heartbeat(back + 5000, [("one", 1, 4)]) == ("ok",)
    book.reap(back + 7001)
    assert [lease.id for lease in book.running()] == ["one"] and [head.id for head in book.peek(back, 9).heads] == [
        "two"
    ]
    forward = start + hour
    assert book.reap(forward) == (("two", "expired"),)  # it waited
    [head] = book.peek(forward, 9).heads
    assert (head.id, head.failures, head.attempt) == ("one", 1, 1) and not book.running()
    assert book.commit(forward, "one", "a", "another", uncached=9, attempt=1).attempt == 2
    assert book.heartbeat(forward, [("one", 1, 9)]) == ("stale",)
    assert book.settle(forward, "one") and book.settle(forward, "two")
    [counters] = book.peek(forward, 9, ["a"]).replicas.values()
    assert (counters.qpf, counters.kv, counters.n) == (0, 0, 0)


def test_one_heartbeat_renews_more_leases_than_lua_passes_arguments() -> None:
    book, many = Twin(), 5000
    book.describe(1, "a", capn=2 * many, capkv=0, peak_rate=1000.0)
    for number in range(many):
        said = {"input": 9, "uncached": 9, "kv": 9, "deadline": 9, "peak_rate": 0.0, "weight": 1.0 + number % 3}
        book.enqueue(1, f"r{number}", LANES[number % 4], f"tenant-{number % 7}", **said)
        assert book.commit(1, f"r{number}", "a", "runner", uncached=0, attempt=0).attempt == 1
    answers = book.heartbeat(2000, [(f"r{number}", 1, number % 50) for number in range(many)])
    assert set(answers) == {"ok"}
    assert {lease.expiry for lease in book.running()} == {9000}
    book.floors()


def test_operations_touch_the_keys_of_one_slot_only() -> None:
    world = World(Twin)
    rng = random.Random(3)
    for _ in range(100):
        random_step(world, rng)
    prefix = world.book.lua.prefix
    assert "{" in prefix
    assert {key for key in sync_client().scan_iter("*property-test*") if not key.startswith(prefix.encode())} == set()
