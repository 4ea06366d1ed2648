"""From the head of a queue to a replica: peek, choose, commit, start."""

import asyncio
import contextlib
import random
from collections.abc import Mapping
from typing import TYPE_CHECKING
from uuid import UUID

import structlog

from chatsite.redis import ask, run_pipeline
from inference import prompt_store
from inference.models import Lane
from inference.prompt_store import StoredPrompt
from inference.redis import keys
from inference.redis.scheduler import committed
from inference.runner.foresight import Foresight
from inference.runner.placement import Placement
from inference.runner.planning import Plan, Planned, Retries
from inference.runner.pool import Pool
from inference.runner.preemption import Preemption
from inference.runner.shared_prefixes import SharedPrefixes
from inference.runner.stream import Stream
from inference.scheduling.answers import Head, Peeked, Refusal
from inference.scheduling.prefixes import Matched

if TYPE_CHECKING:
    from inference.runner.process import Runner

log = structlog.get_logger(__name__)
POLL_SECONDS = 0.25  # a nudge may be lost
PEEK = 8
GATHER_SECONDS = 0.005  # places become free meanwhile: to look costs Redis more than to place


class Dispatcher:
    """Feeds the replicas of one model."""

    def __init__(self, runner: "Runner", pool: Pool) -> None:
        self.runner, self.pool = runner, pool
        self.foresight, self._preemption = Foresight(pool), Preemption(pool)
        self.prefixes = SharedPrefixes(pool.client, pool.scheduler.prefix, pool.model.name, runner.id)
        self._prompts: dict[str, StoredPrompt | None] = {}  # of the heads that were seen last
        self._retries, self._random = Retries(), random.Random()
        self._wake = asyncio.Event()

    def wake(self) -> None:
        self._wake.set()

    async def look(self) -> None:
        """Once a second: how replicas and queues are. Raises RedisError."""
        if await self.pool.probe():
            self.wake()
        self.prefixes.use_block_size(self.pool.block_size)
        while self.pool.restarted:
            self.prefixes.forget(self.pool.restarted.pop())
        await self.foresight.look()

    async def run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):  # look all the same
                async with asyncio.timeout(POLL_SECONDS):
                    await self._wake.wait()
            self._wake.clear()
            while await self._dispatch():
                await asyncio.sleep(GATHER_SECONDS)

    async def _dispatch(self) -> bool:
        """Starts what can start; True when there may be more."""
        ready = [member.id for member in self.pool.ready]
        if not ready or self.runner.room <= 0:
            return False
        most = min(PEEK, self.runner.room)
        peeked = await self.pool.scheduler.peek(most, ready)
        if not peeked.heads:
            self._prompts.clear()
            return False
        await self._fetch_prompts(peeked)
        matches = {head.id: self._matches(head) for head in peeked.heads}
        plan = Plan(self.pool, peeked, matches, self._retries, self._random)
        if plan.stuck:
            await self._preemption.consider(plan.stuck[0], self.foresight.seen)
        if not plan.planned:
            return False
        started = await self._commit(plan.planned)
        return started > 0 and (len(peeked.heads) >= most or len(peeked.heads) > started)

    def _matches(self, head: Head) -> Mapping[str, Matched]:
        return self.prefixes.match(self.prefixes.hashes(head.id, self._prompts.get(head.id)))

    # Placing

    async def _commit(self, planned: list[Planned]) -> int:
        """How many have started."""
        room = self.runner.room
        calls = [
            self.pool.scheduler.commit_call(
                each.head, each.choice.id, str(self.runner.id), each.choice.uncached, passing=each.passing
            )
            for each in planned[:room]
        ]
        started = 0
        for each, answer in zip(planned, await run_pipeline(self.pool.client, calls), strict=False):
            if isinstance(answer, Exception):
                log.warning("commit refused", error=str(answer))
                continue
            result = committed(answer)
            if result.attempt:
                self._start(each, result.attempt)
                started += 1
            elif result.refusal is Refusal.REPLICA:  # Redis lost what was published
                await self.pool.publish()
        return started

    def _start(self, planned: Planned, attempt: int) -> None:
        head, choice = planned.head, planned.choice
        prompt = self._prompts.pop(head.id, None)
        hashes = self.prefixes.hashes(head.id, prompt)
        self._retries.started(head)
        placement = Placement(choice, hashes, planned.matches.get(choice.id), planned.before)
        stream = Stream(self.runner, self, planned.member, head, attempt, placement)
        if head.lane != Lane.BATCH:  # which may be held back yet
            self.placed(head, placement)
        self.runner.spawn(self.runner.run_stream(stream, prompt))

    def placed(self, head: Head, placement: Placement) -> None:
        """Its replica is about to read it."""
        choice, expected = placement.choice, placement.expected
        self.foresight.placed(head.lane, choice.uncached)
        self.prefixes.placed(choice.id, placement.hashes, expected.tokens if expected else 0)

    async def _fetch_prompts(self, peeked: Peeked) -> None:
        """Of the heads that are new; those that have gone are forgotten."""
        heads = {head.id for head in peeked.heads}
        self._prompts = {id: prompt for id, prompt in self._prompts.items() if id in heads and prompt is not None}
        missing = [id for id in heads if id not in self._prompts]
        if not missing:
            return
        found = await ask(self.pool.client, *[("GET", keys.prompt(UUID(id))) for id in missing])
        for id, packed in zip(missing, found, strict=True):
            self._prompts[id] = prompt_store.decode(packed) if packed else None
