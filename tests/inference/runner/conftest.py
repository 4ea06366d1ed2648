"""A house in one event loop: fake engines, runners, and replies that wait for them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import pytest
import pytest_asyncio

from chatsite.concurrency import end_tasks
from chatsite.database import run_db
from chatsite.ids import new_id
from chatsite.redis import async_client
from conversations.models import Conversation, Message
from inference import forecast, replicas, services, tuning
from inference.events import tail
from inference.models import Model, Replica, Request
from inference.protocol import LogEvent, Prepared, Sampling, TokensEvent
from inference.redis import keys
from inference.runner.process import Runner
from quotas.models import LedgerEntry
from quotas.selectors import plan_of
from quotas.services import Want, reserve
from tests.conftest import Person
from tests.fakes.engine import FakeEngine, Options
from tests.fakes.engine_tokens import FakeModel
from tests.tuning import atune
from tests.waiting import PATIENCE_SECONDS, wait_until

MODEL_PATH = "var/models/smollm2-135m"
PROMPT = [1, 4093, 198, 2683, 359]
fake_model = FakeModel(Path(MODEL_PATH))


@dataclass
class House:
    """What a test has: engines, runners, and a way to ask for replies."""

    person: Person
    model: Model
    stack: AsyncExitStack
    engines: list[FakeEngine] = field(default_factory=list)
    runners: list[tuple[Runner, asyncio.Task[None], asyncio.Event]] = field(default_factory=list)

    async def engine(self, **options: object) -> FakeEngine:
        """Starts an engine and registers it as a replica."""
        engine = FakeEngine(Options(model_path=MODEL_PATH, **options), model=fake_model)  # type: ignore[arg-type]
        await self.stack.enter_async_context(engine)
        self.engines.append(engine)
        await run_db(Replica.objects.create, model=self.model, url=engine.url)
        return engine

    async def runner(self) -> Runner:
        """Starts a runner, and waits until it sees a replica where there is one."""
        stop, runner = asyncio.Event(), Runner()
        task = asyncio.create_task(runner.run(stop))
        self.runners.append((runner, task, stop))
        if any(engine._server for engine in self.engines):
            await wait_until(lambda: any(d.pool.usable() for d in runner.dispatchers.values()))
        return runner

    async def end(self, runner: Runner) -> None:
        """SIGTERM: hands over, then ends."""
        for each, task, stop in self.runners:
            if each is runner:
                stop.set()
                await task

    async def crash(self, runner: Runner) -> None:
        """kill -9: everything it does stops at once; nothing is handed over, nothing is said to Redis or PostgreSQL."""
        for each, task, _ in self.runners:
            if each is runner:
                runner.draining = True
                tasks = [task, *runner._loops, *runner._tasks]
                tasks += [stream._upstream for stream in runner.streams.values() if stream._upstream]
                await end_tasks(tasks)
                for dispatcher in runner.dispatchers.values():
                    await dispatcher.pool.close()

    async def ask(
        self,
        tokens: int = 30,
        *,
        prompt: list[int] | None = None,
        on: Message | None = None,
        tier: str = "paid",
        salt: str = "salt",
        **sampling: object,
    ) -> Message:
        """A reply that waits in the queue; `on` continues one that has ended."""
        message, opened = await run_db(self._write, tokens, prompt or PROMPT, on, (tier, salt), sampling)
        plan = await run_db(plan_of, self.person.organization.id)
        await reserve(self.person.principal, plan, {opened.id: Want(len(opened.prepared.token_ids) + tokens)}, _wait())
        await services.submit(opened)
        return message

    def _write(
        self, tokens: int, prompt: list[int], on: Message | None, place: tuple[str, str], sampling: dict[str, object]
    ) -> tuple[Message, services.OpenedRequest]:
        request_id, (tier, salt) = new_id(), place
        base = token_ids(on) if on else []
        if on:
            message = on
            Message.objects.filter(id=on.id).update(status="pending", request_id=request_id)
        else:
            conversation = Conversation.objects.create(
                organization=self.person.organization, user=self.person.user, model=self.model
            )
            user = Message.objects.create(conversation=conversation, role="user", content="hello")
            message = Message.objects.create(
                conversation=conversation,
                parent=user,
                role="assistant",
                status="pending",
                model=self.model,
                request_id=request_id,
            )
        message.request_id = request_id
        opened = services.open_request(
            request_id=request_id,
            principal=self.person.principal,
            tier=tier,
            prepared=Prepared(self.model.name, prompt + base, Sampling(tokens, **sampling), salt),  # type: ignore[arg-type]
            owner_kind="message",
            owner_id=message.id,
            base_tokens=len(base),
            base_chars=len(on.content) if on else 0,
        )
        return message, opened

    async def reload(self, message: Message) -> Message:
        return await run_db(Message.objects.get, id=message.id)

    async def request(self, message: Message) -> Request:
        return await run_db(Request.objects.get, id=message.request_id)

    async def ended(self, message: Message, within: float = PATIENCE_SECONDS) -> Message:
        """The message once it is terminal and everything it held is released."""

        async def over() -> bool:
            return (await self.request(message)).released_at is not None

        await wait_until(over, within, message=f"not released: {await self.request(message)}")
        return await self.reload(message)

    async def emitted(self, message: Message, least: int, within: float = PATIENCE_SECONDS) -> None:
        """Waits until the reply's log has so many tokens."""

        async def there() -> bool:
            entries = await async_client().xrevrange(keys.out(message.request_id), count=1)  # type: ignore[arg-type]
            return bool(entries) and int(entries[0][0].partition(b"-")[0]) >= least

        await wait_until(there, within)

    def expected(self, tokens: int, prompt: list[int] | None = None, emoji: float = 0.0) -> tuple[list[int], str]:
        """Ids and text of an uninterrupted reply."""
        ids = fake_model.vocabulary.expect(prompt or PROMPT, tokens, emoji)
        return ids, fake_model.vocabulary.text(ids)

    async def ledger(self, message: Message) -> list[LedgerEntry]:
        return await run_db(lambda: list(LedgerEntry.objects.filter(request_id=message.request_id)))

    async def nothing_is_held(self) -> None:
        """No queue, lease, request or count is left in the scheduler, and no reservation."""
        client, prefix = async_client(), keys.scheduler(self.model.name)
        for name in ("lease", "deadline", "ended"):
            assert await client.zcard(f"{prefix}:{name}") == 0, name
        assert [key async for key in client.scan_iter(f"{prefix}:req:*")] == []
        async for key in client.scan_iter(f"{prefix}:rep:*"):
            assert int(await client.hget(key, "n") or 0) == 0
        from quotas.selectors import remaining

        plan = await run_db(plan_of, self.person.organization.id)
        assert all(each.running == 0 for each in (await remaining(self.person.principal, plan)).standings)


async def up(house: House) -> None:
    """The plain model's engine and a runner, which has told what it sees."""
    await house.engine()
    await house.runner()
    told = keys.forecast(keys.scheduler(house.model.name))
    await wait_until(lambda: async_client().exists(told))
    forecast.forget()


def token_ids(message: Message) -> list[int]:
    return list(memoryview(bytes(message.token_ids)).cast("I"))


def _wait() -> float:
    return tuning.queue_timeout("paid")


class Reader:
    """Reads a log as a browser would, by character positions."""

    def __init__(self, request_id: UUID) -> None:
        self.events: list[LogEvent] = []
        self.text = ""
        self._task = asyncio.create_task(self._read(request_id))

    async def _read(self, request_id: UUID) -> None:
        async for event in tail(request_id):
            if event is None:
                continue
            self.events.append(event)
            if isinstance(event, TokensEvent):
                assert event.from_char <= len(self.text), "a gap"
                self.text += event.text[len(self.text) - event.from_char :]

    async def done(self) -> str:
        await asyncio.wait_for(self._task, 15)
        return self.text


@pytest.fixture
def model(database: None) -> Model:
    return Model.objects.create(
        name="smollm2-135m",
        title="SmolLM2",
        context_length=4096,
        path=MODEL_PATH,
        tiers=["free", "paid", "enterprise"],
        price_input="0.10",
        price_cached="0.01",
        price_output="0.40",
    )


@pytest.fixture
def big(model: Model) -> Model:
    """Nobody serves it. The plain model stands in for it."""
    return Model.objects.create(
        name="big",
        title="Big",
        context_length=8192,
        path=MODEL_PATH,
        fallback=model.name,
        tiers=["free", "paid"],
        price_input="9",
        price_cached="9",
        price_output="9",
    )


@pytest_asyncio.fixture
async def house(model: Model, person: Person, settings: object) -> AsyncIterator[House]:
    await atune(lease={"lease_seconds": 3.0, "heartbeat_seconds": 0.2, "abort_seconds": 2.2})
    settings.PREFILL_TOKENS_PER_SECOND = 50_000.0  # type: ignore[attr-defined]
    settings.PERSIST_SECONDS = 0.2  # type: ignore[attr-defined]
    async with AsyncExitStack() as stack:
        here = House(person, model, stack)
        yield here
        for runner, task, stop in here.runners:
            if not task.done():
                stop.set()
                await task
            else:
                await here.crash(runner)
        await replicas.close_session()
