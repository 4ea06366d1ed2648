"""The arithmetic of limits and prices."""

from dataclasses import dataclass
from decimal import Decimal

import pytest

from quotas.protocol import PlanLimits, Prices, Remaining, cost, duration


@dataclass(frozen=True)
class Used:
    input: int
    cached: int
    output: int


PLAN = PlanLimits("plus", "paid", 60_000, 8)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (0.001, "1s"), (1, "1s"), (59.2, "1m0s"), (360, "6m0s"), (61.5, "1m2s")]
)
def test_durations_are_written_as_clients_expect(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_headers_say_limit_remaining_and_reset() -> None:
    assert Remaining(PLAN, used=15_000, running=3).headers() == {
        "x-ratelimit-limit-requests": "8",
        "x-ratelimit-remaining-requests": "5",
        "x-ratelimit-reset-requests": "0s",
        "x-ratelimit-limit-tokens": "60000",
        "x-ratelimit-remaining-tokens": "45000",
        "x-ratelimit-reset-tokens": "15s",
    }


def test_an_overdrawn_bucket_has_nothing_left_and_says_when_it_will_be_full() -> None:
    remaining = Remaining(PLAN, used=90_000, running=8)
    assert (remaining.tokens, remaining.requests) == (0, 0)
    assert remaining.headers()["x-ratelimit-reset-tokens"] == "1m30s"
    assert remaining.headers()["x-ratelimit-reset-requests"] == "1s"


def test_costs_are_exact() -> None:
    prices = Prices(input=Decimal("0.10"), cached=Decimal("0.01"), output=Decimal("0.40"))
    assert cost(Used(1, 1, 0), prices) == Decimal("1E-8")
    assert cost(Used(3_000_000, 1_000_000, 500_000), prices) == Decimal("0.41")
