"""Who is let in: with each new request it is predicted how long it would wait, and in a crowd some are turned away."""

import math
import random
from typing import Any

from chatsite.redis import async_client
from inference import forecast
from inference.errors import HighDemand
from inference.redis import rules
from inference.scheduling.admission import Action, Admission, admit
from inference.scheduling.prediction import Prediction

_random = random.Random()
Decision = dict[str, Any]


async def decide(model: str, lane: str, input: int, output: int) -> Decision:
    """What is kept of the decision with the request. Raises HighDemand: come back in so many seconds."""
    seen = await forecast.see(async_client(), model)
    outlook, since = seen.outlook, seen.let_in[lane]
    if outlook is None:
        return {}
    waiting = outlook.waiting.get(lane, 0) + since
    prediction = outlook.prediction(lane, input, output, ahead=waiting)
    admission = admit(rules.settings(), lane, prediction, waiting, _random)
    # Whoever would start at once is let in whatever is predicted: if nobody were, nothing would be learned any more.
    if admission.action is Action.SHED and not outlook.has_place(lane, input, output, since):
        seconds = math.ceil(admission.retry_after or 1)
        raise HighDemand(f"High demand. Try again in {seconds} s.", retry_after=seconds)
    seen.let_in[lane] += 1
    return _record(prediction, admission)


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
