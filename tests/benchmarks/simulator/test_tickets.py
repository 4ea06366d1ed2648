"""What counts as idleness."""

from benchmarks.simulator.tickets import Audit
from inference.scheduling.answers import Head, Peeked


def head(id: str, tenant: str, lane: str = "paid", *, turn: bool = False) -> Head:
    return Head(id, lane, tenant, 1, 1, 1, 0, 0, 0, 0.0, 0, (), turn)


def looked(audit: Audit, *heads: Head, waited_for: str = "", stuck: str = "large") -> tuple[int, int, int]:
    audit.look(Peeked(heads, {}, waited_for), lambda each: each.id != stuck)
    return audit.idle, audit.held, audit.held_by_own


def test_it_counts_at_the_second_look_in_a_row() -> None:
    audit, waiting = Audit(), head("one", "acme", turn=True)
    assert looked(audit, waiting) == (0, 0, 0)
    assert looked(audit, waiting) == (1, 0, 0)
    assert looked(audit, waiting) == (2, 0, 0)
    assert looked(audit) == (2, 0, 0)
    assert looked(audit, waiting) == (2, 0, 0)
    assert audit.looks == 5


def test_a_runner_that_found_no_place_in_between_makes_it_a_new_wait() -> None:
    audit, waiting = Audit(), head("one", "acme", turn=True)
    looked(audit, waiting)
    audit.found_no_place("one")
    assert looked(audit, waiting) == (0, 0, 0)
    assert looked(audit, waiting) == (1, 0, 0)


def test_what_stands_behind_a_larger_one_is_told_by_whose_that_is() -> None:
    audit, large = Audit(), head("large", "acme", turn=True)
    for _ in range(2):
        own = looked(audit, large, head("small", "acme"))
    assert own == (0, 0, 1)
    for _ in range(2):
        other = looked(audit, large, head("tiny", "zeta"))
    assert other == (0, 1, 1)


def test_a_place_that_is_kept_for_a_lane_that_trails_is_not_idle() -> None:
    audit, waiting = Audit(), head("one", "acme", "free")
    for _ in range(2):
        assert looked(audit, waiting, waited_for="paid") == (0, 0, 0)
    for _ in range(2):
        held = looked(audit, waiting, waited_for="free")
    assert held == (0, 1, 0)
