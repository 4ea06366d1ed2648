from dataclasses import replace

import pytest

from inference.scheduling.answers import Counters
from inference.scheduling.believed import Believed, Scrape
from inference.scheduling.settings import SchedulerSettings

SETTINGS = SchedulerSettings()
SEEN = Scrape(running=10, waiting=0, usage=0.2, kv_tokens=100_000, preemptions=0, generated=0, prefilled=0)
HELD = Counters(qpf=100, kv=2000, n=3, capkv=95_000, capn=64, peak_rate=10_000.0, open=True)


def believed(*scrapes: Scrape) -> Believed:
    """After scrapes at seconds 0, 1, 2, ..."""
    made = Believed(SETTINGS, "a", 64, 10_000.0)
    for second, seen in enumerate(scrapes):
        made.scraped(SETTINGS, seen, float(second))
    return made


def test_before_a_scrape_nothing_is_promised_and_its_metrics_are_old() -> None:
    fresh = believed()
    load = fresh.load(HELD, 5.0, usable=True)
    assert (fresh.capkv, fresh.capn(SETTINGS), load.metrics_age, load.preempted_age) == (
        0,
        64,
        float("inf"),
        float("inf"),
    )
    assert (load.qpf, load.kv, load.n, load.usage, load.usable) == (100, 2000, 3, 0.0, True)


def test_a_closed_replica_is_not_usable() -> None:
    assert not believed(SEEN).load(replace(HELD, open=False), 0.0, usable=True).usable


def test_memory_is_promised_down_when_the_engine_preempts_and_anew_when_it_is_another_engine() -> None:
    known = believed(SEEN, replace(SEEN, preemptions=2))
    assert known.capkv == 76_000
    assert known.load(HELD, 3.0, usable=True).preempted_age == 2
    known.came_back(4.0)
    assert known.capkv == 0
    known.scraped(SETTINGS, replace(SEEN, kv_tokens=50_000), 9.0)
    assert known.capkv == 47_500


def test_what_prompts_share_is_promised_once_more_while_the_figures_are_fresh() -> None:
    known = believed(SEEN)  # holds 20,000
    assert known.promised(SETTINGS, 0.0) == 95_000
    known.scraped(SETTINGS, SEEN, 1.0, read=50_000)
    assert (known.promised(SETTINGS, 3.0), known.capkv) == (125_000, 95_000)
    assert known.promised(SETTINGS, 3.1) == 95_000
    known.scraped(SETTINGS, SEEN, 4.0, read=19_000)
    assert known.promised(SETTINGS, 4.0) == 95_000
    known.came_back(4.0)
    assert known.promised(SETTINGS, 4.0) == 0


def test_nothing_is_promised_of_a_memory_whose_size_is_not_known() -> None:
    known = believed()
    known.scraped(SETTINGS, replace(SEEN, kv_tokens=0), 0.0, read=50_000)
    assert known.promised(SETTINGS, 0.0) == 0


def test_the_rate_of_streams_is_that_of_the_time_in_which_no_prompt_was_read() -> None:
    quiet = believed(SEEN, replace(SEEN, generated=500))
    assert quiet.decode.predicted(10) == pytest.approx(50)
    reading = believed(SEEN, replace(SEEN, generated=450, prefilled=1000))  # a tenth of the second
    assert reading.decode.predicted(10) == pytest.approx(50)


@pytest.mark.parametrize("changes", [{"prefilled": 1100}, {"running": 14}, {"waiting": 1}, {"prefilled": -1}])
def test_a_second_that_says_little_of_decoding_is_left_out(changes: dict[str, int]) -> None:
    assert believed(SEEN, replace(SEEN, generated=500, **changes)).decode.predicted(10) is None


def test_health_is_what_it_does_over_what_it_could() -> None:
    known = believed(SEEN)
    for _ in range(4):
        known.prefilled(SETTINGS, 1000, 0.2)  # half as fast as its first figure
    assert 0.5 < known.health < 0.8
    known.prefilled(SETTINGS, 1000, 0.2)
    assert known.peak_rate == 5000  # now it is known
