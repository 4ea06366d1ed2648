"""What a webhook can be told of. Pure."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Event(StrEnum):
    BUDGET_THRESHOLD = "budget.threshold"
    SPENDING_UNUSUAL = "spending.unusual"
    TEST = "test"  # sent by a button alone


EXPLAINED: Final[Mapping[Event, str]] = {
    Event.BUDGET_THRESHOLD: "50, 80 or 100 % of a budget are spent",
    Event.SPENDING_UNUSUAL: "A key or a member spends ten times what is usual",
}
