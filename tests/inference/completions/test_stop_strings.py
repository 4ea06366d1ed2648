"""Where a stop string ends an answer, whatever happens to the engine meanwhile."""

from typing import Any

from tests.conversations.callers import Caller
from tests.inference.completions.route_calls import PATH, Chat, chunks_of, over, text_of
from tests.inference.runner.conftest import House
from tests.waiting import wait_until


async def whole_text(caller: Caller, body: dict[str, Any]) -> str:
    """What the engine says when nothing stops it."""
    answer = await caller.call("POST", PATH, body)
    return str(answer.json()["choices"][0]["message"]["content"])


async def test_a_stop_string_ends_the_text_before_it(house: House, caller: Caller, chat: Chat) -> None:
    await house.engine(tokens_per_second=200)
    await house.runner()
    whole = await whole_text(caller, chat(max_tokens=60))
    stop = whole[70:78]
    body = (await caller.call("POST", PATH, chat(max_tokens=400, stop=["never said", stop]))).json()
    [choice] = body["choices"]
    assert choice["message"]["content"] == whole[: whole.index(stop)]
    assert choice["finish_reason"] == "stop"
    await wait_until(lambda: house.engines[0].running == 0, 2)
    assert house.engines[0].calls[-1].outcome == "aborted"
    streamed = chunks_of(await caller.call("POST", PATH, chat(max_tokens=400, stop=stop, stream=True)))
    assert text_of(streamed) == whole[: whole.index(stop)]
    await over(house)


async def test_a_stop_string_within_the_least_tokens_does_not_count(house: House, caller: Caller, chat: Chat) -> None:
    """Also where another engine goes on behind it."""
    for _ in range(2):
        await house.engine()
    await house.runner()
    whole = await whole_text(caller, chat(max_tokens=60))
    early, late = whole[12:20], whole[150:158]
    assert whole.index(early) < 20 and whole.index(late) == 150
    for after in (0, 10):
        for each in house.engines:
            each.faults.stream, each.faults.after, each.faults.times = "reset" if after else "", after, 1
        body = chat(max_tokens=60, min_tokens=20, stop=[early, late])
        [choice] = (await caller.call("POST", PATH, body)).json()["choices"]
        assert (choice["message"]["content"], choice["finish_reason"]) == (whole[:150], "stop"), after
    await over(house)


async def test_a_stop_string_across_a_failover_is_found(house: House, caller: Caller, chat: Chat) -> None:
    engine = await house.engine()
    await house.engine()
    await house.runner()
    whole = await whole_text(caller, chat(max_tokens=80))
    stop = whole[100:120]
    expected = whole[: whole.index(stop)]
    for after in range(12, 40, 4):  # the cut lies before, in and behind the stop string
        for each in house.engines:
            each.faults.stream, each.faults.after, each.faults.times = "reset", after, 1
        answer = await caller.call("POST", PATH, chat(max_tokens=80, stop=stop, stream=True))
        chunks = chunks_of(answer)
        assert text_of(chunks) == expected, after
        assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
        for each in house.engines:
            each.faults.stream = ""
    assert engine.calls
    await over(house)
