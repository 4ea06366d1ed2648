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
    seen = await forecast.outlook(async_client(), model)
    if seen is None:
        return {}
    prediction = seen.prediction(lane, input, output)
    admission = admit(rules.settings(), lane, prediction, seen.waiting.get(lane, 0), _random)
    if admission.action is Action.SHED:
        seconds = math.ceil(admission.retry_after or 1)
        raise HighDemand(f"High demand. Try again in {seconds} s.", retry_after=seconds)
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
