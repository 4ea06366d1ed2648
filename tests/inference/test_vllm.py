"""The edge to the engine: what streams, what fails and as what, and that closing frees the sequence."""

import asyncio
import contextlib

import pytest
from aiohttp import ClientSession

from inference.vllm import Delta, Engine, EngineGarbage, EngineMisconfigured, ServedModel
from tests.fakes.engine import FakeEngine
from tests.fakes.engine_tokens import bundled_model
from tests.fakes.http_server import chunk as http_chunk
from tests.inference.engine_calls import FINISHED, MODEL, PROMPT, call, collect, engine, fake, ids_of, session
from tests.waiting import wait_until

__all__ = ["engine", "fake", "session"]


class TestStream:
    async def test_tokens_text_counts(self, engine: Engine, fake: FakeEngine) -> None:
        deltas, error = await collect(engine, call(20))
        assert error is None
        assert ids_of(deltas) == fake.model.vocabulary.expect(PROMPT, 20)
        assert "".join(delta.text for delta in deltas) == fake.model.vocabulary.text(ids_of(deltas))
        assert [delta.finish_reason for delta in deltas] == [None] * (len(deltas) - 1) + ["length"]
        last = deltas[-1]
        assert (last.prompt_tokens, last.completion_tokens, last.cached_tokens) == (len(PROMPT), 20, 0)

    async def test_counts_come_as_they_grow(self, engine: Engine, fake: FakeEngine) -> None:
        fake.options.tokens_per_second = 200
        deltas, _ = await collect(engine, call(10))
        assert len(deltas) > 3
        counted = 0
        for delta in deltas:
            counted += len(delta.token_ids)
            assert (delta.prompt_tokens, delta.completion_tokens) == (len(PROMPT), counted)

    async def test_what_is_sent(self, engine: Engine, fake: FakeEngine) -> None:
        asked = call(5, temperature=0.5, top_p=0.9, seed=7, min_tokens=2, cache_salt="org", extra={"top_k": 3})
        await collect(engine, asked)
        sent = fake.calls[-1]
        assert sent.prompt_ids == PROMPT
        assert sent.body == {
            "top_k": 3,
            "temperature": 0.5,
            "top_p": 0.9,
            "seed": 7,
            "min_tokens": 2,
            "cache_salt": "org",
            "model": MODEL,
            "max_tokens": 5,
            "stream": True,
            "return_token_ids": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        }

    async def test_what_is_not_said_is_left_to_the_engine(self, engine: Engine, fake: FakeEngine) -> None:
        await collect(engine, call(1, temperature=0.0))
        assert fake.calls[-1].body["temperature"] == 0.0
        await collect(engine, call(1))
        assert not {"temperature", "top_p", "seed", "min_tokens", "cache_salt"} & fake.calls[-1].body.keys()

    async def test_extra_does_not_replace_what_we_rely_on(self, engine: Engine, fake: FakeEngine) -> None:
        _, error = await collect(engine, call(3, extra={"max_tokens": 9, "stream": False, "return_token_ids": False}))
        assert error is None
        assert fake.calls[-1].body["max_tokens"] == 3

    async def test_end_of_reply_token(self, engine: Engine, fake: FakeEngine) -> None:
        fake.options.stop = 0.2
        deltas, _ = await collect(engine, call(500))
        assert deltas[-1].finish_reason == "stop"
        assert ids_of(deltas)[-1] == fake.model.vocabulary.eos_id

    async def test_a_chunk_without_text(self, engine: Engine, fake: FakeEngine) -> None:
        fake.options.emoji, fake.options.tokens_per_second = 0.5, 300
        deltas, _ = await collect(engine, call(30))
        assert [] not in [delta.token_ids for delta in deltas[:-1]]
        assert "" in [delta.text for delta in deltas]
        ids = bundled_model().text_ids("".join(delta.text for delta in deltas))
        assert ids_of(deltas)[: len(ids)] == ids  # it may end inside an emoji
        assert len(ids) > 25

    async def test_cached_tokens_by_salt(self, engine: Engine) -> None:
        long = list(range(100, 400))
        told = []
        for salt in ("a", "a", "b"):
            deltas, _ = await collect(engine, call(2, prompt_ids=long, cache_salt=salt))
            told.append(deltas[-1].cached_tokens)
        assert told == [0, 256, 0]

    async def test_prompt_plus_generated_goes_on_exactly(self, engine: Engine) -> None:
        whole = ids_of((await collect(engine, call(30)))[0])
        for cut in (1, 13, 29):
            rest, _ = await collect(engine, call(30 - cut, prompt_ids=PROMPT + whole[:cut]))
            assert ids_of(rest) == whole[cut:]

    async def test_its_connection_is_used_again(self, engine: Engine, fake: FakeEngine) -> None:
        for _ in range(5):
            await collect(engine, call(5))
        assert len(fake._connections) == 1

    async def test_its_connection_is_used_again_when_the_response_ends_late(self, session: ClientSession) -> None:
        connections = 0

        async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal connections
            connections += 1
            with contextlib.suppress(asyncio.IncompleteReadError):  # the client has gone
                while await reader.readuntil(b"}}"):
                    writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + http_chunk(FINISHED))
                    await asyncio.sleep(0.02)
                    writer.write(b"0\r\n\r\n")

        server = await asyncio.start_server(late, "127.0.0.1", 0)
        engine = Engine(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", session)
        for _ in range(3):
            deltas, error = await collect(engine, call(5))
            assert (ids_of(deltas), error) == ([7], None)
        assert connections == 1
        server.close()

    async def test_many_at_once(self, engine: Engine, fake: FakeEngine) -> None:
        results = await asyncio.gather(*(collect(engine, call(50, prompt_ids=[*PROMPT, n])) for n in range(150)))
        for number, (deltas, error) in enumerate(results):
            assert error is None
            assert ids_of(deltas) == fake.model.vocabulary.expect([*PROMPT, number], 50)


class TestClosing:
    @pytest.fixture(autouse=True)
    def slow(self, fake: FakeEngine) -> None:
        fake.options.tokens_per_second = 50

    async def freed(self, fake: FakeEngine) -> None:
        await wait_until(lambda: fake.aborted == 1 and not fake.running, within=1)
        assert fake.calls[-1].outcome == "aborted"

    async def test_s10_leaving_the_loop_frees_the_sequence(self, engine: Engine, fake: FakeEngine) -> None:
        async with engine.stream(call(1000)) as stream:
            async for _ in stream:
                break
        await self.freed(fake)

    async def test_s10_cancelling_the_task_frees_the_sequence(self, engine: Engine, fake: FakeEngine) -> None:
        task = asyncio.create_task(collect(engine, call(1000)))
        await wait_until(lambda: fake.tokens > 3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await self.freed(fake)

    async def test_s13_another_task_may_close_it(self, engine: Engine, fake: FakeEngine) -> None:
        stream = engine.stream(call(1000))

        async def read() -> list[Delta]:
            return [delta async for delta in stream]

        task = asyncio.create_task(read())
        await wait_until(lambda: fake.tokens > 3)
        stream.close()
        deltas = await asyncio.wait_for(task, 1)
        assert deltas
        assert deltas[-1].finish_reason is None
        await self.freed(fake)
        await stream.aclose()
        assert [delta async for delta in stream] == []

    @pytest.mark.parametrize("how", ["close", "cancel"])
    async def test_s11_before_the_first_token(self, how: str, engine: Engine, fake: FakeEngine) -> None:
        fake.options.first_token_seconds = 60
        stream = engine.stream(call(10))
        task = asyncio.ensure_future(anext(stream, None))
        await wait_until(lambda: fake.running)
        stream.close() if how == "close" else task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            assert await asyncio.wait_for(task, 1) is None
        await self.freed(fake)

    @pytest.mark.parametrize("how", ["close", "cancel"])
    async def test_s11_before_the_engine_has_answered_at_all(self, how: str, session: ClientSession) -> None:
        closed = asyncio.Event()

        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while await reader.read(1024):
                pass
            closed.set()
            writer.close()

        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        stream = Engine(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", session).stream(call(10))
        task = asyncio.ensure_future(anext(stream, None))
        await asyncio.sleep(0.05)
        stream.close() if how == "close" else task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            assert await asyncio.wait_for(task, 1) is None
        await asyncio.wait_for(closed.wait(), 1)
        server.close()

    async def test_in_the_queue_of_the_engine(self, engine: Engine, fake: FakeEngine) -> None:
        fake.options.max_num_seqs = 1
        first = asyncio.create_task(collect(engine, call(1000)))
        await wait_until(lambda: fake.tokens > 1)
        second = asyncio.create_task(collect(engine, call(1000)))
        await wait_until(lambda: fake.waiting)
        assert (await engine.stats()).waiting == 1
        second.cancel()
        await wait_until(lambda: not fake.waiting, within=1)
        assert fake.running == 1
        await engine.close()
        assert (await first)[1] is None
        await wait_until(lambda: not fake.running, within=1)

    async def test_a_slow_reader_is_not_a_stalled_engine(self, engine: Engine) -> None:
        async with engine.stream(call(10), first_token_timeout=0.2, idle_timeout=0.1) as stream:
            got = ids_of([await anext(stream)])
            await asyncio.sleep(0.3)
            got += ids_of([delta async for delta in stream])
        assert len(got) == 10


class TestCalls:
    async def test_health(self, engine: Engine, fake: FakeEngine) -> None:
        assert await engine.health()
        fake.faults.unhealthy = True
        assert not await engine.health()

    async def test_served_models(self, engine: Engine) -> None:
        assert await engine.served_models() == [ServedModel(MODEL, 4096)]

    async def test_tokenize(self, engine: Engine) -> None:
        ids = await engine.tokenize(MODEL, [{"role": "user", "content": "hi"}])
        assert ids == bundled_model().chat_ids([{"role": "user", "content": "hi"}])
        with pytest.raises(EngineMisconfigured):
            await engine.tokenize("other", [])

    async def test_stats(self, engine: Engine, fake: FakeEngine) -> None:
        fake.options.first_token_seconds = 60
        stream = engine.stream(call(10))
        task = asyncio.ensure_future(anext(stream, None))
        await wait_until(lambda: fake.running)
        stats = await engine.stats()
        assert (stats.running, stats.waiting, stats.block_size, stats.kv_blocks) == (1, 0, 128, 8192)
        assert 0 < stats.kv_usage < 0.01
        stream.close()
        await task

    async def test_a_page_that_is_no_engine(self, session: ClientSession) -> None:
        async def page(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(4096)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\nconnection: close\r\n\r\n<html>")
            writer.close()

        server = await asyncio.start_server(page, "127.0.0.1", 0)
        engine = Engine(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", session)
        for ask in (engine.served_models, engine.stats):
            with pytest.raises(EngineGarbage):
                await ask()
        _, error = await collect(engine, call())
        assert type(error) is EngineGarbage
        server.close()
