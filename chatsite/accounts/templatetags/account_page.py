"""Times and limits, as the account page says them."""

from datetime import UTC, datetime
from typing import Final

from django import template
from django.conf import settings
from django.utils import timezone
from django.utils.html import format_html

from chatsite.accounts.models import Limited

STEPS: Final = ((86400 * 365, "year"), (86400 * 30, "month"), (86400, "day"), (3600, "hour"), (60, "minute"))
# From how many seconds on the unit is used: somebody who has 100 days would rather not be told of 3 months.
AHEAD_STEPS: Final = (
    (86400 * 730, 86400 * 365, "year"),
    (86400 * 120, 86400 * 30, "month"),
    (86400 * 1.5, 86400, "day"),
    (5400, 3600, "hour"),
    (60, 60, "minute"),
)
register = template.Library()


@register.filter
def ago(when: datetime) -> str:
    """`5 minutes ago`, with the exact time on hover."""
    seconds = (timezone.now() - when).total_seconds()
    words = "just now"
    for size, unit in STEPS:
        if seconds >= size:
            count = int(seconds // size)
            words = f"{count} {unit}{'' if count == 1 else 's'} ago"
            break
    return _time(when, words)


@register.filter
def ahead(when: datetime) -> str:
    """`in 5 minutes`, with the exact time on hover."""
    seconds = (when - timezone.now()).total_seconds()
    words = "in less than a minute" if seconds > 0 else "now"
    for least, size, unit in AHEAD_STEPS:
        if seconds >= least:
            count = round(seconds / size)
            words = f"in {count} {unit}{'' if count == 1 else 's'}"
            break
    return _time(when, words)


@register.filter
def limits(of: Limited) -> str:
    """`60 requests a minute, 2 replies at once`; empty without limits of its own."""
    kinds = (
        (of.requests_per_minute, "request", "a minute"),
        (of.tokens_per_minute, "token", "a minute"),
        (of.concurrent, "reply" if of.concurrent == 1 else "replie", "at once"),
        (of.monthly_tokens, "token", "a month"),
    )
    found = [
        f"{number:,} {unit}{'' if number == 1 else 's'} {span}" for number, unit, span in kinds if number is not None
    ]
    if of.monthly_cost is not None:
        found.append(f"{of.monthly_cost:,.2f} {settings.CURRENCY} a month")
    return ", ".join(found)


def _time(when: datetime, words: str) -> str:
    return format_html(
        '<time datetime="{}" title="{} UTC">{}</time>',
        when.isoformat(),
        when.astimezone(UTC).strftime("%Y-%m-%d %H:%M"),
        words,
    )
