"""Lesser work makes place for a request that would be late: told to its runner, which gives it back."""

import time
from dataclasses import replace

import structlog

from inference.forecast import Outlook
from inference.redis import rules
from inference.runner.pool import Pool
from inference.scheduling.admission import should_preempt, victim
from inference.scheduling.answers import Head

PAUSE_SECONDS = 0.2  # a place that was made takes a moment to become free

log = structlog.get_logger(__name__)


class Preemption:
    """Of one model's replicas."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._not_before = 0.0

    async def consider(self, head: Head, seen: Outlook | None) -> None:
        """`head` finds no place, and it is its turn. Raises RedisError."""
        if seen is None or time.monotonic() < self._not_before or not rules.settings().lane(head.lane).preempts:
            return
        waited = max(0.0, time.time() - head.rank / 1000)
        prediction = seen.prediction(head.lane, head.input, max(0, head.kv - head.input), ahead=0)
        # Where nothing ever ends the wait is endless, which is no prediction to turn anybody away by; but late it is.
        prediction = replace(prediction, trusted=seen.knows(head.lane))
        if not should_preempt(rules.settings(), head.lane, prediction, waited=waited, can_start=False):
            return
        usable = self._pool.usable()
        running = [each for each in await self._pool.scheduler.running() if each.replica in usable]
        chosen = victim(rules.settings(), head.lane, running)
        if chosen is not None:
            log.info("preempted", request=chosen.id, lane=chosen.lane, head=head.id, head_lane=head.lane)
            await self._pool.scheduler.preempt(chosen.id, chosen.attempt)
            self._not_before = time.monotonic() + PAUSE_SECONDS
