"""What a runner sees coming: predictions for those that wait, corrected by what happened, told to all processes."""

import math
import time
from datetime import datetime

from inference import admission, forecast
from inference.forecast import Outlook, Place, by_lane
from inference.models import Request
from inference.redis import keys, rules
from inference.runner.pool import Pool
from inference.scheduling.prediction import Predictor
from inference.scheduling.settings import LANES

MEAN_ALPHA = 0.1


class Foresight:
    """Of one model."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._predictors = {lane: Predictor(rules.settings().prediction) for lane in LANES}
        self._take_up_settings()
        self._uncached = dict.fromkeys(LANES, 0.0)  # tokens of a request, by lane: a moving average
        self.seen: Outlook | None = None
        self._told = False  # an outlook, not that there is none

    def _take_up_settings(self) -> None:
        """They may have been changed."""
        for predictor in self._predictors.values():
            predictor.settings = rules.settings().prediction

    def placed(self, lane: str, uncached: int) -> None:
        """A request of the lane was given to a replica, which has to prefill so many tokens of it."""
        mean = self._uncached[lane]
        self._uncached[lane] = mean + MEAN_ALPHA * (uncached - mean) if mean else float(uncached)

    def first_token(self, request: Request, at: datetime) -> None:
        """A first attempt's prediction against what happened."""
        predicted = admission.predicted(request.decision)
        if predicted is not None:
            self._predictors[request.lane].observe(predicted, (at - request.created_at).total_seconds(), at.timestamp())

    async def look(self) -> None:
        """Sees how the queues and replicas are, and tells it. Raises RedisError."""
        self._take_up_settings()
        scheduler, ready = self._pool.scheduler, [member.id for member in self._pool.ready]
        peeked = await scheduler.peek(0, ready)
        usable = self._pool.usable()
        loads = [self._pool.members[id].load(held, usable=True) for id, held in peeked.replicas.items() if id in usable]
        async with self._pool.client.pipeline(transaction=False) as pipe:
            pipe.hmget(keys.lengths(scheduler.prefix), list(LANES))
            pipe.hmget(keys.running(scheduler.prefix), list(LANES))
            pipe.hmget(keys.pace(scheduler.prefix), ["gap", "last"])
            lengths, running, (gap, last) = await pipe.execute()
        self.seen = Outlook(
            waiting=dict.fromkeys(LANES, 0) | by_lane(lengths),
            running=by_lane(running),
            uncached=dict(self._uncached),
            learned={lane: predictor.learned for lane, predictor in self._predictors.items()},
            places=[Place.of(each) for each in loads],
            ends=_ends_per_second(gap, last),
        )
        if ready:
            await forecast.publish(self._pool.client, scheduler.prefix, self.seen)
        elif self._told:  # once: another runner may still see one that is ready
            await forecast.withdraw(self._pool.client, scheduler.prefix)
        self._told = bool(ready)


def _ends_per_second(gap: bytes | None, last: bytes | None) -> float:
    """From the mean gap between two ends in ms, or the time since the last one where that is longer."""
    if gap is None or last is None:
        return 0.0
    since = time.time() * 1000 - float(last)
    longest = max(float(gap), since, 1.0)
    return 1000 / longest if math.isfinite(longest) else 0.0
