from dataclasses import replace

from inference.scheduling.answers import Counters, Refusal
from inference.scheduling.capacity import gate, refusal, slots
from inference.scheduling.settings import SchedulerSettings

FREE = SchedulerSettings().lane("free")
PAID = SchedulerSettings().lane("paid")
EMPTY = Counters(capkv=1000, capn=10, peak_rate=1000.0, open=True)


def test_a_share_of_the_slots_but_one_at_least() -> None:
    assert [slots(FREE, capn) for capn in (0, 1, 2, 10, 20)] == [0, 1, 1, 9, 18]


def test_a_gate_is_open_when_nothing_is_queued_or_all_fits() -> None:
    assert gate(FREE, 1000.0) == 250
    assert refusal(FREE, EMPTY, 10_000, 10) is Refusal.NONE
    queued = replace(EMPTY, qpf=200, n=1, kv=10)
    assert refusal(FREE, queued, 50, 10) is Refusal.NONE
    assert refusal(FREE, queued, 51, 10) is Refusal.GATE


def test_who_has_more_cached_there_than_is_queued_passes_the_gate_where_others_make_place_for_the_lane() -> None:
    queued = replace(EMPTY, qpf=3000, n=1, kv=10)
    assert refusal(PAID, queued, 500, 10, cached=3000) is Refusal.NONE
    assert refusal(PAID, queued, 500, 10, cached=2999) is Refusal.GATE
    assert refusal(FREE, queued, 500, 10, cached=3000) is Refusal.GATE  # it would stand in front of paid requests
    assert refusal(PAID, replace(queued, n=10), 500, 10, cached=3000) is Refusal.SLOTS


def test_slots_and_kv_are_looked_at_before_the_gate() -> None:
    assert refusal(FREE, replace(EMPTY, n=9, qpf=999), 999, 10) is Refusal.SLOTS
    assert refusal(FREE, replace(EMPTY, n=1, kv=500, qpf=999), 999, 401) is Refusal.KV
