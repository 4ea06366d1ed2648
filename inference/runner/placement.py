"""Why a request is where it is: for what is learned from it, and for who asks."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from inference.scheduling.answers import Head
from inference.scheduling.prefixes import Matched
from inference.scheduling.routing import Candidate, Choice


@dataclass(frozen=True)
class Placement:
    """`hashes` of its prompt's blocks; what the replica was `expected` to have of it; `before`: tokens queued ahead."""

    choice: Choice
    hashes: Sequence[int]
    expected: Matched | None
    before: int

    @property
    def prefill(self) -> float:
        """Seconds that the replica was to need for what was queued there and for this prompt; 0 is not known."""
        return next((each.prefill for each in self.choice.candidates if each.id == self.choice.id), 0.0)

    def record(self, head: Head, attempt: int) -> dict[str, Any]:
        """For its owner and the admin (inference.explanation). Seconds and tokens; the `lead` in wtok."""
        return {
            "attempt": attempt,
            "replica": self.choice.id,
            "why": self.choice.why.value,
            "waited": round(max(0.0, time.time() - head.rank / 1000), 3),
            "lead": head.lead,
            "preemptions": head.preemptions,
            "uncached": self.choice.uncached,
            "candidates": [_candidate(each) for each in self.choice.candidates],
        }


def _candidate(each: Candidate) -> dict[str, Any]:
    return {
        "replica": each.id,
        "match": each.match,
        "prefill": round(each.prefill, 4),
        "kv": round(each.kv, 4),
        "score": round(each.score, 4),
        "refusal": each.refusal,
    }
