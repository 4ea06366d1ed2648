"""Why a request went where it went, for a page. No I/O: its record (inference.models.Request.decision) and names."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

WHY = {
    "best": "the lowest score",
    "sticky": "its prompt is cached there",
    "left": "not where its prompt is cached: that one was too busy",
    "explored": "tried elsewhere, to learn about others",
}
REFUSED = {
    "replica": "not usable",
    "slots": "no free slot",
    "kv": "its memory is promised",
    "gate": "enough queued there",
}


@dataclass(frozen=True)
class Option:
    """A replica that was looked at. Times in seconds; `why_not` is empty where the request could have started."""

    replica: str
    chosen: bool
    cached: int
    prefill: float
    memory: float
    score: float
    why_not: str


@dataclass(frozen=True)
class Attempt:
    number: int
    replica: str
    why: str
    waited: float
    uncached: int
    preemptions: int
    options: list[Option]
    lead: int | None = None  # wtok that its organization was ahead of the lane's least served one; older rows lack it


@dataclass(frozen=True)
class Explanation:
    """`expected` and `actual` seconds to the first token; `pressure` is predicted p90 / objective.

    `turned_away`: percent of those that come at that pressure, rounded up.
    `instead_of`: the model that was asked for, where the smaller one ran it ("" it was the one); `instead_pressure` of
    that, None where none of its engines was ready.
    """

    expected: float | None
    actual: float | None
    pressure: float | None
    turned_away: int
    attempts: list[Attempt]
    instead_of: str = ""
    instead_pressure: float | None = None


def explain(decision: Mapping[str, Any], actual: float | None, names: Mapping[str, str]) -> Explanation | None:
    """`names` of replicas by id. None without a record (the names of a call's answers are none)."""
    if not decision.keys() - {"answers"}:
        return None
    attempts = [_attempt(each, names) for each in decision.get("attempts", ())]
    predicted, instead_of = decision.get("predicted"), decision.get("instead_of", {})
    return Explanation(
        predicted["expected"] if predicted else None,
        actual,
        decision.get("x"),
        math.ceil(round(100 * decision.get("shed_probability", 0.0), 2)),
        attempts,
        instead_of.get("model", ""),
        instead_of.get("x"),
    )


def _attempt(record: Mapping[str, Any], names: Mapping[str, str]) -> Attempt:
    chosen = record["replica"]
    options = [
        Option(
            names.get(each["replica"], each["replica"]),
            each["replica"] == chosen,
            each["match"],
            each["prefill"],
            each["kv"],
            each["score"],
            REFUSED.get(each["refusal"], each["refusal"]),
        )
        for each in record["candidates"]
    ]
    return Attempt(
        record["attempt"],
        names.get(chosen, chosen),
        WHY.get(record["why"], record["why"]),
        record["waited"],
        record["uncached"],
        record["preemptions"],
        options,
        record.get("lead"),
    )
