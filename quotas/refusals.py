"""The sentences of a refusal: which limit, what is left of it, and when to come back. No I/O."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.conf import settings

from quotas.errors import (
    BudgetExhausted,
    QuotaExceeded,
    RepliesExceedLimit,
    RequestExceedsLimit,
    RequestsPerMinuteExceeded,
    TokensPerMinuteExceeded,
    TooManyReplies,
)
from quotas.money import amount, apart, shown
from quotas.protocol import Bucket, BudgetLimit, Remaining, Standing, Unit, Want

REPLY_ENDS_SECONDS = 1.0  # when a running reply will end is not known; clients ask again after this
NO_TOKENS, NO_REQUESTS, NO_PLACE, NO_BUDGET = 1, 2, 3, 4  # verdicts of reserve.lua


def check_size(buckets: Sequence[Bucket], budgets: Sequence[BudgetLimit], replies: Mapping[UUID, Want]) -> None:
    """Raises RequestExceedsLimit kinds, BudgetExhausted for what no waiting would make room for."""
    tokens = sum(each.tokens for each in replies.values())
    for bucket in buckets:
        if bucket.tokens_per_minute is not None and tokens > bucket.tokens_per_minute:
            allowed = f"{_inside(bucket.title)} allows {bucket.tokens_per_minute:,} a minute"
            much = f"This may take {tokens:,} tokens, and {allowed}."
            raise RequestExceedsLimit(much, Remaining((Standing(bucket),)))
        if bucket.concurrent is not None and len(replies) > bucket.concurrent:
            many = (
                f"This asks for {len(replies)} replies, and {_inside(bucket.title)} allows {bucket.concurrent} at once."
            )
            raise RepliesExceedLimit(many, Remaining((Standing(bucket),)))
    for budget in budgets:
        most = wanted_of(budget, replies)
        if most > budget.limit:
            allowed, asked = _apart(budget, budget.limit, most)
            limit = f"{allowed} {_period(budget)}"
            words = f"This may {_takes(budget)} {asked}, and {_inside(budget.title)} allows {limit}."
            raise BudgetExhausted(words, Remaining(tuple(Standing(each) for each in buckets)))


def wanted_of(budget: BudgetLimit, replies: Mapping[UUID, Want]) -> int:
    return sum(each.most if budget.unit is Unit.TOKENS else each.cost for each in replies.values())


def of_bucket(verdict: int, standing: Standing, remaining: Remaining, wait: float) -> QuotaExceeded:
    """`wait` in seconds."""
    bucket = standing.bucket
    if verdict == NO_TOKENS:
        limit = bucket.tokens_per_minute or 0
        left = max(0, limit - standing.tokens)
        message = f"{bucket.title} allows {limit:,} tokens a minute; {left:,} are left now."
        return TokensPerMinuteExceeded(message, remaining, retry_after=wait)
    if verdict == NO_REQUESTS:
        message = f"{bucket.title} allows {bucket.requests_per_minute:,} requests a minute, and they are used up."
        return RequestsPerMinuteExceeded(message, remaining, retry_after=wait)
    message = f"{bucket.title} allows {bucket.concurrent} replies at once, and {standing.running} are running."
    return TooManyReplies(message, remaining, retry_after=REPLY_ENDS_SECONDS)


def of_budget(
    budget: BudgetLimit, taken: int, held: int, wanted: int, remaining: Remaining, wait: float
) -> BudgetExhausted:
    """`taken`: settled and reserved, `held` of it reserved only. `wait` in seconds; 0: replies hold what is missing, or
    its period has ended, so that there will be no more of it."""
    there, asked = _apart(budget, max(0, budget.limit - taken), wanted)
    left = f"{there} {_are(budget)} left, and this may {_takes(budget)} {asked}"
    if wait <= 0 and taken + wanted - budget.limit > held:
        words = f"{budget.title} allows {_limit(budget)}; when this was sent, {left}. Send it again: it counts anew."
        return BudgetExhausted(words, remaining, held=True)
    if wait <= 0:
        words = f"{budget.title} allows {_limit(budget)}; {left}. Replies that run hold {_figure(budget, held)} of it."
        return BudgetExhausted(words, remaining, REPLY_ENDS_SECONDS, held=True)
    when = datetime.now(UTC) + timedelta(seconds=wait)
    words = f"{budget.title} allows {_limit(budget)}; {left}. There will be more on {when.day} {when:%B %Y} (UTC)."
    return BudgetExhausted(words, remaining, wait)


def _limit(budget: BudgetLimit) -> str:
    return f"{_figure(budget, budget.limit)} {_period(budget)}"


def _period(budget: BudgetLimit) -> str:
    return "a month" if not budget.days else f"in {budget.days} days" if budget.days > 1 else "a day"


def _figure(budget: BudgetLimit, value: int) -> str:
    return f"{value:,} tokens" if budget.unit is Unit.TOKENS else shown(amount(value), settings.CURRENCY)


def _apart(budget: BudgetLimit, less: int, more: int) -> tuple[str, str]:
    if budget.unit is Unit.TOKENS:
        return _figure(budget, less), _figure(budget, more)
    return apart(amount(less), amount(more), settings.CURRENCY)


def _takes(budget: BudgetLimit) -> str:
    return "take" if budget.unit is Unit.TOKENS else "cost"


def _are(budget: BudgetLimit) -> str:
    return "are" if budget.unit is Unit.TOKENS else "is"


def _inside(title: str) -> str:
    """A title within a sentence."""
    return title[:1].lower() + title[1:]
