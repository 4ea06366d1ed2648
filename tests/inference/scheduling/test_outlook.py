from typing import Any

from inference.scheduling.outlook import Counted, Place, View
from inference.scheduling.prediction import Learned
from inference.scheduling.settings import SchedulerSettings

SETTINGS = SchedulerSettings()


def place(id: str = "a", **changes: Any) -> Place:
    known = {"qpf": 0, "kv": 0, "n": 0, "capkv": 100_000, "capn": 8, "peak_rate": 1000.0, "health": 1.0}
    return Place(id, **{**known, **changes})


def view(*places: Place, **changes: Any) -> View:
    known: dict[str, Any] = {"waiting": {}, "uncached": {}, "learned": {}, "ends": 2.0}
    return View(places=list(places), **{**known, **changes})


def test_newer_counts_replace_those_of_the_last_look_and_what_is_not_known_stays() -> None:
    seen = view(place("a"), place("b", n=3), waiting={"free": 1, "paid": 2})
    newer = seen.with_counters({"free": 5}, {"free": 3}, {"a": Counted(700, 800, 1)})
    assert (newer.waiting, newer.running) == ({"free": 5, "paid": 2}, {"free": 3})
    assert newer.places == [place("a", qpf=700, kv=800, n=1), place("b", n=3)]
    assert seen.with_counters({}, {}, {}) == seen


def test_the_best_replica_counts_and_who_waits_ahead() -> None:
    seen = view(place("a", qpf=500), place("b", qpf=2000), uncached={"paid": 100.0})
    assert seen.predict(SETTINGS, "paid", 500, 10).raw == 1.0
    assert seen.predict(SETTINGS, "paid", 500, 10, ahead=4).raw == 1.0 + 4 * 100 / 2000


def test_an_engine_that_reads_a_long_prompt_takes_nobody_at_once() -> None:
    idle, reading, full = place("a"), place("b", qpf=10), place("c", n=8)
    assert view(idle).takes(SETTINGS, "paid", 5000, 10, 0)
    assert view(idle).takes(SETTINGS, "paid", 5000, 10, 7)
    assert not view(idle).takes(SETTINGS, "paid", 5000, 10, 8)
    assert view(reading, full).takes(SETTINGS, "paid", 50, 10, 0)  # that takes a hundredth of the objective
    assert not view(place("b", qpf=101), full).takes(SETTINGS, "paid", 50, 10, 0)
    assert not view(reading).takes(SETTINGS, "batch", 50, 10, 0)  # it has no objective
    assert not view(idle, waiting={"paid": 1}).takes(SETTINGS, "paid", 50, 10, 0)


def test_who_has_no_more_than_an_equal_part_of_what_runs_is_not_too_much() -> None:
    seen = view(running={"paid": 20, "free": 5})
    assert seen.in_its_part("paid", 6, 3) and not seen.in_its_part("paid", 7, 3)
    assert not seen.in_its_part("batch", 1, 1)


def test_what_was_learned_in_a_lane_is_used_in_it() -> None:
    seen = view(place(), learned={"paid": Learned({-1: (2.0, 3.0)})})
    prediction = seen.predict(SETTINGS, "paid", 500, 10)
    assert (prediction.raw, prediction.expected, prediction.trusted) == (0.5, 1.0, True)
    assert seen.knows("paid") and not seen.knows("free")


def test_a_lane_is_in_its_share_while_lesser_ones_have_more_of_what_runs_than_their_weights_give_them() -> None:
    def share(lane: str, **running: int) -> bool:
        return view(running=running).in_its_share(SETTINGS, lane)

    assert share("paid", free=8)  # weights 30 and 15: two thirds are its own
    assert share("paid", free=4, paid=7)
    assert not share("paid", free=4, paid=8)
    assert not share("paid", paid=8) and not share("paid")  # nobody lesser is there
    assert not share("paid", enterprise=8)
    assert not share("free", paid=8, free=1) and not share("free", paid=8)  # those above it are no reason
    assert share("free", batch=8) and not share("batch", paid=3, free=3)
    assert not share("paid", enterprise=7, paid=1, free=1)  # those above it count as its own
