"""A request's life with real stores and fake engines: claim, stream, heartbeat, settle, and every way to be cut."""

import asyncio
from decimal import Decimal

import pytest
from django.db import OperationalError, connection, connections, transaction
from django.db.backends.utils import CursorWrapper
from django.test.utils import CaptureQueriesContext

from chatsite.database import run_db
from chatsite.ids import new_id
from chatsite.redis import async_client, sync_client
from inference import claims, services, sweep
from inference.models import Partial, Replica, Request, RequestStatus
from inference.protocol import RetryingEvent, StartedEvent
from inference.redis import keys
from inference.runner.shared_prefixes import SharedPrefixes
from tests.inference.runner.conftest import PROMPT, House, Reader
from tests.tuning import atune, patience
from tests.waiting import wait_until


async def test_a_reply_streams_and_everything_is_settled(house: House) -> None:
    engine = await house.engine(tokens_per_second=200)
    await house.runner()
    message = await house.ask(30)
    reader = Reader(message.request_id)
    done = await house.ended(message)
    ids, text = house.expected(30)
    assert (done.status, done.finish_reason, done.content) == ("complete", "length", text)
    assert list(memoryview(bytes(done.token_ids)).cast("I")) == ids
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


@pytest.mark.parametrize("emoji", [0.0, 0.7])
async def test_s2_a_dead_engine_is_followed_by_another_exactly(house: House, emoji: float) -> None:
    first = await house.engine(tokens_per_second=100, emoji=emoji)
    await house.runner()
    message = await house.ask(60)
    reader = Reader(message.request_id)
    await house.emitted(message, 7)
    second = await house.engine(tokens_per_second=300, emoji=emoji)
    first.kill()
    done = await house.ended(message, 12)
    ids, text = house.expected(60, emoji=emoji)
    assert list(memoryview(bytes(done.token_ids)).cast("I")) == ids
    if emoji:  # the last character may be cut by the length
        text = text[: len(done.content)]
    assert (done.status, done.content) == ("complete", text)
    assert await reader.done() == text
    assert any(isinstance(event, RetryingEvent) for event in reader.events)
    assert second.calls[0].prompt_ids[: len(PROMPT)] == PROMPT
    assert len(second.calls[0].prompt_ids) > len(PROMPT)
    [entry] = await house.ledger(message)
    assert (entry.input, entry.output) == (len(PROMPT), 60)  # s23: the prompt once, each token once
    await house.nothing_is_held()


async def test_s2_with_no_engine_left_the_message_fails_and_keeps_its_text(house: House) -> None:
    await atune(lanes=patience(1.0), lease={"requeued_wait_seconds": 0.5})
    engine = await house.engine(tokens_per_second=100)
    await house.runner()
    message = await house.ask(500)
    reader = Reader(message.request_id)
    await house.emitted(message, 10)
    engine.kill()
    done = await house.ended(message)
    assert (done.status, done.error_code) == ("failed", "engine_unavailable")
    count = len(done.token_ids) // 4
    assert count >= 10
    assert done.content == house.expected(count)[1] == await reader.done()
    [entry] = await house.ledger(message)
    assert entry.output == count
    await house.nothing_is_held()


async def test_s2_a_dead_runner_is_followed_by_another_exactly(house: House) -> None:
    engine = await house.engine(tokens_per_second=60)
    runner = await house.runner()
    messages = [await house.ask(100, prompt=[*PROMPT, n]) for n in range(5)]
    readers = [Reader(message.request_id) for message in messages]
    for message in messages:
        await house.emitted(message, 5)
    await house.crash(runner)
    await house.runner()
    for number, (message, reader) in enumerate(zip(messages, readers, strict=True)):
        done = await house.ended(message)
        text = house.expected(100, [*PROMPT, number])[1]
        assert (done.status, done.content) == ("complete", text)
        assert await reader.done() == text
        [entry] = await house.ledger(message)
        assert entry.output == 100
    assert len(engine.calls) == 10
    await house.nothing_is_held()


async def test_a_runner_that_ends_hands_over_at_once(house: House) -> None:
    engine = await house.engine(tokens_per_second=60)
    first = await house.runner()
    second = await house.runner()
    messages = [await house.ask(100, prompt=[*PROMPT, n]) for n in range(6)]
    for message in messages:
        await house.emitted(message, 3)
    loop = asyncio.get_running_loop()
    started = loop.time()
    await house.end(first)
    assert loop.time() - started < 3
    assert first.streams == {}
    for number, message in enumerate(messages):
        done = await house.ended(message)
        assert done.content == house.expected(100, [*PROMPT, number])[1]
    assert len(second.streams) == 0
    assert engine.running == 0
    failures = await asyncio.gather(*(house.request(message) for message in messages))
    assert max(request.attempt for request in failures) <= 2
    await house.nothing_is_held()


async def test_redis_emptied_mid_reply_and_the_reply_goes_on(house: House) -> None:
    engine = await house.engine(tokens_per_second=60)
    await house.runner()
    message = await house.ask(90)
    reader = Reader(message.request_id)
    await house.emitted(message, 10)
    await async_client().flushdb()
    done = await house.ended(message)
    text = house.expected(90)[1]
    assert (done.status, done.content) == ("complete", text)
    assert await reader.done() == text
    assert len(engine.calls) == 1
    [entry] = await house.ledger(message)
    assert entry.output == 90
    await house.nothing_is_held()


async def test_redis_emptied_while_it_waits_and_it_is_entered_again(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "UNKNOWN_AFTER", sweep.timedelta(seconds=0.2))
    message = await house.ask(10)
    await async_client().flushdb()
    await house.engine()
    await house.runner()
    done = await house.ended(message)
    assert done.status == "complete"  # its prompt was made again from the conversation
    await house.nothing_is_held()


async def test_redis_emptied_and_the_runner_dead_the_reply_goes_on_elsewhere(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await house.engine(tokens_per_second=60)
    runner = await house.runner()
    message = await house.ask(60)
    await house.emitted(message, 20)
    await wait_until(lambda: run_db(Partial.objects.exists))
    await house.crash(runner)
    await async_client().flushdb()
    await house.runner()
    done = await house.ended(message, 15)
    assert done.status == "complete"
    assert len(done.token_ids) // 4 == 60
    assert len(engine.calls) == 2
    assert len(engine.calls[1].prompt_ids) > 10  # what PostgreSQL had was not generated again
    await house.nothing_is_held()


@pytest.mark.parametrize("end", ["stop", "engine dies", "runner dies"])
async def test_s19_s23_tokens_after_a_cut_are_the_engines_own_and_billed_once(house: House, end: str) -> None:
    await atune(lanes=patience(1.0), lease={"requeued_wait_seconds": 0.5})
    engine = await house.engine(tokens_per_second=100)
    runner = await house.runner()
    message = await house.ask(2000)
    await house.emitted(message, 20)
    if end == "stop":
        await services.cancel(message.request_id)
    elif end == "engine dies":
        engine.kill()
    else:
        await house.crash(runner)
        engine.kill()
        await house.runner()
    done = await house.ended(message, 15)
    ids = list(memoryview(bytes(done.token_ids)).cast("I"))
    assert len(ids) >= 20
    assert ids == engine.calls[0].token_ids[: len(ids)]  # each of them came from the engine, none is estimated
    assert (done.usage_input, done.usage_output) == (len(PROMPT), len(ids))
    [entry] = await house.ledger(message)
    assert (entry.input, entry.cached, entry.output) == (len(PROMPT), 0, len(ids))
    assert entry.source == "estimate"  # of what was cached alone: the engine tells it at the end of a whole reply
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
    from inference import settlement

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


@pytest.mark.parametrize("fault", ["stall", "reset", "error", "end", "garbage", "half", "count"])
async def test_a_faulty_engine_is_followed_by_another_exactly(house: House, fault: str) -> None:
    await atune(ejection={"silence_seconds": 0.5})
    for _ in range(2):  # the one that takes over fails once too
        engine = await house.engine(tokens_per_second=200)
        engine.faults.stream, engine.faults.after, engine.faults.times = fault, 10, 1
    await house.runner()
    message = await house.ask(40)
    done = await house.ended(message, 12)
    assert (done.status, done.content) == ("complete", house.expected(40)[1])
    assert (await house.request(message)).attempt >= 2
    [entry] = await house.ledger(message)
    assert entry.output == 40
    await house.nothing_is_held()


async def test_an_engine_without_a_first_token_is_left_for_another(house: House) -> None:
    await atune(ejection={"silence_seconds": 0.5})
    stuck, other = await house.engine(first_token_seconds=30), await house.engine()
    await house.runner()
    message = await house.ask(10)
    done = await house.ended(message)
    assert done.content == house.expected(10)[1]
    request = await house.request(message)
    assert request.attempt == 2 and request.first_token_at is not None
    # Three times what was predicted would be 0.3 ms: at least a second, so that healthy engines are not blamed
    assert (request.first_token_at - request.created_at).total_seconds() >= 1
    assert (len(stuck.calls), len(other.calls)) == (1, 1)


async def test_s29_a_request_that_the_engine_refuses_is_its_own_fault(house: House) -> None:
    engine = await house.engine()
    runner = await house.runner()
    for _ in range(6):
        message = await house.ask(20, extra={"temperature": -1.0})
        done = await house.ended(message)
        assert (done.status, done.error_code) == ("failed", "engine_rejected")
    assert len(engine.calls) == 0
    done = await house.ended(await house.ask(20))
    assert done.status == "complete"
    [pool] = [dispatcher.pool for dispatcher in runner.dispatchers.values()]
    assert len(pool.usable()) == 1


async def test_three_failed_attempts_end_the_request(house: House) -> None:
    engine = await house.engine()
    engine.faults.status = 500
    await house.runner()
    message = await house.ask(20)
    done = await house.ended(message)
    assert (done.status, done.error_code) == ("failed", "engine_unavailable")
    assert (await house.request(message)).attempt == 3
    [entry] = await house.ledger(message)
    assert (entry.input, entry.output, entry.cost) == (0, 0, 0)
    await house.nothing_is_held()


async def test_a_wait_without_an_engine_ends(house: House) -> None:
    await atune(lanes=patience(0.5))
    message = await house.ask(20)
    await wait_until(lambda: _expired(house, message), 5)
    done = await house.reload(message)
    assert (done.status, done.error_code) == ("failed", "engine_unavailable")
    await house.nothing_is_held()


async def _expired(house: House, message: object) -> bool:
    await sweep.sweep()
    return (await house.request(message)).status == RequestStatus.EXPIRED  # type: ignore[arg-type]


async def test_s15_continue_joins_at_the_token(house: House) -> None:
    await house.engine(tokens_per_second=500, emoji=0.6)
    await house.runner()
    for cut in range(8, 14):
        message = await house.ended(await house.ask(cut))
        done = await house.ended(await house.ask(40 - cut, on=message))
        ids, text = house.expected(40, emoji=0.6)
        assert list(memoryview(bytes(done.token_ids)).cast("I")) == ids
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

    from inference.runner.stream import Stream

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


async def test_without_background_work_a_ready_engine_is_not_probed(house: House, settings: object) -> None:
    settings.BACKGROUND = False  # type: ignore[attr-defined]
    engine = await house.engine(tokens_per_second=100)
    runner = await house.runner()
    [pool] = [dispatcher.pool for dispatcher in runner.dispatchers.values()]
    engine.kill()
    await pool.probe()
    assert len(pool.usable()) == 1  # nobody asked
    message = await house.ask(10)
    await wait_until(lambda: not pool.usable())  # the request found out
    await engine.start()
    assert (await house.ended(message)).status == "complete"


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

    from inference import partials

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


async def test_a_fenced_runner_appends_nothing(house: House) -> None:
    await house.engine(tokens_per_second=50)
    runner = await house.runner()
    message = await house.ask(400)
    await house.emitted(message, 5)
    stream = runner.streams[message.request_id]
    sync_client().hset(f"{keys.log(message.request_id)}:meta", mapping={"claim": "another", "attempt": 2})
    await wait_until(lambda: message.request_id not in runner.streams, 2)
    assert stream.interruption == "fenced"
    length = sync_client().xlen(keys.out(message.request_id))
    assert await run_db(Request.objects.get, id=message.request_id)
    assert sync_client().xlen(keys.out(message.request_id)) == length


async def test_a_claim_that_a_crash_of_postgresql_forgot_is_taken_again(house: House) -> None:
    """A claim does not wait for the disk: PostgreSQL may come back without it, while its runner streams on."""
    await house.engine(tokens_per_second=100)
    await house.runner()
    message = await house.ask(100)
    reader = Reader(message.request_id)
    await house.emitted(message, 20)
    before = {"status": RequestStatus.QUEUED, "attempt": 0, "claim": None, "claimed_at": None, "replica": None}
    await run_db(lambda: Request.objects.filter(id=message.request_id).update(**before))
    await run_db(lambda: Partial.objects.filter(request_id=message.request_id).delete())
    done = await house.ended(message, 20)
    ids, text = house.expected(100)
    assert (done.status, done.content) == ("complete", text)
    assert list(memoryview(bytes(done.token_ids)).cast("I")) == ids
    assert await reader.done() == text
    [entry] = await house.ledger(message)
    assert (entry.output, entry.outcome) == (100, "succeeded")
    await house.nothing_is_held()


async def test_only_the_claim_itself_does_not_wait_for_the_disk(house: House) -> None:
    message = await house.ask(10)
    replica = await run_db(Replica.objects.create, model=house.model, url="http://127.0.0.1:1")

    def waits(cursor: CursorWrapper) -> str:
        cursor.execute("SHOW synchronous_commit")
        return str(cursor.fetchone()[0])

    def taken() -> tuple[str, str]:
        with connection.cursor() as cursor:
            cursor.execute("SET synchronous_commit TO on")  # the tests' server does without
            with transaction.atomic():
                assert claims.take(message.request_id, new_id(), 1, replica.id, {}) is not None
                inside = waits(cursor)
            return inside, waits(cursor)

    assert await run_db(taken) == ("off", "on")


async def test_a_claim_that_nobody_hears_of_is_one_statement(house: House) -> None:
    message = await house.ask(10)
    replica = await run_db(Replica.objects.create, model=house.model, url="http://127.0.0.1:1")
    await run_db(lambda: Request.objects.filter(id=message.request_id).update(owner_kind="completion"))

    def taken() -> tuple[Request | None, int]:
        with CaptureQueriesContext(connection) as statements:
            request = claims.take(message.request_id, new_id(), 1, replica.id, {}, "completion")
        return request, len(statements)

    request, statements = await run_db(taken)
    assert request is not None and (request.status, request.attempt) == (RequestStatus.RUNNING, 1)
    assert statements == 1
    assert (await house.reload(message)).status == "pending"  # its owner was not told


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
