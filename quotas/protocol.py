"""What crosses between the rooms: plain dataclasses, no I/O."""

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Protocol


@dataclass(frozen=True)
class PlanLimits:
    """What an organization may use. `tier` is free, paid or enterprise; `concurrent` counts replies at once."""

    name: str
    tier: str
    tokens_per_minute: int
    concurrent: int


@dataclass(frozen=True)
class Remaining:
    """Where an organization stands against its plan. `used` tokens drain continuously, by the limit per minute."""

    plan: PlanLimits
    used: int
    running: int

    @property
    def tokens(self) -> int:
        """How many tokens may be reserved now."""
        return max(0, self.plan.tokens_per_minute - self.used)

    @property
    def requests(self) -> int:
        """How many more replies may start now."""
        return max(0, self.plan.concurrent - self.running)

    @property
    def reset_tokens(self) -> float:
        """Seconds until the whole minute's tokens are there again."""
        return self.used * 60 / self.plan.tokens_per_minute

    @property
    def reset_requests(self) -> float:
        """Seconds until another reply may start; when a reply ends is not known, so 1 stands for soon."""
        return 0.0 if self.requests else 1.0

    def headers(self) -> dict[str, str]:
        """The `x-ratelimit-*` headers. A request counts against the replies that may run at once."""
        return {
            "x-ratelimit-limit-requests": str(self.plan.concurrent),
            "x-ratelimit-remaining-requests": str(self.requests),
            "x-ratelimit-reset-requests": duration(self.reset_requests),
            "x-ratelimit-limit-tokens": str(self.plan.tokens_per_minute),
            "x-ratelimit-remaining-tokens": str(self.tokens),
            "x-ratelimit-reset-tokens": duration(self.reset_tokens),
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
