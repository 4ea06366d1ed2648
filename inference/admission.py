"""Who is let in: with each new request it is predicted how long it would wait, and in a crowd some are turned away."""

import math
import random
from dataclasses import dataclass
from typing import Any

from chatsite.redis import async_client
from inference import forecast
from inference.errors import HighDemand
from inference.forecast import Seen
from inference.protocol import Decided
from inference.redis import rules
from inference.scheduling.admission import Action, Admission, admit, is_in_time
from inference.scheduling.prediction import Prediction

_random = random.Random()
Decision = dict[str, Any]


@dataclass(frozen=True)
class _Ask:
    """Requests of one call, which are let in together or not at all; tokens that each brings, and may add."""

    lane: str
    tenant: str
    requests: int
    input: int
    output: int

    async def predict(self, model: str, seen: Seen | None) -> Prediction | None:
        """Of the first one, by what a runner saw of the model; None where no engine is ready, or no runner is there.

        The others wait behind it in the same organization's queue, and delay what comes after from there.
        """
        if seen is None or seen.outlook is None:
            return None
        before = await forecast.before_next(async_client(), model, seen, self.lane, self.tenant)
        return seen.outlook.prediction(self.lane, self.input, self.output, ahead=before)

    def waiting(self, seen: Seen) -> int:
        """Requests of the lane that wait, all but the last of these included."""
        return seen.waiting(self.lane) + self.requests - 1

    def come(self, seen: Seen) -> None:
        seen.arriving.add(self.lane, self.tenant, self.requests)


async def decide(
    model: str, lane: str, tenant: str, input: int, output: int, smaller: str | None = None, *, requests: int = 1
) -> Decided:
    """`smaller`: the model that may stand in, where caller and plan allow one. `input`, `output`: of each of the
    `requests`. Raises HighDemand: come back later."""
    ask, seen = _Ask(lane, tenant, requests, input, output), await forecast.see(async_client(), model)
    other = await forecast.see(async_client(), smaller) if smaller else None
    outlook, prediction = seen.outlook, await ask.predict(model, seen)
    if outlook is None or prediction is None:
        return await _moved(model, smaller, other, ask, None) or Decided(model, {})
    admission = admit(
        rules.settings(),
        lane,
        prediction,
        ask.waiting(seen),
        _random,
        fallback=await ask.predict(smaller, other) if smaller else None,
        in_its_share=outlook.in_its_share(rules.settings(), lane),
    )
    if admission.action is Action.QUEUE or await _is_spared(model, ask, admission, prediction):
        ask.come(seen)
        return Decided(model, _record(prediction, admission))
    if admission.action is Action.FALLBACK and (moved := await _moved(model, smaller, other, ask, admission.x)):
        return moved
    seconds = math.ceil(admission.retry_after or 1)
    why = _record(prediction, admission)
    raise HighDemand(f"High demand. Try again in {seconds} s.", retry_after=seconds, decision=why)


async def _is_spared(model: str, ask: _Ask, admission: Admission, prediction: Prediction) -> bool:
    """Whether it would start at once whatever is predicted, else nothing would be learned any more; or is no reason
    for the crowd.

    By counts of this moment: who ended since the last look is in nobody's way.
    """
    seen = await forecast.see(async_client(), model, within=0)
    if seen.outlook is None:
        return False
    if seen.outlook.has_place(ask.lane, ask.input, ask.output, seen.arriving.of_lane[ask.lane]):
        return True
    return admission.action is Action.SHED and await _is_modest(model, ask, seen, prediction)


async def _is_modest(model: str, ask: _Ask, seen: Seen, prediction: Prediction) -> bool:
    """Whether it is expected in time, and its organization has nothing else under way, or no more than its part of
    what runs in the lane, these requests included."""
    full = ask.waiting(seen) >= rules.settings().admission.queue_cap
    if seen.outlook is None or full or not is_in_time(rules.settings(), ask.lane, prediction):
        return False
    own, tenants = await forecast.under_way(async_client(), model, ask.lane, ask.tenant)
    own += seen.arriving.of_tenant[ask.lane, ask.tenant]
    return not own or seen.outlook.in_its_part(ask.lane, own + ask.requests, tenants)


async def _moved(model: str, smaller: str | None, other: Seen | None, ask: _Ask, x: float | None) -> Decided | None:
    """To the smaller model, because of the pressure `x` on its own, or since none of its engines is ready (None)."""
    if smaller is None or other is None or (prediction := await ask.predict(smaller, other)) is None:
        return None
    ask.come(other)
    instead_of = {"model": model} | ({} if x is None else {"x": round(x, 3)})
    return Decided(smaller, _record(prediction, Admission(Action.FALLBACK)) | {"instead_of": instead_of})


def _record(prediction: Prediction, admission: Admission) -> Decision:
    if not math.isfinite(prediction.raw):
        return {}
    record: Decision = {
        "predicted": {
            "raw": round(prediction.raw, 4),
            "expected": round(prediction.expected, 4),
            "p90": round(prediction.p90, 4),
        },
    }
    if admission.x is not None:
        record |= {"x": round(admission.x, 3), "shed_probability": round(admission.shed_probability, 4)}
    return record


def predicted(decision: Decision) -> Prediction | None:
    """What was predicted for a request that has this record."""
    found = decision.get("predicted")
    return Prediction(found["raw"], found["expected"], found["p90"], trusted=True) if found else None
