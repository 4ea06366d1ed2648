import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.scheduling.answers import Head
from inference.scheduling.routing import Candidate, Choice, Demand, Load, Why, assess, choose, with_best_match_first
from inference.scheduling.settings import LANES, SchedulerSettings, ScoreSettings

SETTINGS = SchedulerSettings(score=ScoreSettings(exploration=0.0))
DEFAULTS = SchedulerSettings()


def load(id: str = "a", **given: Any) -> Load:
    return Load(**{"id": id, "qpf": 0, "kv": 0, "n": 0, "capkv": 100_000, "capn": 10, "peak_rate": 10_000.0, **given})


def pick(demand: Demand, *loads: Load, settings: SchedulerSettings = SETTINGS, **matches: int) -> Choice:
    return choose(settings, demand, loads, matches, random.Random(1))


CHAT = Demand("paid", 4000, 200)


# -------------------------------------------------------------------------------------------------------- score


def test_the_score_is_seconds_of_prefill_and_penalties_for_kv_and_slots() -> None:
    candidate = assess(SETTINGS, Demand("paid", 4000, 1000), load(qpf=1000, kv=80_000, n=5, health=0.5), 3000)
    assert candidate.prefill == 2000 / 5000
    assert candidate.kv == 0.85
    assert candidate.score == pytest.approx(0.4 + 0.5 * 0.05 / 0.2 + 1.0 * 0.5)
    assert (candidate.match, candidate.uncached, candidate.refusal) == (3000, 1000, "")


def test_the_last_token_is_never_cached() -> None:
    candidate = assess(SETTINGS, CHAT, load(), 9999)
    assert (candidate.match, candidate.uncached) == (4000, 1)


def test_stale_metrics_raise_the_ledger_in_the_score_and_close_no_gate() -> None:
    busy = load(qpf=4000, kv=50_000, n=9, metrics_age=2.1)
    stale = assess(SETTINGS, CHAT, busy, 0)
    assert stale.prefill == pytest.approx((1.2 * 4000 + 4000) / 10_000)
    assert stale.score > assess(SETTINGS, CHAT, replace(busy, metrics_age=2.0), 0).score
    assert not stale.suspect
    assert stale.refusal == ""


def test_what_is_not_known_does_not_count() -> None:
    candidate = assess(SETTINGS, CHAT, load(capkv=0, peak_rate=0.0), 0)
    assert (candidate.prefill, candidate.kv, candidate.score, candidate.refusal) == (0, 0, 0, "")


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [({"usable": False}, "replica"), ({"n": 10}, "slots"), ({"n": 1, "kv": 99_000}, "kv"), ({"qpf": 6001}, "gate")],
)
def test_a_replica_that_cannot_start_it_says_why_and_is_not_chosen(changes: dict[str, Any], refusal: str) -> None:
    choice = pick(CHAT, load("a", **changes))
    assert (choice.id, choice.why) == ("", Why.NONE)
    assert [candidate.refusal for candidate in choice.candidates] == [refusal]


# ------------------------------------------------------------------------------------------------------- choice


def test_without_a_match_the_lowest_score_wins_and_ties_are_settled() -> None:
    assert pick(CHAT, load("a", qpf=100), load("b")).id == "b"
    choice = pick(CHAT, load("b"), load("a"))
    assert (choice.id, choice.uncached, choice.why) == ("a", 4000, Why.BEST)


def test_s30_it_stays_where_its_prefix_is_until_that_one_trails_by_more_than_its_patience() -> None:
    assert pick(CHAT, load("a", n=5), load("b", n=3), a=3200).why is Why.STICKY
    home = load("a", qpf=6000, n=2)
    choice = pick(CHAT, home, load("b"), a=3200)
    assert (choice.id, choice.why) == ("b", Why.LEFT)  # 0.74 s against 0.4 s, and 0.25 s is the most
    assert pick(replace(CHAT, lane="batch"), replace(home, qpf=0), load("b"), a=3200).why is Why.STICKY


def test_a_short_match_makes_no_home_and_2048_tokens_of_a_long_prompt_do() -> None:
    assert pick(CHAT, load("a", n=9), load("b"), a=2047).id == "b"
    assert pick(CHAT, load("a", n=3), load("b", n=2), a=2048).why is Why.STICKY
    assert pick(Demand("paid", 100, 100), load("a", n=3), load("b", n=2), a=80).why is Why.STICKY
    assert pick(Demand("paid", 100, 100), load("a", n=3), load("b", n=2), a=79).id == "b"


def test_s30_it_leaves_a_home_that_has_more_than_its_part_of_all_requests() -> None:
    """One in 256 slots costs next to nothing in the score, and ten of them make streams slower."""
    others = [load(id, n=8, capn=256) for id in ("b", "c", "d")]
    for requests, why in ((12, Why.STICKY), (13, Why.LEFT)):
        assert pick(CHAT, load("a", n=requests, capn=256), *others, a=4000).why is why
    full = [replace(other, n=256) for other in others]
    assert pick(CHAT, load("a", n=13, capn=256), *full, a=4000).id == "a"
    assert pick(CHAT, load("a", n=1, capn=256), load("b", capn=256), a=4000).why is Why.STICKY  # a few say nothing


def test_s30_a_long_prompt_joins_the_queue_of_its_home_where_that_is_sooner_than_to_read_it_anew() -> None:
    long = Demand("paid", 40_000, 500)  # 4 s anywhere else
    home = load("a", qpf=30_000, capkv=0)
    assert pick(long, home, load("b", capkv=0), a=38_000).why is Why.STICKY  # 3.2 s
    assert pick(long, replace(home, qpf=38_001), load("b", capkv=0), a=38_000).why is Why.LEFT
    assert pick(replace(long, lane="free"), home, load("b", capkv=0), a=38_000).id == "b"


def test_s30_of_several_homes_the_best_one() -> None:
    assert pick(CHAT, load("a", n=5), load("b", n=2), load("c"), a=4000, b=4000).id == "b"


@pytest.mark.parametrize("changes", [{"usage": 0.93}, {"preempted_age": 9.0}])
def test_it_leaves_a_home_whose_kv_is_full_unless_all_are_full(changes: dict[str, float]) -> None:
    choice = pick(CHAT, load("a", **changes), load("b", n=9), a=4000)
    assert (choice.id, choice.why) == ("b", Why.LEFT)
    assert pick(CHAT, load("a", **changes), load("b", **changes), a=4000).why is Why.STICKY


def test_it_leaves_when_home_would_miss_the_objective_and_another_would_not() -> None:
    home, other = load("a", qpf=1500, peak_rate=8000.0, health=0.5), load("b", peak_rate=20_000.0)  # 0.4 s and 0.2 s
    demand = replace(CHAT, lane="free")
    assert pick(demand, home, other, a=3900).why is Why.STICKY
    assert pick(replace(demand, waited=4.7), home, other, a=3900).why is Why.LEFT
    assert pick(replace(demand, waited=9.0), home, other, a=3900).why is Why.STICKY  # both are late


def test_a_home_that_drains_or_is_full_is_left() -> None:
    for changes in ({"usable": False}, {"n": 10}):
        choice = pick(CHAT, load("a", **changes), load("b"), a=4000)
        assert (choice.id, choice.why) == ("b", Why.LEFT)


def test_one_in_a_hundred_goes_elsewhere_to_explore() -> None:
    rng = random.Random(7)
    choices = [choose(DEFAULTS, CHAT, (load("a"), load("b")), {"a": 4000}, rng) for _ in range(5000)]
    explored = [choice for choice in choices if choice.why is Why.EXPLORED]
    assert {choice.id for choice in explored} == {"b"}
    assert 25 <= len(explored) <= 80


def test_those_that_failed_it_are_not_gone_back_to_while_another_is_there_though_full() -> None:
    avoiding = replace(CHAT, avoid=("a", "c"))
    assert pick(avoiding, load("a"), load("b", n=9), load("c"), a=4000).id == "b"
    assert pick(avoiding, load("a"), load("b", n=10), load("c")).why is Why.NONE
    assert pick(avoiding, load("a"), load("b", qpf=10_000), load("c")).why is Why.NONE
    assert pick(avoiding, load("a"), load("b", usable=False), load("c", n=1)).id == "a"
    assert pick(avoiding, load("a"), load("b", n=10, metrics_age=11.0), load("c", n=1)).id == "a"
    assert pick(avoiding, load("a"), load("b", metrics_age=11.0), load("c")).id == "b"
    assert pick(avoiding, load("a"), load("b", n=10), load("d", metrics_age=11.0)).why is Why.NONE


def test_a_suspect_is_the_last_choice_but_one() -> None:
    for changes in ({"metrics_age": 11.0}, {"failures": 5}):
        assert pick(CHAT, load("a", **changes), load("b", n=9)).id == "b"
        assert pick(CHAT, load("a", **changes), load("b", n=10)).id == "a"


loads = st.lists(
    st.builds(
        Load,
        id=st.sampled_from("abcd"),
        qpf=st.integers(0, 20_000),
        kv=st.integers(0, 120_000),
        n=st.integers(0, 12),
        capkv=st.integers(0, 100_000),
        capn=st.integers(0, 12),
        peak_rate=st.floats(0, 50_000),
        health=st.floats(0.2, 1),
        usage=st.floats(0, 1),
        metrics_age=st.floats(0, 20),
        usable=st.booleans(),
    ),
    unique_by=lambda each: each.id,
    max_size=4,
)


@given(
    loads,
    st.builds(Demand, st.sampled_from(LANES), st.integers(1, 50_000), st.integers(0, 5000), st.floats(0, 90)),
    st.dictionaries(st.sampled_from("abcd"), st.integers(0, 60_000)),
    st.randoms(use_true_random=False),
)
def test_invariant_2_a_replica_is_chosen_exactly_when_one_can_start_it(
    loads: list[Load], demand: Demand, matches: dict[str, int], rng: random.Random
) -> None:
    choice = choose(DEFAULTS, demand, loads, matches, rng)
    can: dict[str, Candidate] = {each.id: each for each in choice.candidates if not each.refusal}
    assert (choice.id in can) if can else (choice.id == "")
    assert not choice.id or choice.uncached == can[choice.id].uncached


# -------------------------------------------------------------------------------------------------- order of heads


def head(id: str, lane: str, turn: bool) -> Head:
    return Head(id, lane, "t", 1, 1, 1, 0, 0, 0, 0.0, 0, (), turn)


def test_among_equals_the_best_match_goes_first_and_the_others_follow_in_their_order() -> None:
    heads = [head("f", "free", True), head("p", "paid", True), head("q", "paid", True)]
    heads += [head("r", "paid", False), head("s", "paid", False)]
    ordered = with_best_match_first(heads, {"q": 0.9, "r": 0.5, "s": 1.0, "p": 0.1})
    assert [each.id for each in ordered] == ["f", "q", "p", "r", "s"]


def test_what_is_late_is_passed_by_no_better_match_and_passes_nobody_itself() -> None:
    """Else who has nothing cached waits until all who have are a quantum ahead."""
    ranks = [("a", 900.0), ("b", 100.0), ("c", 900.0), ("d", 900.0)]
    heads = [replace(head(id, "paid", True), rank=rank) for id, rank in ranks]
    matches = {"a": 0.1, "c": 0.5, "d": 0.9}
    assert [each.id for each in with_best_match_first(heads, matches, late=10.0)] == ["d", "c", "a", "b"]
    assert [each.id for each in with_best_match_first(heads, matches, late=500.0)] == ["a", "b", "d", "c"]
    assert [each.id for each in with_best_match_first(heads, {}, late=500.0)] == ["a", "b", "c", "d"]
