"""What may be wrong with an engine, and as what it is told."""

import asyncio

import pytest
from aiohttp import ClientSession

from inference import vllm
from inference.vllm import (
    Engine,
    EngineError,
    EngineGarbage,
    EngineMisconfigured,
    EngineRejected,
    EngineStalled,
    EngineUnavailable,
)
from tests.fakes.engine import FakeEngine
from tests.inference.engine_calls import PROMPT, call, collect, engine, fake, ids_of, session
from tests.waiting import wait_until

__all__ = ["engine", "fake", "session"]


class TestFaults:
    async def test_refused(self, engine: Engine, fake: FakeEngine) -> None:
        fake.kill()
        deltas, error = await collect(engine, call())
        assert (deltas, type(error)) == ([], EngineUnavailable)
        assert error is not None
        assert (error.code, error.status) == ("engine_unavailable", 503)
        assert not await engine.health()
        await fake.start()
        assert (await collect(engine, call()))[1] is None

    @pytest.mark.parametrize("url", ["http://no-such-host.invalid", "not a url", "ftp://127.0.0.1"])
    async def test_no_such_place(self, url: str, session: ClientSession) -> None:
        assert type((await collect(Engine(url, session), call()))[1]) is EngineUnavailable
        assert not await Engine(url, session).health()

    @pytest.mark.parametrize(
        ("kind", "expected"),
        [
            ("die", EngineUnavailable),
            ("reset", EngineUnavailable),
            ("error", EngineUnavailable),
            ("end", EngineUnavailable),
            ("garbage", EngineGarbage),
            ("half", EngineGarbage),
            ("count", EngineGarbage),
        ],
    )
    @pytest.mark.parametrize("after", [0, 7])
    async def test_mid_stream(
        self, kind: str, expected: type[EngineError], after: int, engine: Engine, fake: FakeEngine
    ) -> None:
        fake.options.tokens_per_second = 200
        fake.faults.stream, fake.faults.after = kind, after
        deltas, error = await collect(engine, call(50))
        assert type(error) is expected
        assert ids_of(deltas) == fake.model.vocabulary.expect(PROMPT, after)
        assert all(delta.finish_reason is None for delta in deltas)
        assert not fake.running

    @pytest.mark.parametrize("after", [0, 3])
    async def test_stalled(self, after: int, engine: Engine, fake: FakeEngine) -> None:
        fake.options.tokens_per_second = 100
        fake.faults.stream, fake.faults.after = "stall", after
        first, idle = (0.2, 30.0) if after == 0 else (30.0, 0.2)
        started = asyncio.get_running_loop().time()
        deltas, error = await collect(engine, call(50), first_token_timeout=first, idle_timeout=idle)
        assert type(error) is EngineStalled
        assert len(ids_of(deltas)) == after
        assert 0.2 <= asyncio.get_running_loop().time() - started < 2
        await wait_until(lambda: not fake.running, within=1)  # and the sequence is freed

    @pytest.mark.parametrize("after", [0, 3])
    async def test_an_engine_that_sends_anything_but_tokens_has_stalled(
        self, after: int, engine: Engine, fake: FakeEngine
    ) -> None:
        fake.options.tokens_per_second = 100
        fake.faults.stream, fake.faults.after = "chatter", after
        first, idle = (0.3, 30.0) if after == 0 else (30.0, 0.3)
        asked = collect(engine, call(50), first_token_timeout=first, idle_timeout=idle)
        deltas, error = await asyncio.wait_for(asked, 5)
        assert type(error) is EngineStalled
        assert len(ids_of(deltas)) == after
        await wait_until(lambda: not fake.running, within=1)

    @pytest.mark.parametrize("path", ["/health", "/metrics", "/v1/models"])
    async def test_what_is_asked_again_and_again_has_little_time(
        self, path: str, engine: Engine, fake: FakeEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(vllm, "LOOK_SECONDS", 0.1)
        fake.faults.silent = (path,)
        asked = {"/health": engine.health, "/metrics": engine.stats, "/v1/models": engine.served_models}
        with pytest.raises(EngineStalled):
            await asyncio.wait_for(asked[path](), 3)

    @pytest.mark.parametrize(
        ("status", "expected"),
        [
            (400, EngineRejected),
            (413, EngineRejected),
            (422, EngineRejected),
            (401, EngineMisconfigured),
            (404, EngineMisconfigured),
            (429, EngineMisconfigured),
            (500, EngineUnavailable),
            (503, EngineUnavailable),
        ],
    )
    async def test_s29_whose_fault_a_status_is(
        self, status: int, expected: type[EngineError], engine: Engine, fake: FakeEngine
    ) -> None:
        fake.faults.status = status
        _, error = await collect(engine, call())
        assert type(error) is expected
        assert error is not None
        assert error.message == f"The engine answered {status}: A fault was asked for."
        if isinstance(error, EngineRejected):
            assert (error.engine_status, error.status, error.code) == (status, 400, "invalid_input")

    async def test_what_the_engine_does_not_take(self, engine: Engine) -> None:
        for asked in (call(0), call(5000), call(5, min_tokens=6), call(5, temperature=-1.0), call(5, prompt_ids=[])):
            _, error = await collect(engine, asked)
            assert type(error) is EngineRejected

    async def test_another_model(self, engine: Engine) -> None:
        _, error = await collect(engine, call(model="other"))
        assert type(error) is EngineMisconfigured
        assert isinstance(error, EngineUnavailable)

    async def test_a_fault_that_ends(self, engine: Engine, fake: FakeEngine) -> None:
        fake.faults.stream, fake.faults.times = "reset", 2
        errors = [(await collect(engine, call()))[1] for _ in range(3)]
        assert [type(error) for error in errors] == [EngineUnavailable, EngineUnavailable, type(None)]
