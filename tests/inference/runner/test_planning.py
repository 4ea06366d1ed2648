"""Where heads go, and how what has failed waits for its share."""

import random
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from inference.runner import planning
from inference.runner.placement import Placement
from inference.runner.planning import LONGEST_HELD, Plan, Retries
from inference.runner.pool import Pool
from inference.scheduling.answers import Counters, Head, Peeked
from inference.scheduling.health import Breaker, usable
from inference.scheduling.routing import Load
from inference.scheduling.settings import SchedulerSettings

OPEN = Counters(capn=8, peak_rate=1000.0, open=True)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(planning, "time", made)
    return made


def pool(*replicas: str, trying: Mapping[str, int] | None = None) -> Pool:
    """`trying`: those that are half open, and how many requests are under way there."""
    tried = trying or {}

    def member(id: str) -> Any:
        def load(held: Counters, *, usable: bool) -> Load:
            return Load(id, held.qpf, held.kv, held.n, held.capkv, held.capn, held.peak_rate, usable=usable)

        return SimpleNamespace(id=id, load=load, breaker=Breaker(trial=id in tried))

    members = {id: member(id) for id in replicas}

    def taking(coming: Mapping[str, int] | None = None) -> set[str]:
        held = {id: (each.breaker, tried.get(id, 0) + (coming or {}).get(id, 0)) for id, each in members.items()}
        return usable(SchedulerSettings(), held, 0.0)

    return cast(Pool, SimpleNamespace(members=members, usable=taking))


def head(
    id: str,
    tenant: str,
    lane: str = "paid",
    failures: int = 0,
    input: int = 100,
    turn: bool = True,
    passing: bool = False,
    avoid: tuple[str, ...] = (),
) -> Head:
    return Head(id, lane, tenant, input, input, input, failures, 0, 0, 0.0, 0, avoid, turn, failures, passing)


def plan(
    retries: Retries,
    *heads: Head,
    replicas: Mapping[str, Counters] | None = None,
    trying: Mapping[str, int] | None = None,
) -> Plan:
    held = replicas if replicas is not None else {"a": OPEN}
    peeked = Peeked(tuple(heads), dict(held), "")
    return Plan(pool(*held, trying=trying), peeked, {each.id: {} for each in heads}, retries, random.Random(1))


def planned(retries: Retries, *heads: Head, replicas: Mapping[str, Counters] | None = None) -> list[str]:
    return [each.head.id for each in plan(retries, *heads, replicas=replicas).planned]


def spent(retries: Retries) -> None:
    """The requests that may always be tried again were."""
    for number in range(3):
        retries.started(head(f"spent{number}", "x", failures=1, input=1000))


def test_what_failed_and_is_beyond_its_share_lets_others_of_its_lane_go_first(clock: Clock) -> None:
    retries = Retries()
    spent(retries)
    again, fresh = head("again", "acme", failures=1), head("fresh", "zeta")
    assert planned(retries, again, fresh) == ["fresh"]
    assert planned(retries, again) == ["again"]  # nobody else: a place that stays empty helps nobody


def test_within_its_share_it_goes_at_its_rank(clock: Clock) -> None:
    retries = Retries()
    again, fresh = head("again", "acme", failures=1), head("fresh", "zeta")
    assert planned(retries, again, fresh) == ["again", "fresh"]
    spent(retries)
    for number in range(40):
        retries.started(head(f"first{number}", "x", input=1000))
    assert planned(retries, again, fresh) == ["again", "fresh"]  # 3,100 of 40,000 tokens
    clock.now += 11
    spent(retries)
    assert planned(retries, again, fresh) == ["fresh"]  # what was started longer ago counts no more


def test_several_in_one_look_count_together(clock: Clock) -> None:
    retries = Retries()
    again = [head(f"again{number}", f"tenant{number}", failures=1) for number in range(5)]
    fresh = head("fresh", "zeta")
    assert planned(retries, *again, fresh) == ["again0", "again1", "again2", "fresh"]


def test_nobody_is_held_back_for_long(clock: Clock) -> None:
    retries = Retries()
    spent(retries)
    again, fresh = head("again", "acme", failures=1), head("fresh", "zeta")
    assert planned(retries, again, fresh) == ["fresh"]
    clock.now += LONGEST_HELD - 0.1
    spent(retries)
    assert planned(retries, again, fresh) == ["fresh"]
    clock.now += 0.1
    assert planned(retries, again, fresh) == ["again", "fresh"]


def test_lesser_lanes_do_not_go_ahead_of_what_is_held_back(clock: Clock) -> None:
    retries = Retries()
    spent(retries)
    again, free = head("again", "acme", "enterprise", failures=1), head("free", "zeta", "free")
    one_place = {"a": Counters(capn=1, peak_rate=1000.0, open=True)}
    assert planned(retries, again, free, replicas=one_place) == ["again"]


def test_preempted_and_handed_over_ones_are_no_retries(clock: Clock) -> None:
    retries = Retries()
    spent(retries)
    moved = Head("moved", "paid", "acme", 100, 100, 100, 2, 50, 1, 0.0, 0, (), True, 0)
    assert planned(retries, moved, head("fresh", "zeta")) == ["moved", "fresh"]


def test_later_requests_of_a_tenant_wait_for_its_first(clock: Clock) -> None:
    retries = Retries()
    spent(retries)
    again, later = head("again", "acme", failures=1), head("later", "acme", turn=False)
    assert planned(retries, again, later, head("fresh", "zeta")) == ["fresh"]


BUSY = {"a": Counters(qpf=900, n=1, capn=8, peak_rate=1000.0, open=True)}  # the gate takes 100 tokens more


def test_what_may_pass_starts_where_those_whose_turn_it_is_find_no_place() -> None:
    large, own = head("large", "acme", input=500), head("own", "acme", input=60, turn=False, passing=True)
    other = head("other", "zeta", input=30, turn=False, passing=True)
    made = plan(Retries(), large, own, other, replicas=BUSY)
    assert [(each.head.id, each.passing) for each in made.planned] == [("own", True), ("other", True)]
    assert [each.id for each in made.stuck] == ["large"]


def test_who_may_not_pass_waits_and_who_finds_no_place_either_is_not_stuck() -> None:
    large, own = head("large", "acme", input=500), head("own", "acme", input=60, turn=False)
    other = head("other", "zeta", input=300, turn=False, passing=True)
    made = plan(Retries(), large, own, other, replicas=BUSY)
    assert not made.planned
    assert [each.id for each in made.stuck] == ["large"]


def test_nobody_passes_where_all_whose_turn_it_is_have_a_place() -> None:
    first, second = head("first", "acme", input=10), head("second", "acme", input=10, turn=False, passing=True)
    other = head("other", "zeta", input=10, turn=False, passing=True)
    made = plan(Retries(), first, second, other, replicas=BUSY)
    assert [(each.head.id, each.passing) for each in made.planned] == [("first", False), ("second", False)]


def test_a_place_in_one_lane_is_not_passed_for_what_is_stuck_in_another() -> None:
    large, free = head("large", "acme", "enterprise", input=500), head("free", "zeta", "paid", turn=False, passing=True)
    assert [each.id for each in plan(Retries(), large, free, replicas=BUSY).stuck] == ["large"]
    assert planned(Retries(), large, free, replicas=BUSY) == []


BOTH = {"a": OPEN, "b": Counters(qpf=100, n=1, capn=8, peak_rate=1000.0, open=True)}


def where(made: Plan) -> list[str]:
    return [each.member.id for each in made.planned]


def test_s28_one_look_sends_a_single_request_to_a_half_open_replica() -> None:
    heads = [head(f"r{number}", f"tenant{number}", input=10) for number in range(4)]
    assert where(plan(Retries(), *heads, replicas=BOTH, trying={"a": 0})) == ["a", "b", "b", "b"]
    assert where(plan(Retries(), *heads, replicas=BOTH, trying={"a": 1})) == ["b"] * 4


FULL = {"a": OPEN, "b": Counters(n=8, capn=8, peak_rate=1000.0, open=True), "c": OPEN}


def test_what_has_failed_waits_for_a_replica_that_did_not_fail_it_but_not_for_long(clock: Clock) -> None:
    retries = Retries()
    again = head("again", "acme", failures=2, avoid=("a", "c"))
    made = plan(retries, again, replicas=FULL)
    assert (made.planned, made.stuck) == ([], [again])
    clock.now += 7.9
    assert where(plan(retries, again, replicas=FULL)) == []
    assert where(plan(retries, again, head("fresh", "zeta"), replicas=FULL)) == ["a"]  # others need not wait
    clock.now += 0.1
    assert where(plan(retries, again, replicas=FULL)) == ["a"]


def test_what_failed_everywhere_does_not_wait(clock: Clock) -> None:
    again = head("again", "acme", failures=2, avoid=("a", "b", "c"))
    assert where(plan(Retries(), again, replicas=FULL)) == ["a"]


def test_each_failure_has_its_own_wait(clock: Clock) -> None:
    retries = Retries()
    again = head("again", "acme", failures=1, avoid=("a", "c"))
    plan(retries, again, replicas=FULL)
    clock.now += 8
    retries.started(again)
    assert where(plan(retries, again, replicas=FULL)) == []


def test_an_attempt_s_record_has_its_tenant_s_time(clock: Clock) -> None:
    ahead = replace(head("one", "acme"), lead=4096)
    [placed] = plan(Retries(), ahead).planned
    record = Placement(placed.choice, (), None, placed.before).record(placed.head, 1)
    assert (record["replica"], record["lead"]) == ("a", 4096)
    assert "acme" not in str(record)
