"""Times are those of the person who asks."""

from datetime import UTC, datetime
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory
from django.utils import timezone

from chatsite.timezones import cookies_of, in_zone_of, local_time

EVENING = datetime(2026, 3, 10, 20, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("cookie", "hour"),
    [
        ("Europe/Berlin", 21),
        ("Asia%2FTokyo", 5),
        ("", 20),
        ("nonsense", 20),
        ("../../etc/passwd", 20),
        ("/etc/passwd", 20),
        ("America", 20),
        ("a%00b", 20),
        ("x" * 5000, 20),
    ],
)
def test_the_browser_says_its_zone_and_nothing_else(cookie: str, hour: int) -> None:
    with in_zone_of({"timezone": cookie}):
        assert timezone.localtime(EVENING).hour == hour
    assert timezone.localtime(EVENING).hour == 20


def answer(request: HttpRequest) -> HttpResponse:
    return HttpResponse(str(timezone.localtime(EVENING).hour))


async def answer_later(request: HttpRequest) -> HttpResponse:
    return answer(request)


async def test_both_kinds_of_views_have_it() -> None:
    request: Any = RequestFactory().get("/", headers={"cookie": "timezone=Asia/Tokyo"})
    assert local_time(answer)(request).content == b"5"
    assert (await local_time(answer_later)(request)).content == b"5"


def test_the_api_says_utc() -> None:
    request: Any = RequestFactory().get("/v1/conversations", headers={"cookie": "timezone=Asia/Tokyo"})
    assert local_time(answer)(request).content == b"20"


def test_the_cookies_of_a_socket() -> None:
    headers = [(b"host", b"x"), (b"cookie", b"a=1; timezone=Asia/Tokyo"), (b"cookie", b"b=2")]
    assert cookies_of({"headers": headers}) == {"a": "1", "b": "2", "timezone": "Asia/Tokyo"}
    assert cookies_of({}) == {}
