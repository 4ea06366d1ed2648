"""What crosses between the rooms: plain dataclasses, no I/O."""

import math
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from chatsite.accounts.protocol import KeyLimits, MemberLimits, Principal
from quotas import budgets as of
from quotas.budgets import BudgetLimit, Unit
from quotas.money import COST_STEP, Prices, TokenUsage, cost

__all__ = ["COST_STEP", "BudgetLimit", "Prices", "TokenUsage", "Unit", "cost"]


@dataclass(frozen=True)
class Bucket:
    """One set of limits that a request counts against. None: no limit of that kind. `title` begins a sentence."""

    name: str  # in Redis, under the organization's prefix
    title: str
    tokens_per_minute: int | None = None
    requests_per_minute: int | None = None
    concurrent: int | None = None  # replies at once

    @property
    def scope(self) -> str:
        """plan, user or key."""
        return self.name.partition(":")[0]


@dataclass(frozen=True)
class PlanLimits:
    """What an organization may use: its plan, the budgets of all in it, and whether it is stopped.

    `tier` is free, paid or enterprise; `concurrent` counts replies at once. None: no such limit or cap.
    `weight`: the organization's share within its lane, beside those of others that wait there; more than 0.
    """

    name: str
    tier: str
    tokens_per_minute: int
    concurrent: int
    requests_per_minute: int | None = None
    context_tokens: int | None = None  # prompt and answer together
    output_tokens: int | None = None  # of one answer
    models: frozenset[str] = frozenset()  # their names; empty: all that the tier has
    shares_cache: bool = False
    weight: float = 1.0
    budgets: tuple[BudgetLimit, ...] = ()
    missing: bool = False  # there is none: nothing is accepted, and the figures are those of the default plan
    stopped: str = ""  # why nothing new is accepted, in a sentence; empty: it is

    @cached_property
    def bucket(self) -> Bucket:
        return Bucket(
            "plan", f"The {self.name} plan", self.tokens_per_minute, self.requests_per_minute, self.concurrent
        )

    def allows(self, model: str) -> bool:
        """Whether the plan has the model of this name; its tier is another question."""
        return not self.models or model in self.models

    def context(self, of_model: int) -> int:
        """Tokens of prompt and answer together, where the model can read so many."""
        return of_model if self.context_tokens is None else min(of_model, self.context_tokens)

    def budgets_of(self, principal: Principal) -> tuple[BudgetLimit, ...]:
        """All that this caller's requests count against, hard and soft."""
        found = self.budgets
        if found:
            subjects = (of.ORGANIZATION, of.member(principal.user_id), key_of(principal))
            found = tuple(each for each in found if each.subject in subjects)
        if principal.member_limits is not None:
            found += of.of_member(principal.member_limits)
        if principal.key_limits is not None:
            found += of.of_key(principal.key_limits)
        return found


def key_of(principal: Principal) -> str | None:
    """The subject that what this caller's API key uses is counted for, also while no budget asks for it.

    A budget may come later, or be known to another process already.
    """
    if principal.key_limits is not None:
        return of.key(principal.key_limits.chain_id)
    return of.key(principal.chain_id) if principal.chain_id else None


def buckets_of(principal: Principal, plan: PlanLimits) -> tuple[Bucket, ...]:
    """Every set of limits that applies to what this caller does; all of them must allow it. The plan's comes first."""
    found: tuple[Bucket, ...] = (plan.bucket,)
    if principal.member_limits is not None and _by_the_minute(principal.member_limits):
        found += (member_bucket(principal.member_limits),)
    if principal.key_limits is not None and _by_the_minute(principal.key_limits):
        found += (key_bucket(principal.key_limits),)
    return found


def _by_the_minute(limits: KeyLimits | MemberLimits) -> bool:
    return (limits.tokens_per_minute, limits.requests_per_minute, limits.concurrent) != (None, None, None)


def member_bucket(limits: MemberLimits) -> Bucket:
    """A member's sessions and keys share it."""
    return Bucket(
        of.member(limits.user_id),
        of.member_title(limits),
        limits.tokens_per_minute,
        limits.requests_per_minute,
        limits.concurrent,
    )


def key_bucket(limits: KeyLimits) -> Bucket:
    """Keys that replace one another share it."""
    return Bucket(
        of.key(limits.chain_id),
        of.key_title(limits),
        limits.tokens_per_minute,
        limits.requests_per_minute,
        limits.concurrent,
    )


@dataclass(frozen=True)
class Want:
    """What a reply reserves: `tokens` of the minute, and of budgets the most that it may be billed for.

    `cost` in 1e-10 of the currency. `expected`: of the tokens, those that may come, but need not.
    """

    tokens: int
    most: int = 0
    cost: int = 0
    expected: int = 0


@dataclass(frozen=True)
class Used:
    """What became of it: `tokens` count in the minute, `billed` and `cost` (1e-10) are what the ledger has."""

    tokens: int
    billed: int = 0
    cost: int = 0


@dataclass(frozen=True)
class Spending:
    """Where a budget stands. `taken` counts what is settled and `reserved`, in the unit of the budget."""

    budget: BudgetLimit
    taken: int
    reserved: int
    ends: datetime  # when the period ends; of a rolling one, when its oldest day drops out

    @property
    def left(self) -> int:
        return max(0, self.budget.limit - self.taken)


@dataclass(frozen=True)
class Standing:
    """What is taken of one bucket. Tokens and requests drain continuously, by their limit per minute."""

    bucket: Bucket
    tokens: int = 0
    requests: int = 0
    running: int = 0

    @property
    def figures(self) -> dict[str, "Figures"]:
        """By kind of limit, those that there are."""
        found = {
            "tokens_per_minute": _of_minute(self.bucket.tokens_per_minute, self.tokens),
            "requests_per_minute": _of_minute(self.bucket.requests_per_minute, self.requests),
            "concurrent": _at_once(self.bucket.concurrent, self.running),
        }
        return {kind: each for kind, each in found.items() if each is not None}


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
        return self._tightest("tokens_per_minute")

    @cached_property
    def requests(self) -> Figures | None:
        """Requests that may start in this minute; None without such a limit."""
        return self._tightest("requests_per_minute")

    @cached_property
    def replies(self) -> Figures | None:
        """Replies that may start beside those that run; when one ends is not known, so 1 s stands for soon."""
        return self._tightest("concurrent")

    def _tightest(self, kind: str) -> Figures | None:
        known = [each.figures[kind] for each in self.standings if kind in each.figures]
        return min(known, key=lambda each: (each.remaining, -each.reset)) if known else None

    def headers(self) -> dict[str, str]:
        """The `x-ratelimit-*` headers. Of requests they tell the minute's; without such a limit, replies at once."""
        return {**_headers("requests", self.requests or self.replies), **_headers("tokens", self.tokens)}


def _of_minute(limit: int | None, used: int) -> Figures | None:
    return None if limit is None else Figures(limit, max(0, limit - used), used * 60 / limit)


def _at_once(limit: int | None, running: int) -> Figures | None:
    if limit is None:
        return None
    return Figures(limit, max(0, limit - running), 0.0 if running < limit else 1.0)


def _headers(kind: str, figures: Figures | None) -> dict[str, str]:
    if figures is None:
        return {}
    return {
        f"x-ratelimit-limit-{kind}": str(figures.limit),
        f"x-ratelimit-remaining-{kind}": str(figures.remaining),
        f"x-ratelimit-reset-{kind}": duration(figures.reset),
    }


def duration(seconds: float) -> str:
    """Whole seconds, rounded up, as clients of such APIs expect them: `0s`, `1s`, `6m0s`."""
    whole = math.ceil(seconds)
    return f"{whole // 60}m{whole % 60}s" if whole >= 60 else f"{whole}s"
