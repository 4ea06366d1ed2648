"""A store that hangs fails like one that is gone, within seconds."""

import socket
import time
from collections.abc import Iterator

import psycopg
import pytest
from django.conf import settings
from django.core.cache.backends.redis import RedisCache
from django.db import connections
from redis.exceptions import TimeoutError as RedisTimeoutError

SOON = 6.0  # seconds


@pytest.fixture
def hanging() -> Iterator[int]:
    """The port of a server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_cache_that_hangs(hanging: int) -> None:
    cache = RedisCache(f"redis://127.0.0.1:{hanging}/0", {"OPTIONS": settings.CACHES["default"].get("OPTIONS", {})})
    started = time.monotonic()
    with pytest.raises(RedisTimeoutError):
        cache.get("anything")
    assert time.monotonic() - started < SOON


def test_a_database_that_hangs(hanging: int) -> None:
    given = connections["default"].get_connection_params()
    options = {name: given[name] for name in ("connect_timeout", "tcp_user_timeout")}
    started = time.monotonic()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(host="127.0.0.1", port=hanging, dbname="x", user="x", **options)
    assert time.monotonic() - started < SOON


def test_nobody_waits_long_for_a_connection() -> None:
    assert settings.DATABASES["default"]["OPTIONS"]["pool"]["timeout"] <= SOON
