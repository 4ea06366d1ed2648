"""Numbers, times and ids as people read them."""

from datetime import timedelta

import pytest
from django.utils import timezone

from chatsite.templatetags.humane import ago


@pytest.mark.parametrize(
    ("seconds", "words"), [(-5, "just now"), (59, "just now"), (61, "1 minute ago"), (7300, "2 hours ago")]
)
def test_how_long_ago(seconds: int, words: str) -> None:
    assert ago(timezone.now() - timedelta(seconds=seconds)).replace("\N{NO-BREAK SPACE}", " ") == words
