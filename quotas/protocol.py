"""What crosses between the rooms: plain dataclasses, no I/O."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Protocol

from chatsite.accounts.protocol import KeyLimits, Principal


@dataclass(frozen=True)
class Bucket:
    """One set of limits that a request counts against. None: no limit of that kind. `title` begins a sentence."""

    name: str  # in Redis, under the organization's prefix
    title: str
    tokens_per_minute: int | None = None
    requests_per_minute: int | None = None
    concurrent: int | None = None  # replies at once


@dataclass(frozen=True)
class PlanLimits:
    """What an organization may use. `tier` is free, paid or enterprise; `concurrent` counts replies at once."""

    name: str
    tier: str
    tokens_per_minute: int
    concurrent: int
    requests_per_minute: int | None = None

    @cached_property
    def bucket(self) -> Bucket:
        return Bucket(
            "plan", f"The {self.name} plan", self.tokens_per_minute, self.requests_per_minute, self.concurrent
        )


def buckets_of(principal: Principal, plan: PlanLimits) -> tuple[Bucket, ...]:
    """Every set of limits that applies to what this caller does; all of them must allow it. The plan's comes first."""
    if principal.key_limits is None:
        return (plan.bucket,)
    return (plan.bucket, key_bucket(principal.key_limits))


def key_bucket(limits: KeyLimits) -> Bucket:
    """Keys that replace one another share it."""
    return Bucket(
        f"key:{limits.chain_id}",
        f"The API key “{limits.name}”",
        limits.tokens_per_minute,
        limits.requests_per_minute,
        limits.concurrent,
    )


@dataclass(frozen=True)
class Standing:
    """What is taken of one bucket. Tokens and requests drain continuously, by their limit per minute."""

    bucket: Bucket
    tokens: int = 0
    requests: int = 0
    running: int = 0


@dataclass(frozen=True)
class Figures:
    """One limit: how much there is, how much is left of it, and in how many seconds all of it will be."""

    limit: int
    remaining: int
    reset: float


@dataclass(frozen=True)
class Remaining:
    """Where a caller stands against all limits that apply. The figures are those of the tightest of each kind."""

    standings: tuple[Standing, ...]

    @cached_property
    def tokens(self) -> Figures | None:
        """Tokens that may be reserved now; None without such a limit."""
        return _tightest(_of_minute(each.bucket.tokens_per_minute, each.tokens) for each in self.standings)

    @cached_property
    def requests(self) -> Figures | None:
        """Requests that may start in this minute; None without such a limit."""
        return _tightest(_of_minute(each.bucket.requests_per_minute, each.requests) for each in self.standings)

    @cached_property
    def replies(self) -> Figures | None:
        """Replies that may start beside those that run; when one ends is not known, so 1 s stands for soon."""
        return _tightest(_at_once(each.bucket.concurrent, each.running) for each in self.standings)

    def headers(self) -> dict[str, str]:
        """The `x-ratelimit-*` headers. Of requests they tell the minute's; without such a limit, replies at once."""
        return {**_headers("requests", self.requests or self.replies), **_headers("tokens", self.tokens)}


def _of_minute(limit: int | None, used: int) -> Figures | None:
    return None if limit is None else Figures(limit, max(0, limit - used), used * 60 / limit)


def _at_once(limit: int | None, running: int) -> Figures | None:
    if limit is None:
        return None
    return Figures(limit, max(0, limit - running), 0.0 if running < limit else 1.0)


def _tightest(figures: Iterable[Figures | None]) -> Figures | None:
    known = [each for each in figures if each is not None]
    return min(known, key=lambda each: (each.remaining, -each.reset)) if known else None


def _headers(kind: str, figures: Figures | None) -> dict[str, str]:
    if figures is None:
        return {}
    return {
        f"x-ratelimit-limit-{kind}": str(figures.limit),
        f"x-ratelimit-remaining-{kind}": str(figures.remaining),
        f"x-ratelimit-reset-{kind}": duration(figures.reset),
    }


@dataclass(frozen=True)
class Prices:
    """Per million tokens; `cached` is what the engine had of the input already."""

    input: Decimal
    cached: Decimal
    output: Decimal


class TokenUsage(Protocol):
    """Tokens of one request; `cached` is part of `input`."""

    @property
    def input(self) -> int: ...
    @property
    def cached(self) -> int: ...
    @property
    def output(self) -> int: ...


MILLION = Decimal(1_000_000)
COST_STEP = Decimal("1e-10")


def cost(usage: TokenUsage, prices: Prices) -> Decimal:
    """What the tokens cost, to ten decimal places: one cached token at a cent per million is 1e-8."""
    fresh = usage.input - usage.cached
    total = fresh * prices.input + usage.cached * prices.cached + usage.output * prices.output
    return (total / MILLION).quantize(COST_STEP)


def duration(seconds: float) -> str:
    """Whole seconds, rounded up, as clients of such APIs expect them: `0s`, `1s`, `6m0s`."""
    whole = math.ceil(seconds)
    return f"{whole // 60}m{whole % 60}s" if whole >= 60 else f"{whole}s"
