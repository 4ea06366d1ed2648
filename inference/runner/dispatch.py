"""From the head of a queue to a replica: peek, choose, commit, start."""

import asyncio
import contextlib
from typing import TYPE_CHECKING

import structlog
from django.conf import settings

from chatsite.redis import Call, run_pipeline
from inference import prompt_store
from inference.prompt_store import StoredPrompt
from inference.redis import keys
from inference.redis.scheduler import Head
from inference.replicas import Member, Pool
from inference.routing import choose
from inference.runner.stream import Stream

if TYPE_CHECKING:
    from inference.runner.process import Runner

log = structlog.get_logger(__name__)
POLL_SECONDS = 0.25  # a nudge may be lost
PEEK = 8
WEIGHTS = {"enterprise": 50.0, "paid": 30.0, "free": 15.0, "batch": 5.0}


class Dispatcher:
    """Feeds the replicas of one model."""

    def __init__(self, runner: "Runner", pool: Pool) -> None:
        self.runner, self.pool = runner, pool
        self._wake = asyncio.Event()

    def wake(self) -> None:
        self._wake.set()

    async def run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):  # look all the same
                async with asyncio.timeout(POLL_SECONDS):
                    await self._wake.wait()
            self._wake.clear()
            while await self._dispatch():
                pass

    async def _dispatch(self) -> bool:
        """Starts what can start; True when there may be more."""
        views = self.pool.usable()
        if not views or self.runner.room <= 0:
            return False
        most = min(PEEK, self.runner.room)
        peeked = await self.pool.scheduler.peek(most, [view.id for view in views])
        taken = dict(zip((view.id for view in views), peeked.taken, strict=True))
        chosen: list[tuple[Head, Member]] = []
        calls: list[Call] = []
        for head in peeked.heads[: self.runner.room]:
            view = choose(((view, taken[view.id]) for view in views), head.avoid)
            if view is None:
                break
            taken[view.id] += 1
            chosen.append((head, self.pool.members[view.id]))
            calls.append(
                self.pool.scheduler.commit_call(
                    head,
                    view.id,
                    slots=view.slots,
                    runner=self.runner.id,
                    lease_seconds=settings.LEASE_SECONDS,
                    weight=WEIGHTS[head.lane],
                )
            )
        if not calls:
            return False
        attempts = await run_pipeline(self.pool.client, calls)
        started = [pair for pair, attempt in zip(chosen, attempts, strict=True) if _committed(attempt)]
        prompts = await self._prompts([head for head, _ in started])
        numbers = [attempt for attempt in attempts if _committed(attempt)]
        for (head, member), attempt, prompt in zip(started, numbers, prompts, strict=True):
            stream = Stream(self.runner, self.pool, member, head, attempt)
            self.runner.spawn(self.runner.run_stream(stream, prompt))
        return bool(started) and (len(peeked.heads) >= most or len(peeked.heads) > len(started))

    async def _prompts(self, heads: list[Head]) -> list[StoredPrompt | None]:
        if not heads:
            return []
        async with self.pool.client.pipeline(transaction=False) as pipe:
            for head in heads:
                pipe.get(keys.prompt(head.id))
            return [prompt_store.decode(packed) if packed else None for packed in await pipe.execute()]


def _committed(attempt: object) -> bool:
    if isinstance(attempt, Exception):
        log.warning("commit refused", error=str(attempt))
        return False
    return isinstance(attempt, int) and attempt > 0
