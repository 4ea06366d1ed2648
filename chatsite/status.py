"""State machines over a `status` column: a transition table checked at import, and one compare-and-set move."""

from collections.abc import Iterable, Mapping
from typing import Any

from django.db import models
from django.db.models import QuerySet


class TransitionTable:
    """Which states may follow which. Every state of the enum must appear, and every target must be a state."""

    def __init__(self, states: type[models.TextChoices], table: Mapping[str, Iterable[str]]) -> None:
        names = set(states.values)
        self.next: dict[str, frozenset[str]] = {
            str(source): frozenset(map(str, targets)) for source, targets in table.items()
        }
        if set(self.next) != names:
            raise ValueError(
                f"{states.__name__}: the table must name each state once, missing or unknown: {set(self.next) ^ names}"
            )
        for source, targets in self.next.items():
            if not targets <= names:
                raise ValueError(f"{states.__name__}: {source} leads to unknown states {targets - names}")
        self.terminal = frozenset(state for state, targets in self.next.items() if not targets)
        self.active = frozenset(names - self.terminal)

    def allows(self, source: str, target: str) -> bool:
        return target in self.next[source]


def move(queryset: QuerySet[Any], source: str | Iterable[str], target: str, **updates: Any) -> bool:
    """Moves the rows of `queryset` that are in `source` to `target`; True when at least one was.

    The model names its table as `TRANSITIONS`. Raises ValueError for a move that the table forbids.
    """
    sources = [source] if isinstance(source, str) else list(source)
    table: TransitionTable = queryset.model.TRANSITIONS
    for each in sources:
        if not table.allows(str(each), str(target)):
            raise ValueError(f"{queryset.model.__name__} cannot go from {each} to {target}")
    return queryset.filter(status__in=sources).update(status=target, **updates) > 0
