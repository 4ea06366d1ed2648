import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.scheduling.health import (
    Breaker,
    DecodeRate,
    KvCapacity,
    PeakRate,
    ejected,
    first_token_timeout,
    may_take,
    quantile,
    sequence_limit,
    silence_timeout,
    time_limits,
    updated_health,
    usable,
)
from inference.scheduling.settings import SchedulerSettings, ScoreSettings

SETTINGS = SchedulerSettings()


def failing(times: int = SETTINGS.ejection.failures) -> Breaker:
    breaker = Breaker()
    for _ in range(times):
        breaker = breaker.failed(-1.0, -1.0)
    return breaker


def test_a_quantile_is_one_of_the_values() -> None:
    assert quantile([3.0, 1.0, 2.0], 0.9) == 3.0
    assert quantile([float(n) for n in range(1, 11)], 0.9) == 9.0
    assert quantile([1.0, 2.0], 0.0) == 1.0
    with pytest.raises(ValueError, match="no values"):
        quantile([], 0.5)


# ------------------------------------------------------------------------------------------------------ capacity


def test_kv_is_promised_down_at_once_and_up_slowly_within_its_bounds() -> None:
    capacity = KvCapacity.start(SETTINGS.replica, 10_000, 0.0)
    assert capacity.promised == 9500
    capacity = capacity.adapted(SETTINGS.replica, 0.0, usage=0.5, preempted=True)
    assert capacity.promised == 7600
    assert capacity.adapted(SETTINGS.replica, 4.9, usage=0.99, preempted=True) is capacity  # once in 5 s
    capacity = capacity.adapted(SETTINGS.replica, 5.0, usage=0.93, preempted=False)
    assert capacity.promised == pytest.approx(6080)
    capacity = capacity.adapted(SETTINGS.replica, 10.0, usage=0.92, preempted=False)
    assert capacity.promised == pytest.approx(6080 * 1.02)


@given(st.lists(st.tuples(st.floats(0, 20), st.floats(0, 1), st.booleans()), max_size=60))
def test_kv_stays_within_its_bounds(scrapes: list[tuple[float, float, bool]]) -> None:
    capacity, now = KvCapacity.start(SETTINGS.replica, 10_000, 0.0), 0.0
    for seconds, usage, preempted in scrapes:
        now += seconds
        capacity = capacity.adapted(SETTINGS.replica, now, usage=usage, preempted=preempted)
        assert 5000 <= capacity.promised <= 9500


# --------------------------------------------------------------------------------------------------------- rates


def test_the_peak_rate_is_the_first_figure_until_there_are_samples_and_their_p90_then() -> None:
    peak = PeakRate(SETTINGS.replica, 1000.0)
    assert peak.observe(255, 0.001) is None
    assert peak.observe(1000, 0.0) is None
    for seconds in (1.0, 2.0, 4.0, 5.0):
        peak.observe(2000, seconds)
    assert peak.value == 1000
    assert peak.observe(2000, 10.0) == 200
    assert peak.value == 2000


def test_a_slow_replica_loses_health_slowly_and_gets_it_back() -> None:
    health = 1.0
    for _ in range(50):
        health = updated_health(SETTINGS.replica, health, 100.0, 1000.0)
    assert health == 0.2
    assert updated_health(SETTINGS.replica, health, 1000.0, 1000.0) == pytest.approx(0.36)
    for _ in range(50):
        health = updated_health(SETTINGS.replica, health, 5000.0, 1000.0)
    assert health == 1.0
    assert updated_health(SETTINGS.replica, 0.7, 1.0, 0.0) == 0.7


def test_streams_are_limited_where_each_would_get_less_than_the_least_decode_rate() -> None:
    decode = DecodeRate()
    assert decode.predicted(1) is None
    assert sequence_limit(SETTINGS, 64, decode) == 64
    for n in (1, 4, 8, 16, 8, 4):
        decode.observe(n, 1 / (0.010 + 0.001 * n))  # a step of 10 ms, and 1 ms for each stream
    assert decode.predicted(20) == pytest.approx(1 / 0.030)
    assert sequence_limit(SETTINGS, 64, decode) == 23  # 33 ms
    assert sequence_limit(SETTINGS, 10, decode) == 10
    assert sequence_limit(SchedulerSettings(score=ScoreSettings(min_decode_rate=0)), 64, decode) == 64


def test_the_least_decode_rate_is_off_where_the_engine_alone_is_slower() -> None:
    decode = DecodeRate()
    for n in (1, 2, 4):
        decode.observe(n, 20.0 / n)
    assert sequence_limit(SETTINGS, 8, decode) == 8


def test_the_least_decode_rate_is_off_where_the_engine_alone_just_keeps_it() -> None:
    decode = DecodeRate()
    for n in (1, 16, 1, 16):
        decode.observe(n, 30.2 - 0.02 * n)
    assert sequence_limit(SETTINGS, 64, decode) == 64


def test_the_streams_that_a_prompt_stalled_hardly_count() -> None:
    decode = DecodeRate()
    for n in (1, 4, 8, 16) * 20:
        decode.observe(n, 1 / (0.010 + 0.001 * n))
        decode.observe(n, 5.0)  # an engine counts a prompt when it has read it, which may be seconds later
    assert (decode.predicted(16) or 0) > 25


def test_a_line_through_a_few_streams_limits_not_far_more() -> None:
    decode = DecodeRate()
    for n, rate in ((11, 60.0), (10, 66.0), (9, 73.0)):
        decode.observe(n, rate)
    assert (decode.predicted(100) or 0) < 30
    assert sequence_limit(SETTINGS, 256, decode) == 256


def test_with_a_single_number_of_streams_seen_nothing_is_said_of_more() -> None:
    decode = DecodeRate()
    decode.observe(0, 10.0)
    decode.observe(4, 50.0)
    assert decode.predicted(8) == 50
    assert sequence_limit(SETTINGS, 8, decode) == 8


# ------------------------------------------------------------------------------------------------------ failures


def test_s28_a_replica_that_fails_five_requests_in_a_row_is_left_out_longer_each_time() -> None:
    pool = {"a": failing(), "b": Breaker(), "c": failing(4)}
    pool = ejected(SETTINGS, pool, 100.0)
    assert pool["a"] == Breaker(4, 1, 130.0, trial=True, since=100.0)
    assert pool["c"].until == 0
    assert usable(SETTINGS, {id: (breaker, 0) for id, breaker in pool.items()}, 129.0) == {"b", "c"}
    pool["a"] = pool["a"].failed(130.0, 130.0)  # half open: one is enough
    assert ejected(SETTINGS, pool, 130.0)["a"].until == 190.0


def test_s28_a_half_open_replica_gets_one_request_at_a_time_until_one_succeeds() -> None:
    breaker = ejected(SETTINGS, {"a": failing(), "b": Breaker()}, 0.0)["a"]
    assert not may_take(SETTINGS, breaker, 0, 29.9)
    assert may_take(SETTINGS, breaker, 0, 30.0)
    assert not may_take(SETTINGS, breaker, 1, 30.0)
    assert may_take(SETTINGS, breaker.succeeded(30.0), 9, 31.0)
    assert breaker.succeeded(30.0) == Breaker(since=0.0)


def test_s28_streams_that_began_before_do_not_let_an_ejected_replica_in_again() -> None:
    breaker = ejected(SETTINGS, {"a": failing(), "b": Breaker()}, 100.0)["a"]
    for began in (0.0, 99.0, 100.0):
        assert breaker.succeeded(began) == breaker
        assert breaker.answers(began) == breaker
    assert not may_take(SETTINGS, breaker.succeeded(99.0), 0, 129.9)


def test_s28_streams_that_began_before_do_not_interrupt_a_row_of_failures() -> None:
    breaker = Breaker()
    for second in range(5):
        breaker = breaker.failed(float(second), float(second)).succeeded(second - 0.5)
    assert breaker.failures == 5
    assert breaker.succeeded(4.0).failures == 5
    assert breaker.succeeded(4.1) == Breaker()


def test_failures_of_streams_that_began_before_an_ejection_are_in_it_already() -> None:
    breaker = ejected(SETTINGS, {"a": failing(), "b": Breaker()}, 100.0)["a"]
    assert breaker.failed(99.0, 110.0) == breaker
    assert breaker.failed(131.0, 132.0).failures == 5


def test_a_replica_that_is_tried_gets_more_once_it_answers_and_is_forgiven_at_an_end() -> None:
    breaker = ejected(SETTINGS, {"a": failing(), "b": Breaker()}, 0.0)["a"].answers(31.0)
    assert may_take(SETTINGS, breaker, 9, 32.0)
    assert ejected(SETTINGS, {"a": breaker.failed(31.0, 33.0), "b": Breaker()}, 33.0)["a"].until == 93.0  # the second
    assert breaker.succeeded(31.0) == Breaker(since=0.0)


def test_a_replica_that_comes_back_is_tried_at_once() -> None:
    breaker = ejected(SETTINGS, {"a": failing(), "b": Breaker()}, 0.0)["a"].came_back(0.5)
    assert may_take(SETTINGS, breaker, 0, 1.0)
    assert not may_take(SETTINGS, breaker, 1, 1.0)
    assert not Breaker().came_back(0.5).trial
    assert Breaker().came_back(0.5).came_back(1.0) == Breaker(since=1.0)


def test_s28_what_failed_as_a_replica_went_down_does_not_eject_it_when_it_is_back() -> None:
    breaker = failing(20).came_back(10.0)
    assert breaker.failed(9.0, 12.0) == breaker  # noticed late
    assert ejected(SETTINGS, {"a": breaker, "b": Breaker()}, 10.1)["a"] is breaker
    assert (may_take(SETTINGS, breaker, 0, 10.1), may_take(SETTINGS, breaker, 1, 10.1)) == (True, False)
    assert breaker.came_back(20.0).trial  # it went down again before it was tried
    assert breaker.succeeded(9.0) == breaker
    assert breaker.succeeded(11.0) == Breaker(since=10.0)


@pytest.mark.parametrize(("size", "bad", "most"), [(1, 1, 1), (2, 1, 1), (3, 1, 1), (4, 2, 1), (6, 3, 2), (9, 4, 3)])
def test_never_more_than_a_third_of_a_pool_is_left_out_but_one(size: int, bad: int, most: int) -> None:
    pool = {str(number): failing() if number < bad else Breaker() for number in range(size)}
    for now in (0.0, 1.0):
        pool = ejected(SETTINGS, pool, now)
        assert sum(breaker.until > now for breaker in pool.values()) == most


def test_where_more_than_half_look_bad_ejection_is_off() -> None:
    pool = {"a": failing(), "b": failing(), "c": Breaker()}
    assert ejected(SETTINGS, pool, 0.0) == pool
    out = ejected(SETTINGS, {"a": failing(), "b": Breaker(), "c": Breaker()}, 0.0)["a"]
    assert usable(SETTINGS, {"a": (out, 0), "b": (failing(), 3), "c": (Breaker(), 3)}, 1.0) == {"a", "b", "c"}


def test_the_only_replica_is_used_whatever_it_did() -> None:
    pool = ejected(SETTINGS, {"a": failing()}, 0.0)
    assert usable(SETTINGS, {"a": (pool["a"], 5)}, 1.0) == {"a"}
    assert usable(SETTINGS, {}, 1.0) == set()


@given(
    st.dictionaries(st.text(max_size=2), st.builds(Breaker, st.integers(0, 9), st.integers(0, 9), st.floats(0, 99))),
    st.floats(0, 99),
)
def test_ejection_never_empties_a_pool(pool: dict[str, Breaker], now: float) -> None:
    after = ejected(SETTINGS, pool, now)
    assert after.keys() == pool.keys()
    newly = sum(after[id] != breaker for id, breaker in pool.items())
    assert newly <= max(1, len(pool) / 3)
    assert bool(usable(SETTINGS, {id: (breaker, 0) for id, breaker in after.items()}, now)) == bool(pool)


def test_an_attempt_has_three_times_its_prediction_and_a_minute_without_one() -> None:
    assert first_token_timeout(SETTINGS, None) == 60
    assert first_token_timeout(SETTINGS, 2.0) == 6
    assert first_token_timeout(SETTINGS, 0.01) == 1


def test_a_stream_may_be_silent_while_others_are_prefilled() -> None:
    assert silence_timeout(SETTINGS, 8192, 16_000.0) == 10
    assert silence_timeout(SETTINGS, 4096, 400.0) == pytest.approx(30.72)
    assert silence_timeout(SETTINGS, 4096, 0.0) == 10
    assert math.isfinite(silence_timeout(SETTINGS, 0, 1.0))


def test_the_limit_of_a_first_token_is_never_shorter_than_that_of_a_next_one() -> None:
    assert time_limits(SETTINGS, 0.1, 16_000.0) == (10, 10)  # three times what was predicted would fail healthy ones
    assert time_limits(SETTINGS, 8.0, 16_000.0) == (24, 10)
    slow, _ = time_limits(SETTINGS, 70.0, 430.0)  # 30,000 tokens on a CPU
    assert slow == 210
    first, following = time_limits(SETTINGS, 0.3, 430.0)
    assert first == following == pytest.approx(28.6, abs=0.1)  # others' prompt of 3,900 tokens takes 9 s there
    assert time_limits(SETTINGS, 0.0, 0.0) == (60, 60)
