import pytest

from inference.explanation import explain

CANDIDATES = [
    {"replica": "a", "match": 512, "prefill": 0.2, "kv": 0.1, "score": 0.3, "refusal": ""},
    {"replica": "b", "match": 0, "prefill": 0.9, "kv": 0.1, "score": 1.0, "refusal": "gate"},
]
ATTEMPT = {
    "attempt": 1, "replica": "a", "why": "sticky", "waited": 0.25, "preemptions": 0, "uncached": 88,
    "candidates": CANDIDATES,
}  # fmt: skip


def test_a_record_is_told_in_words() -> None:
    decision = {"predicted": {"raw": 0.2, "expected": 0.4, "p90": 0.6}, "x": 0.6, "shed_probability": 0.0}
    told = explain(decision | {"attempts": [ATTEMPT]}, 0.5, {"a": "http://one"})
    assert told is not None
    assert (told.expected, told.actual, told.pressure, told.turned_away) == (0.4, 0.5, 0.6, 0)
    [attempt] = told.attempts
    assert (attempt.replica, attempt.why) == ("http://one", "its prompt is cached there")
    assert [(each.replica, each.chosen, each.why_not) for each in attempt.options] == [
        ("http://one", True, ""),
        ("b", False, "enough queued there"),
    ]


@pytest.mark.parametrize(("probability", "percent"), [(0.0, 0), (0.0004, 1), (0.07, 7), (0.5, 50), (1.0, 100)])
def test_of_those_turned_away_whole_percents_are_told(probability: float, percent: int) -> None:
    told = explain({"x": 1.2, "shed_probability": probability}, None, {})
    assert told is not None and told.turned_away == percent


def test_without_a_record_there_is_nothing_to_tell() -> None:
    assert explain({}, None, {}) is None


def test_one_that_waits_has_a_prediction_and_no_attempt() -> None:
    told = explain({"predicted": {"raw": 1.0, "expected": 1.0, "p90": 2.0}}, None, {})
    assert told is not None and told.attempts == [] and told.expected == 1.0


def test_one_that_the_smaller_model_ran_says_what_was_asked_for() -> None:
    told = explain({"instead_of": {"model": "big", "x": 1.7}}, None, {})
    assert told is not None and (told.instead_of, told.instead_pressure) == ("big", 1.7)
    told = explain({"instead_of": {"model": "big"}}, None, {})
    assert told is not None and (told.instead_of, told.instead_pressure) == ("big", None)
