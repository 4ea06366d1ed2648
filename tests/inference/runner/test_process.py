"""A request's life with real stores and fake engines: claim, stream, save, settle."""

import asyncio
from decimal import Decimal

import pytest
from django.db import OperationalError, connections

from chatsite.database import run_db
from inference import partials, services, settlement
from inference.models import Partial
from inference.protocol import StartedEvent
from inference.runner.shared_prefixes import SharedPrefixes
from inference.runner.stream import Stream
from tests.inference.runner.conftest import PROMPT, House, Reader, token_ids
from tests.waiting import wait_until


async def test_a_reply_streams_and_everything_is_settled(house: House) -> None:
    engine = await house.engine(tokens_per_second=200)
    await house.runner()
    message = await house.ask(30)
    reader = Reader(message.request_id)
    done = await house.ended(message)
    ids, text = house.expected(30)
    assert (done.status, done.finish_reason, done.content) == ("complete", "length", text)
    assert token_ids(done) == ids
    assert await reader.done() == text
    assert isinstance(reader.events[0], StartedEvent)
    [entry] = await house.ledger(message)
    assert (entry.input, entry.output, entry.source, entry.outcome) == (len(PROMPT), 30, "engine", "succeeded")
    assert entry.cost == Decimal("0.0000125000")  # 5 tokens at 0.10 and 30 at 0.40 per million
    assert engine.calls[0].prompt_ids == PROMPT
    await house.nothing_is_held()
    assert not await run_db(Partial.objects.exists)


async def test_s26_two_runners_never_run_one_request_twice(house: House) -> None:
    engine = await house.engine(tokens_per_second=500)
    await house.runner()
    await house.runner()
    messages = await asyncio.gather(*(house.ask(10, prompt=[*PROMPT, n]) for n in range(40)))
    for number, message in enumerate(messages):
        done = await house.ended(message)
        assert done.content == house.expected(10, [*PROMPT, number])[1]
        assert len(await house.ledger(message)) == 1
    assert len(engine.calls) == 40
    await house.nothing_is_held()


@pytest.mark.parametrize(("cut", "source", "told"), [(True, "estimate", []), (False, "engine", [0])])
async def test_what_the_engine_had_cached_is_known_only_when_it_has_told(
    house: House, monkeypatch: pytest.MonkeyPatch, cut: bool, source: str, told: list[int]
) -> None:
    heard: list[int] = []
    monkeypatch.setattr(SharedPrefixes, "cached", lambda self, replica, hashes, expected, tokens: heard.append(tokens))
    await house.engine(tokens_per_second=100)
    await house.runner()
    string = house.expected(12)[1][-6:]
    message = await house.ask(30, stop=(string,) if cut else ())
    done = await house.ended(message)
    assert done.finish_reason == ("stop" if cut else "length")
    [entry] = await house.ledger(message)
    assert (entry.cached, entry.source) == (0, source)
    assert heard == told  # a reply that we cut says nothing about the replica's cache


async def test_settling_is_tried_again_when_the_database_fails(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = iter([OperationalError("gone"), OperationalError("still gone")])
    original = settlement.record_usage

    def failing(**usage: object) -> None:
        if (error := next(failures, None)) is not None:
            raise error
        original(**usage)  # type: ignore[arg-type]

    monkeypatch.setattr(settlement, "record_usage", failing)
    await house.engine()
    await house.runner()
    message = await house.ask(10)
    done = await house.ended(message)
    assert done.content == house.expected(10)[1]
    assert len(await house.ledger(message)) == 1
    await house.nothing_is_held()


async def test_no_partial_row_is_left_behind(house: House, settings: object) -> None:
    settings.PERSIST_SECONDS = 0.01  # type: ignore[attr-defined]
    await house.engine(tokens_per_second=400)
    await house.runner()
    for message in [await house.ask(5 + number, prompt=[*PROMPT, number]) for number in range(60)]:
        await house.ended(message)
    assert not await run_db(Partial.objects.exists)


async def test_s15_continue_joins_at_the_token(house: House) -> None:
    await house.engine(tokens_per_second=500, emoji=0.6)
    await house.runner()
    for cut in range(8, 14):
        message = await house.ended(await house.ask(cut))
        done = await house.ended(await house.ask(40 - cut, on=message))
        ids, text = house.expected(40, emoji=0.6)
        assert token_ids(done) == ids
        assert done.content == text[: len(done.content)]
        assert len(text) - len(done.content) <= 1
        assert "\N{REPLACEMENT CHARACTER}" not in done.content


async def test_a_reply_that_had_finished_is_not_generated_further(house: House) -> None:
    engine = await house.engine(tokens_per_second=100, stop=0.05)
    runner = await house.runner()
    message = await house.ask(3000)
    await house.ended(message)
    whole = await house.reload(message)
    assert whole.finish_reason == "stop"
    # The same again, but its runner dies between the last token and settling.
    blocked = asyncio.Event()

    async def never(*_: object) -> None:
        blocked.set()
        await asyncio.Event().wait()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stream, "_settle", never)
        again = await house.ask(3000)
        await asyncio.wait_for(blocked.wait(), 20)
        await runner.flusher.flush(list(runner.streams.values()))
        await house.crash(runner)
    calls = len(engine.calls)
    await house.runner()
    done = await house.ended(again)
    assert (done.content, done.finish_reason) == (whole.content, "stop")
    assert len(engine.calls) == calls


async def test_s5_an_empty_reply_is_an_error(house: House) -> None:
    await house.engine(stop=1.0)
    await house.runner()
    done = await house.ended(await house.ask(20))
    assert (done.status, done.error_code) == ("failed", "empty_reply")


async def test_one_partial_flush_a_second_for_all_streams(house: House, settings: object) -> None:
    settings.PERSIST_SECONDS = 1.0  # type: ignore[attr-defined]
    await house.engine(tokens_per_second=30)
    await house.runner()
    messages = [await house.ask(1500, prompt=[*PROMPT, n]) for n in range(64)]
    for message in messages:
        await house.emitted(message, 3)
    statements: list[str] = []

    def note(execute: object, sql: str, params: object, many: bool, context: object) -> object:
        statements.append(sql)
        return execute(sql, params, many, context)  # type: ignore[operator]

    original = partials.save

    def counted(rows: list[object]) -> object:
        with connections["default"].execute_wrapper(note):
            return original(rows)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partials, "save", counted)
        await asyncio.sleep(3.0)
    flushes = [sql for sql in statements if "INSERT INTO inference_partial" in sql]
    assert 2 <= len(flushes) <= 4
    saved = await run_db(Partial.objects.values("request_id").distinct().count)
    assert saved == 64
    for message in messages:
        await services.cancel(message.request_id)


async def test_a_deleted_conversation_does_not_fail_the_others(house: House) -> None:
    await house.engine(tokens_per_second=50)
    await house.runner()
    gone, kept = await house.ask(60), await house.ask(60, prompt=[*PROMPT, 7])
    await house.emitted(gone, 5)
    await run_db(gone.conversation.delete)
    assert (await house.ended(kept)).status == "complete"
    await wait_until(lambda: _released(house, gone))
    assert len(await house.ledger(gone)) == 1
    await house.nothing_is_held()


async def _released(house: House, message: object) -> bool:
    return (await house.request(message)).released_at is not None  # type: ignore[arg-type]
