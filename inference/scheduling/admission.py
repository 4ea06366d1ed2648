"""Who is let in, who is sent to a smaller model, who is told to come back, and whose place is taken."""

import math
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from inference.scheduling.answers import Running
from inference.scheduling.prediction import Prediction
from inference.scheduling.settings import AdmissionSettings, LaneSettings, SchedulerSettings


class Action(StrEnum):
    QUEUE = "queue"
    FALLBACK = "fallback"  # run on the smaller model, and say so
    SHED = "shed"  # 429, "high demand"


@dataclass(frozen=True, slots=True)
class Admission:
    """What is done with a new request, for the decision record as well.

    `x` is predicted p90 / objective, None while nothing is decided by it; `shed_probability` what was drawn against;
    `retry_after` seconds where it is shed.
    """

    action: Action
    x: float | None = None
    shed_probability: float = 0.0
    retry_after: float | None = None


def admit(
    settings: SchedulerSettings,
    lane: str,
    prediction: Prediction | None,
    waiting: int,
    rng: random.Random,
    *,
    fallback: Prediction | None = None,
    in_its_share: bool = False,
) -> Admission:
    """`waiting`: requests in the lane. `fallback`: the smaller model's prediction, if caller and model allow one.

    Without a trusted prediction, or while the lane is `in_its_share` (`View.in_its_share`), only the queue's cap turns
    anybody away.
    """
    rules = settings.lane(lane)
    x = _stress(rules, prediction)
    full = waiting >= settings.admission.queue_cap and rules.objective_seconds is not None
    if x is not None and x > settings.admission.fallback_from and _meets_objective(rules, fallback):
        return Admission(Action.FALLBACK, x)
    probability = 1.0 if full else 0.0 if in_its_share else shed_probability(settings, lane, x)
    if probability > 0 and rng.random() < probability:
        return Admission(Action.SHED, x, probability, _retry_after(settings.admission, rules, prediction, rng))
    return Admission(Action.QUEUE, x, probability)


def is_in_time(settings: SchedulerSettings, lane: str, prediction: Prediction) -> bool:
    """Whether one whose organization has nothing else under way, or its part, is let in, though it was to be shed.

    The margin of the p90 is the whole lane's, and mostly that of who brings much.
    """
    objective = settings.lane(lane).objective_seconds
    return objective is not None and prediction.expected <= settings.admission.queue_to * objective


def shed_probability(settings: SchedulerSettings, lane: str, x: float | None) -> float:
    """How likely a request of that lane is turned away at x = predicted p90 / objective."""
    rules = settings.lane(lane)
    if x is None or rules.shed_from is None or x <= settings.admission.queue_to:
        return 0.0
    return min(max((x - rules.shed_from) / rules.shed_span, 0.0), 1.0) ** 2


def _stress(lane: LaneSettings, prediction: Prediction | None) -> float | None:
    if prediction is None or not prediction.trusted or lane.objective_seconds is None:
        return None
    return prediction.p90 / lane.objective_seconds


def _meets_objective(lane: LaneSettings, prediction: Prediction | None) -> bool:
    x = _stress(lane, prediction)
    return x is not None and x <= 1.0


def _retry_after(
    rules: AdmissionSettings, lane: LaneSettings, prediction: Prediction | None, rng: random.Random
) -> float:
    """Seconds until the wait would be short enough again, if nobody else came.

    What is expected falls by a second each second. The p90 is a multiple of it, and large where engines had failed.
    """
    excess = math.inf
    if prediction is not None:
        short_enough = (lane.shed_from or 1.0) * (lane.objective_seconds or 0)
        excess = prediction.expected * (1 - short_enough / max(prediction.p90, short_enough))
    seconds = min(max(excess, rules.retry_after_low), rules.retry_after_high)
    return seconds * rng.uniform(1 - rules.retry_after_jitter, 1 + rules.retry_after_jitter)


def should_preempt(
    settings: SchedulerSettings, lane: str, prediction: Prediction, *, waited: float, can_start: bool
) -> bool:
    """Whether running work should make place for a request that waits.

    `prediction`: of the seconds from now. `can_start`: some replica would take it now.
    """
    rules = settings.lane(lane)
    if can_start or not rules.preempts or not prediction.trusted or rules.objective_seconds is None:
        return False
    return waited + prediction.expected > rules.objective_seconds


def victim(settings: SchedulerSettings, lane: str, running: Sequence[Running]) -> Running | None:
    """Whose place a request of `lane` takes: the least lane first, newest first, before its first token first.

    `running`: only those whose end would help (on a replica that may be used). None where there is nobody.
    """
    own = settings.lane(lane).weight
    weights = {each.id: settings.lane(each.lane).weight for each in running}
    possible = [each for each in running if weights[each.id] < own and _may_be_preempted(settings, each)]
    return min(
        possible,
        key=lambda each: (each.first_token, weights[each.id], -each.committed_at, each.id),
        default=None,
    )


def _may_be_preempted(settings: SchedulerSettings, running: Running) -> bool:
    rules = settings.lane(running.lane)
    if not running.first_token:
        return rules.preempted_before_first_token
    return rules.preempted_after_first_token and running.preemptions < settings.admission.max_preemptions


class RetryBudget:
    """Retried tokens are at most a share of those dispatched lately, though a few requests may always be retried."""

    def __init__(self, settings: AdmissionSettings) -> None:
        self.settings = settings
        self._dispatched: deque[tuple[float, int]] = deque()
        self._retried: deque[tuple[float, int]] = deque()

    def dispatched(self, now: float, tokens: int) -> None:
        """A first attempt went to a replica. `now` in seconds."""
        self._forget_before(now - self.settings.retry_window_seconds)
        self._dispatched.append((now, tokens))

    def allows(self, now: float, tokens: int, before: Sequence[int] = ()) -> bool:
        """Whether that many tokens may be tried once more now. `before`: of those that are about to be."""
        self._forget_before(now - self.settings.retry_window_seconds)
        if len(self._retried) + len(before) < self.settings.retry_floor:
            return True
        retried = sum(each for _, each in self._retried) + sum(before) + tokens
        return retried <= self.settings.retry_share * sum(each for _, each in self._dispatched)

    def retried(self, now: float, tokens: int) -> None:
        """A request that had failed went to a replica again."""
        self._retried.append((now, tokens))

    def take(self, now: float, tokens: int) -> bool:
        """Whether that many tokens may be tried once more now; if so they are counted."""
        allowed = self.allows(now, tokens)
        if allowed:
            self.retried(now, tokens)
        return allowed

    def _forget_before(self, moment: float) -> None:
        for spent in (self._dispatched, self._retried):
            while spent and spent[0][0] <= moment:
                spent.popleft()
