"""Whose counts the ledger has."""

import pytest

from inference.protocol import Usage
from inference.settlement import source_of


@pytest.mark.parametrize(
    ("usage", "cached", "source"),
    [
        (Usage(100, 40, 7), 40, "engine"),
        (Usage(100, 0, 7), 0, "engine"),  # it has told that nothing was cached
        (Usage(100, 0, 7), None, "estimate"),
        (Usage(0, 0, 7), None, "engine"),  # another answer to the same prompt: its tokens alone are billed
        (Usage(0, 0, 0), None, "engine"),  # nothing is billed, and nothing is guessed
    ],
)
def test_counts_are_an_estimate_where_the_engine_has_not_told_what_was_cached(
    usage: Usage, cached: int | None, source: str
) -> None:
    assert source_of(usage, cached) == source
