"""Times and limits, as the account page says them."""

import re
from datetime import timedelta

import pytest
from django.utils import timezone

from chatsite.accounts.models import ApiKey
from chatsite.accounts.templatetags.account_page import ago, ahead, limits


def words(html: str) -> str:
    return re.sub(r"<[^>]+>", "", html)


@pytest.mark.parametrize(
    ("span", "said"),
    [
        (timedelta(seconds=-1), "now"),
        (timedelta(seconds=30), "in less than a minute"),
        (timedelta(minutes=5, seconds=10), "in 5 minutes"),
        (timedelta(hours=1, seconds=-1), "in 60 minutes"),
        (timedelta(days=1, seconds=-1), "in 24 hours"),
        (timedelta(days=7, seconds=-1), "in 7 days"),
        (timedelta(days=90, seconds=-1), "in 90 days"),
        (timedelta(days=365, seconds=-1), "in 12 months"),
        (timedelta(days=365 * 3), "in 3 years"),
    ],
)
def test_when_something_will_be(span: timedelta, said: str) -> None:
    when = timezone.now() + span
    assert words(ahead(when)) == said
    assert f'title="{when:%Y-%m-%d %H:%M} UTC"' in ahead(when)


def test_when_something_was() -> None:
    assert words(ago(timezone.now() - timedelta(hours=3))) == "3 hours ago"


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ((None, None, None), ""),
        ((1, 1, 1), "1 request a minute, 1 token a minute, 1 reply at once"),
        ((60, 20_000, None), "60 requests a minute, 20,000 tokens a minute"),
        ((None, None, 2), "2 replies at once"),
    ],
)
def test_limits_of_a_key(numbers: tuple[int | None, int | None, int | None], said: str) -> None:
    requests, tokens, concurrent = numbers
    assert limits(ApiKey(requests_per_minute=requests, tokens_per_minute=tokens, concurrent=concurrent)) == said
