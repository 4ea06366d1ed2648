import random
from dataclasses import replace

import pytest

from inference.scheduling.admission import Action, RetryBudget, admit, shed_probability, should_preempt, victim
from inference.scheduling.answers import Running
from inference.scheduling.prediction import Prediction
from inference.scheduling.settings import SchedulerSettings

SETTINGS = SchedulerSettings()


def predicted(p90: float, *, trusted: bool = True, expected: float | None = None) -> Prediction:
    return Prediction(p90, p90 if expected is None else expected, p90, trusted)


def actions(lane: str, prediction: Prediction | None, *, waiting: int = 0) -> dict[Action, float]:
    rng = random.Random(2)
    results = [admit(SETTINGS, lane, prediction, waiting, rng).action for _ in range(2000)]
    return {action: results.count(action) / len(results) for action in set(results)}


# ------------------------------------------------------------------------------------------------------- letting in


def test_each_lane_sheds_by_its_own_curve() -> None:
    assert [shed_probability(SETTINGS, "free", x) for x in (None, 0.7, 1.0, 1.3, 9.0)] == [
        0,
        0,
        pytest.approx(0.25),
        pytest.approx(1),
        1,
    ]
    assert [shed_probability(SETTINGS, "paid", x) for x in (0.9, 1.0, 1.5, 2.0, 9.0)] == [0, 0, 0.25, 1, 1]
    assert shed_probability(SETTINGS, "enterprise", 9.0) == shed_probability(SETTINGS, "batch", 9.0) == 0


def test_below_seven_tenths_of_the_objective_everybody_waits() -> None:
    assert actions("free", predicted(3.5)) == {Action.QUEUE: 1}


def test_beyond_a_part_is_shed() -> None:
    shares = actions("free", predicted(5.0))
    assert shares[Action.SHED] == pytest.approx(0.25, abs=0.03)
    assert actions("enterprise", predicted(50.0)) == {Action.QUEUE: 1}
    assert actions("batch", predicted(5000.0)) == {Action.QUEUE: 1}


def test_nothing_is_shed_by_a_prediction_without_samples_but_a_full_queue_is_full() -> None:
    for prediction in (None, predicted(500.0, trusted=False)):
        assert actions("free", prediction) == {Action.QUEUE: 1}
        assert actions("free", prediction, waiting=10_000) == {Action.SHED: 1}
        assert actions("enterprise", prediction, waiting=10_000) == {Action.SHED: 1}
        assert actions("batch", prediction, waiting=10_000) == {Action.QUEUE: 1}


def test_the_smaller_model_takes_it_only_where_it_would_be_in_time() -> None:
    rng = random.Random(1)
    late = predicted(50.0)
    assert admit(SETTINGS, "free", late, 0, rng, fallback=predicted(5.0)).action is Action.FALLBACK
    assert admit(SETTINGS, "enterprise", late, 0, rng, fallback=predicted(0.5)).action is Action.FALLBACK
    assert admit(SETTINGS, "free", late, 0, rng, fallback=predicted(5.1)).action is Action.SHED
    assert admit(SETTINGS, "free", late, 0, rng, fallback=predicted(1.0, trusted=False)).action is Action.SHED
    assert admit(SETTINGS, "free", predicted(3.5), 0, rng, fallback=predicted(0.1)).action is Action.QUEUE


def test_retry_after_is_when_the_p90_will_be_short_enough_with_a_fifth_of_jitter() -> None:
    rng = random.Random(4)
    late = predicted(35.0, expected=20.0)  # is expected to be short enough at 3.5 / 35 of 20 s
    answers = [admit(SETTINGS, "free", late, 0, rng).retry_after or 0 for _ in range(500)]
    assert 14.4 <= min(answers) < 15
    assert 21 < max(answers) <= 21.6
    after_faults = predicted(300.0, expected=2.0)  # what is expected is near, though nobody would promise it
    for prediction, low, high in ((None, 96, 144), (predicted(5.1), 0.8, 2.0), (after_faults, 0.8, 2.4)):
        shed = admit(SETTINGS, "free", prediction, 10_000, rng)
        assert shed.retry_after is not None
        assert low <= shed.retry_after <= high


def test_a_lane_that_runs_less_than_its_share_is_turned_away_by_the_cap_only() -> None:
    rng, late = random.Random(4), predicted(9.0)
    assert admit(SETTINGS, "paid", late, 0, rng).action is Action.SHED
    assert admit(SETTINGS, "paid", late, 0, rng, in_its_share=True).action is Action.QUEUE
    assert admit(SETTINGS, "paid", late, 10_000, rng, in_its_share=True).action is Action.SHED
    smaller = admit(SETTINGS, "paid", late, 0, rng, in_its_share=True, fallback=predicted(0.5))
    assert smaller.action is Action.FALLBACK


# ------------------------------------------------------------------------------------------------------- preemption


def test_only_enterprise_and_paid_preempt_and_only_when_they_would_be_late_and_nothing_is_open() -> None:
    late = predicted(9.0, expected=0.8)
    assert should_preempt(SETTINGS, "paid", late, waited=0.3, can_start=False)
    assert not should_preempt(SETTINGS, "paid", late, waited=0.1, can_start=False)
    assert not should_preempt(SETTINGS, "paid", late, waited=0.3, can_start=True)
    assert not should_preempt(SETTINGS, "paid", replace(late, trusted=False), waited=0.3, can_start=False)
    assert not should_preempt(SETTINGS, "free", late, waited=60, can_start=False)
    assert not should_preempt(SETTINGS, "batch", late, waited=60, can_start=False)


def running(id: str, lane: str, at: int, *, started: bool = False, preemptions: int = 0) -> Running:
    return Running(id, lane, "t", 1, "a", "runner", 0, at, 0, 0, 0, preemptions, started)


def test_batch_then_free_before_their_first_token_newest_first_then_batch_after_it() -> None:
    lanes = [
        running("paid", "paid", 9),
        running("free-old", "free", 1),
        running("free-new", "free", 5),
        running("free-started", "free", 8, started=True),
        running("batch-old", "batch", 2),
        running("batch-new", "batch", 3),
        running("batch-started", "batch", 7, started=True),
        running("batch-spared", "batch", 8, started=True, preemptions=2),
    ]
    order = []
    while chosen := victim(SETTINGS, "paid", lanes):
        order.append(chosen.id)
        lanes.remove(chosen)
    assert order == ["batch-new", "batch-old", "free-new", "free-old", "batch-started"]


def test_nobody_takes_the_place_of_an_equal() -> None:
    assert victim(SETTINGS, "free", [running("f", "free", 1)]) is None
    assert victim(SETTINGS, "enterprise", [running("p", "paid", 1)]) is None
    assert victim(SETTINGS, "enterprise", []) is None


# ------------------------------------------------------------------------------------------------------- retries


def test_retries_are_a_tenth_of_what_was_dispatched_in_ten_seconds() -> None:
    budget = RetryBudget(SETTINGS.admission)
    budget.dispatched(0.0, 100_000)
    assert [budget.take(1.0, 2000) for _ in range(6)] == [True] * 5 + [False]
    assert not budget.take(9.9, 2000)
    budget.dispatched(10.5, 50_000)
    assert [budget.take(11.0, 2000) for _ in range(4)] == [True] * 3 + [False]


def test_three_requests_may_always_be_retried() -> None:
    budget = RetryBudget(SETTINGS.admission)
    assert [budget.take(0.0, 9999) for _ in range(4)] == [True, True, True, False]
    assert budget.take(10.0, 9999)
