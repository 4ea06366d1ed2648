import math
import random
from dataclasses import replace

import pytest

from inference.scheduling.prediction import Ahead, Predictor, lane_share, raw_seconds
from inference.scheduling.settings import SchedulerSettings

SETTINGS = SchedulerSettings()
IDLE = Ahead(requests=0, uncached=0, slots=5, release_rate=0.0, prefill_rate=0.0, best_prefill=0.2)


def test_an_idle_pool_takes_as_long_as_its_best_replica() -> None:
    assert raw_seconds(IDLE) == 0.2


def test_who_waits_needs_a_slot_and_its_turn_in_prefill_at_the_same_time() -> None:
    ahead = replace(IDLE, requests=10, uncached=6000, slots=1, release_rate=5.0, prefill_rate=1000.0)
    assert raw_seconds(ahead) == 6 + 0.2
    assert raw_seconds(replace(ahead, uncached=100)) == 10 / 5 + 0.2


def test_where_nothing_is_released_there_is_no_end() -> None:
    assert raw_seconds(replace(IDLE, slots=0)) == math.inf
    prediction = Predictor(SETTINGS.prediction).predict(replace(IDLE, slots=0))
    assert prediction.expected == math.inf
    assert not prediction.trusted


def test_a_lane_gets_its_share_among_those_that_want_theirs() -> None:
    assert lane_share(SETTINGS, "free", frozenset()) == 1
    assert lane_share(SETTINGS, "free", frozenset({"paid"})) == pytest.approx(1 / 3)
    assert lane_share(SETTINGS, "free", frozenset({"paid", "free"})) == pytest.approx(1 / 3)


def test_nothing_is_decided_by_it_before_twenty_samples() -> None:
    predictor = Predictor(SETTINGS.prediction)
    for _ in range(20):
        prediction = predictor.predict(IDLE)
        assert not prediction.trusted
        predictor.observe(prediction, 0.2)
    assert predictor.predict(IDLE).trusted


@pytest.mark.parametrize(("factor", "learned"), [(2.0, 2.0), (0.1, 0.5), (50.0, 4.0)])
def test_the_correction_follows_what_happened_within_its_bounds(factor: float, learned: float) -> None:
    predictor = Predictor(SETTINGS.prediction)
    for _ in range(100):
        predictor.observe(predictor.predict(IDLE), factor * 0.2)
    assert predictor.learned.correction == pytest.approx(learned, rel=0.01)
    assert predictor.learned.constant == 0


def test_what_does_not_depend_on_the_prompt_is_learned_apart() -> None:
    """A short prompt waits for the step that an engine is in, and so does a long one."""
    rng, predictor = random.Random(3), Predictor(SETTINGS.prediction)
    for _ in range(400):
        ahead = replace(IDLE, best_prefill=rng.uniform(0.01, 1.0))
        predictor.observe(predictor.predict(ahead), 0.06 + 1.5 * ahead.best_prefill)
    short, long = (predictor.predict(replace(IDLE, best_prefill=seconds)).expected for seconds in (0.01, 1.0))
    assert short == pytest.approx(0.075, rel=0.03)
    assert long == pytest.approx(1.56, rel=0.03)


def test_what_is_expected_is_kept_by_half_although_some_wait_much_longer() -> None:
    rng, predictor = random.Random(4), Predictor(SETTINGS.prediction)
    kept = 0
    for number in range(2000):
        prediction = predictor.predict(replace(IDLE, best_prefill=rng.uniform(0.1, 0.3)))
        actual = prediction.raw * rng.lognormvariate(0, 0.8)  # the mean is 1.4 times the median
        predictor.observe(prediction, actual)
        kept += number >= 500 and actual <= prediction.expected
    assert kept / 1500 == pytest.approx(0.5, abs=0.06)


def test_invariant_9_nine_in_ten_keep_the_p90_and_the_median_error_is_small() -> None:
    rng, predictor = random.Random(5), Predictor(SETTINGS.prediction)
    kept, errors = 0, []
    for number in range(3000):
        ahead = replace(IDLE, requests=rng.randint(0, 60), release_rate=4.0)
        prediction = predictor.predict(ahead)
        actual = prediction.raw * 1.6 * rng.lognormvariate(0, 0.3)
        predictor.observe(prediction, actual)
        if number >= 200:
            kept += actual <= prediction.p90
            errors.append(abs(actual - prediction.expected) / actual)
    assert 0.85 <= kept / len(errors) <= 0.95
    assert sorted(errors)[len(errors) // 2] <= 0.25


def test_what_cannot_be_compared_is_not_learned_from() -> None:
    predictor = Predictor(SETTINGS.prediction)
    predictor.observe(predictor.predict(replace(IDLE, slots=0)), 3.0)
    predictor.observe(predictor.predict(IDLE), -1.0)
    assert predictor.samples == 0
