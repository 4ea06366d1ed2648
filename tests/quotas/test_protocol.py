"""The arithmetic of limits and prices."""

from dataclasses import dataclass, replace
from decimal import Decimal

import pytest

from chatsite.accounts.protocol import KeyLimits, Principal
from chatsite.ids import new_id
from quotas.errors import TooManyReplies
from quotas.protocol import (
    Bucket,
    Figures,
    PlanLimits,
    Prices,
    Remaining,
    Standing,
    buckets_of,
    cost,
    duration,
)


@dataclass(frozen=True)
class Used:
    input: int
    cached: int
    output: int


PLAN = PlanLimits("plus", "paid", 60_000, 8)
PER_MINUTE = PlanLimits("plus", "paid", 60_000, 8, requests_per_minute=300)


def standing(*standings: Standing) -> Remaining:
    return Remaining(standings)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (0.001, "1s"), (1, "1s"), (59.2, "1m0s"), (360, "6m0s"), (61.5, "1m2s")]
)
def test_durations_are_written_as_clients_expect(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_headers_say_limit_remaining_and_reset() -> None:
    assert standing(Standing(PER_MINUTE.bucket, tokens=15_000, requests=5, running=3)).headers() == {
        "x-ratelimit-limit-requests": "300",
        "x-ratelimit-remaining-requests": "295",
        "x-ratelimit-reset-requests": "1s",
        "x-ratelimit-limit-tokens": "60000",
        "x-ratelimit-remaining-tokens": "45000",
        "x-ratelimit-reset-tokens": "15s",
    }


def test_without_requests_per_minute_the_replies_at_once_stand_for_them() -> None:
    headers = standing(Standing(PLAN.bucket, running=3)).headers()
    assert (headers["x-ratelimit-limit-requests"], headers["x-ratelimit-remaining-requests"]) == ("8", "5")
    assert headers["x-ratelimit-reset-requests"] == "0s"


def test_an_overdrawn_bucket_has_nothing_left_and_says_when_it_will_be_full() -> None:
    headers = standing(Standing(PLAN.bucket, tokens=90_000, running=8)).headers()
    assert (headers["x-ratelimit-remaining-tokens"], headers["x-ratelimit-remaining-requests"]) == ("0", "0")
    assert (headers["x-ratelimit-reset-tokens"], headers["x-ratelimit-reset-requests"]) == ("1m30s", "1s")


def test_of_several_buckets_the_tightest_of_each_kind_is_told() -> None:
    key = Bucket("key:1", "The API key “a”", tokens_per_minute=50_000, concurrent=20)
    found = standing(Standing(PER_MINUTE.bucket, 30_000, 299, 7), Standing(key, 10_000, 0, 7))
    assert (found.tokens, found.requests) == (Figures(60_000, 30_000, 30.0), Figures(300, 1, 59.8))
    assert found.replies == Figures(8, 1, 0.0)
    assert standing(Standing(key)).requests is None
    assert standing(Standing(Bucket("key:2", "x"))).headers() == {}


def test_a_refusal_for_replies_at_once_says_that_no_request_may_start() -> None:
    remaining = standing(Standing(PER_MINUTE.bucket, running=8))
    headers = TooManyReplies("Full.", remaining, retry_after=1.0).headers
    assert (headers["x-ratelimit-limit-requests"], headers["x-ratelimit-remaining-requests"]) == ("300", "0")


def test_a_key_without_limits_of_its_own_has_no_bucket() -> None:
    limits = KeyLimits(new_id(), "Billing", concurrent=2)
    caller = Principal(new_id(), new_id())
    assert buckets_of(caller, PLAN) == (PLAN.bucket,)
    plan, key = buckets_of(replace(caller, key_limits=limits), PLAN)
    assert (plan.name, key.name, key.concurrent) == ("plan", f"key:{limits.chain_id}", 2)


def test_costs_are_exact() -> None:
    prices = Prices(input=Decimal("0.10"), cached=Decimal("0.01"), output=Decimal("0.40"))
    assert cost(Used(1, 1, 0), prices) == Decimal("1E-8")
    assert cost(Used(3_000_000, 1_000_000, 500_000), prices) == Decimal("0.41")
