"""Leases while their settings change: nothing that streams is lost, in this process or by what others still go by."""

import asyncio
import time
from dataclasses import replace

import pytest

from inference.redis import rules
from inference.runner import beats
from inference.runner.beats import Beats
from inference.scheduling.settings import LeaseSettings, SchedulerSettings
from tests.inference.runner.conftest import House
from tests.tuning import atune
from tests.waiting import wait_until

SHORT = {"lease_seconds": 1.5, "heartbeat_seconds": 0.2, "abort_seconds": 1.0}
LONG = {"lease_seconds": 3600.0, "heartbeat_seconds": 60.0, "abort_seconds": 3500.0}


def use(**lease: float) -> None:
    rules.use(replace(SchedulerSettings(), lease=LeaseSettings(**lease)))  # type: ignore[arg-type]


async def seconds_until_next(beats: Beats) -> tuple[bool, float]:
    began = time.monotonic()
    return await beats.next(), time.monotonic() - began


async def test_a_beat_does_not_sleep_out_what_holds_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beats, "TAKEN_UP_SECONDS", 0.0)
    use(**LONG)
    own = Beats()
    asyncio.get_running_loop().call_later(0.1, lambda: use(**SHORT))
    regular, seconds = await seconds_until_next(own)
    assert not regular  # what was leased for an hour is not late
    assert seconds < 1
    assert await own.next()


async def test_while_others_may_go_by_the_settings_before_the_shorter_interval_holds() -> None:
    use(**SHORT)
    own = Beats()
    use(**LONG)
    assert not await own.next()
    regular, seconds = await seconds_until_next(own)
    assert regular and seconds < 1


async def test_what_streams_outlives_a_change_from_long_leases_to_short_ones(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beats, "TAKEN_UP_SECONDS", 0.0)
    await atune(lease=LONG)
    await house.engine(tokens_per_second=50)
    runner = await house.runner()
    messages = [await house.ask(350) for _ in range(3)]
    for message in messages:
        await house.emitted(message, 5)
    oldest = min(stream.renewed_at for stream in runner.streams.values())
    await wait_until(lambda: time.monotonic() - oldest > 1.2)  # more than a short lease's streams may be without a beat
    await atune(lease=SHORT)
    for message in messages:
        assert (await house.ended(message)).status == "complete"
        assert (await house.request(message)).attempt == 1
    await house.nothing_is_held()
