"""What keeps one socket within bounds."""

import asyncio

import pytest

from conversations import flow
from conversations.flow import FrameBudget, Outbox, TooManyFrames, TooSlow


class Wire:
    def __init__(self) -> None:
        self.sent: list[str] = []

    async def __call__(self, frame: str) -> None:
        self.sent.append(frame)


async def test_a_reader_who_acknowledges_is_never_held_up() -> None:
    wire = Wire()
    outbox = Outbox(wire, stall_seconds=1)
    for number in range(1, 200):
        await outbox.put("x" * 10_000)
        outbox.acknowledge(number)
    assert len(wire.sent) == 199
    assert outbox.outstanding == 0


async def test_at_most_256_kb_are_outstanding_then_the_reader_is_too_slow() -> None:
    wire = Wire()
    outbox = Outbox(wire, stall_seconds=0.05)
    with pytest.raises(TooSlow):
        for _ in range(1000):
            await outbox.put("ä" * 5_000)
    assert sum(len(frame.encode()) for frame in wire.sent) <= flow.OUTSTANDING_BYTES + 10_000


async def test_an_acknowledgement_lets_it_go_on() -> None:
    wire = Wire()
    outbox = Outbox(wire, stall_seconds=5)
    await outbox.put("x" * flow.OUTSTANDING_BYTES)
    waiting = asyncio.create_task(outbox.put("y"))
    await asyncio.sleep(0.01)
    assert wire.sent[-1] != "y"
    outbox.acknowledge(1)
    await asyncio.wait_for(waiting, 1)
    assert wire.sent[-1] == "y"


async def test_acknowledging_more_than_was_sent_gives_no_credit() -> None:
    outbox = Outbox(Wire(), stall_seconds=0.05)
    await outbox.put("x")
    outbox.acknowledge(10**12)
    await outbox.put("x" * flow.OUTSTANDING_BYTES)
    with pytest.raises(TooSlow):
        await outbox.put("y")


def test_frames_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(flow.time, "monotonic", lambda: now[0])
    budget = FrameBudget()
    for _ in range(int(flow.FRAMES_BURST)):
        budget.spend()
    with pytest.raises(TooManyFrames):
        budget.spend()
    now[0] += 1
    for _ in range(int(flow.FRAMES_PER_SECOND)):
        budget.spend()
    with pytest.raises(TooManyFrames):
        budget.spend()
