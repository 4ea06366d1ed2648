"""How long a runner gathers tokens before it passes them on."""

from typing import Any

import pytest

from inference.runner.flush import pause


@pytest.mark.parametrize(
    ("streams", "seconds"),
    [(0, 0.0), (1, 0.003), (10, 0.03), (34, 0.1), (500, 0.1), (750, 0.15), (1000, 0.2), (4000, 0.2)],
)
def test_the_more_streams_the_longer_and_never_more_than_twice_the_setting(
    settings: Any, streams: int, seconds: float
) -> None:
    settings.COALESCE_SECONDS = 0.1
    assert pause(streams) == pytest.approx(seconds)
