import math
import random
from dataclasses import replace

import pytest

from inference.scheduling.prediction import Ahead, Learned, Order, Predictor, lane_share, raw_seconds, size_of
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


def _served_first(places: random.Random, start: int, length: int) -> int:
    """How many are served before one, while for each of them another comes, anywhere in the queue."""
    ahead, served = start, 0
    while ahead:
        ahead += places.randint(0, length - 1) < ahead
        ahead -= 1
        served += 1
    return served


@pytest.mark.parametrize("start", [10, 50, 80])
def test_who_comes_anywhere_in_the_queue_goes_ahead_of_some(start: int) -> None:
    places, order = random.Random(8), Order()
    for _ in range(1000):
        order.came(places.randint(0, 100), 100)
    served = sum(_served_first(places, start, 100) for _ in range(500)) / 500
    assert order.served_before(start, 100) == pytest.approx(served, rel=0.12)
    assert order.served_before(start, 100) > start


def test_where_all_go_to_the_end_nobody_is_passed() -> None:
    order = Order()
    for _ in range(100):
        order.came(40, 40)
    assert order.served_before(20, 40) == 20
    assert order.served_before(40, 40) == pytest.approx(40, rel=0.03)
    assert order.served_before(0, 40) == 0
    assert order.served_before(1, 1) == 1


def test_a_lane_gets_its_share_among_those_that_want_theirs() -> None:
    assert lane_share(SETTINGS, "free", frozenset()) == 1
    assert lane_share(SETTINGS, "free", frozenset({"paid"})) == pytest.approx(1 / 3)
    assert lane_share(SETTINGS, "free", frozenset({"paid", "free"})) == pytest.approx(1 / 3)


def test_nothing_is_decided_by_it_before_twenty_samples_of_one_size() -> None:
    predictor = Predictor(SETTINGS.prediction)
    for number in range(40):
        ahead = replace(IDLE, best_prefill=0.2 if number % 2 else 2.0)
        prediction = predictor.predict(ahead)
        assert not prediction.trusted or number == 39
        predictor.observe(prediction, 0.2, number)
    assert predictor.predict(IDLE).trusted


def test_waits_of_a_size_differ_by_less_than_twice() -> None:
    assert [size_of(seconds) for seconds in (0.5, 0.99, 1.0, 1.99, 2.0, 60.0)] == [-1, -1, 0, 0, 1, 5]


@pytest.mark.parametrize("factor", [0.1, 2.0, 50.0])
def test_the_prediction_follows_what_happened(factor: float) -> None:
    predictor = Predictor(SETTINGS.prediction)
    for number in range(100):
        predictor.observe(predictor.predict(IDLE), factor * 0.2, number)
    prediction = predictor.predict(IDLE)
    assert (prediction.raw, prediction.expected, prediction.p90) == pytest.approx((0.2, factor * 0.2, factor * 0.2))


def test_what_does_not_depend_on_the_prompt_is_learned_as_well() -> None:
    """A short prompt waits for the step that an engine is in, and so does a long one."""
    rng, predictor = random.Random(3), Predictor(SETTINGS.prediction)
    for number in range(1000):
        ahead = replace(IDLE, best_prefill=2 ** rng.uniform(-6, 0))
        predictor.observe(predictor.predict(ahead), 0.06 + 1.5 * ahead.best_prefill, number)
    for seconds in (0.02, 0.1, 0.3, 0.9):
        assert predictor.predict(replace(IDLE, best_prefill=seconds)).expected == pytest.approx(
            0.06 + 1.5 * seconds, rel=0.15
        )


def test_short_waits_say_nothing_of_long_ones_once_those_are_known() -> None:
    """When a crowd has come and gone and comes again, it is known what its waits are."""
    predictor = Predictor(SETTINGS.prediction)
    for number in range(50):
        predictor.observe(predictor.predict(replace(IDLE, best_prefill=4.0)), 12.0, number)
    for number in range(50, 550):
        predictor.observe(predictor.predict(replace(IDLE, best_prefill=0.2)), 0.2, number)
    assert predictor.predict(replace(IDLE, best_prefill=6.0)).expected == pytest.approx(18.0)
    assert predictor.predict(replace(IDLE, best_prefill=0.2)).expected == pytest.approx(0.2, rel=0.05)


def test_between_two_sizes_it_goes_over_from_one_to_the_other_and_beyond_them_the_nearest_counts() -> None:
    learned = Learned({0: (1.0, 2.0), 2: (4.0, 8.0)})
    said = [
        learned.predict(SETTINGS.prediction, replace(IDLE, best_prefill=2**place * math.sqrt(2)))
        for place in (-3, 0, 1, 2, 5)
    ]
    assert [each.expected / each.raw for each in said] == pytest.approx([1.0, 1.0, 2.0, 4.0, 4.0])
    assert [each.p90 / each.raw for each in said] == pytest.approx([2.0, 2.0, 4.0, 8.0, 8.0])


def test_a_size_that_did_not_come_for_long_is_forgotten_once_others_came() -> None:
    """What was once seen in an outage would turn away all who could show that it is over."""
    predictor = Predictor(SETTINGS.prediction)
    for number in range(50):
        predictor.observe(predictor.predict(replace(IDLE, best_prefill=4.0)), 400.0, number)
    assert predictor.predict(replace(IDLE, best_prefill=4.0)).expected == pytest.approx(400.0)
    for number in range(700, 750):
        predictor.observe(predictor.predict(replace(IDLE, best_prefill=0.2)), 0.2, number)
    assert predictor.predict(replace(IDLE, best_prefill=4.0)).expected == pytest.approx(4.0)


def test_what_is_expected_is_kept_by_half_although_some_wait_much_longer() -> None:
    rng, predictor = random.Random(4), Predictor(SETTINGS.prediction)
    kept = 0
    for number in range(2000):
        prediction = predictor.predict(replace(IDLE, best_prefill=rng.uniform(0.1, 0.3)))
        actual = prediction.raw * rng.lognormvariate(0, 0.8)  # the mean is 1.4 times the median
        predictor.observe(prediction, actual, number)
        kept += number >= 500 and actual <= prediction.expected
    assert kept / 1500 == pytest.approx(0.5, abs=0.06)


def test_invariant_9_nine_in_ten_keep_the_p90_and_the_median_error_is_small() -> None:
    rng, predictor = random.Random(5), Predictor(SETTINGS.prediction)
    kept, errors = 0, []
    for number in range(3000):
        ahead = replace(IDLE, requests=rng.randint(0, 60), release_rate=4.0)
        prediction = predictor.predict(ahead)
        actual = prediction.raw * 1.6 * rng.lognormvariate(0, 0.3)
        predictor.observe(prediction, actual, number)
        if number >= 200:
            kept += actual <= prediction.p90
            errors.append(abs(actual - prediction.expected) / actual)
    assert 0.85 <= kept / len(errors) <= 0.95
    assert sorted(errors)[len(errors) // 2] <= 0.25


def test_what_cannot_be_compared_is_not_learned_from() -> None:
    predictor = Predictor(SETTINGS.prediction)
    for number in range(30):
        predictor.observe(predictor.predict(replace(IDLE, slots=0)), 3.0, number)
        predictor.observe(predictor.predict(IDLE), -1.0, number)
    assert predictor.learned == Learned()
