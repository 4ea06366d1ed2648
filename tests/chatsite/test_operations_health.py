"""Alive, and ready only when a reply is possible."""

from typing import Any

import django.db
import pytest
import redis.exceptions
from django.test import AsyncClient
from django.urls import path

from chatsite.operations import health

pytestmark = pytest.mark.usefixtures("database")
urlpatterns = [path("healthz", health.healthz), path("readyz", health.readyz)]


@pytest.fixture(autouse=True)
def _own_routes(settings: Any) -> None:
    settings.ROOT_URLCONF = __name__


def models(monkeypatch: pytest.MonkeyPatch, states: dict[str, str]) -> None:
    async def readiness() -> dict[str, str]:
        return states

    monkeypatch.setattr(health, "readiness", readiness)


async def test_alive_needs_nothing() -> None:
    answer = await AsyncClient().get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


@pytest.mark.parametrize("states", [{}, {"small": "loading"}, {"small": "loading", "large": "down"}])
async def test_not_ready_until_a_model_can_answer(monkeypatch: pytest.MonkeyPatch, states: dict[str, str]) -> None:
    models(monkeypatch, states)
    answer = await AsyncClient().get("/readyz")
    assert answer.status_code == 503
    assert answer.json() == {"status": "not_ready", "database": "ok", "redis": "ok", "models": states}
    assert answer["Retry-After"] == "2"


async def test_one_model_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    models(monkeypatch, {"small": "ready", "large": "down"})
    answer = await AsyncClient().get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (200, "ready")


@pytest.mark.parametrize(
    "error", [redis.exceptions.ConnectionError("gone"), django.db.OperationalError("gone"), TimeoutError()]
)
async def test_a_part_that_fails_is_named_and_hides_no_other(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    async def broken() -> str:
        raise error

    for name, part in (("_redis", "redis"), ("_database", "database"), ("readiness", "models")):
        with monkeypatch.context() as patch:
            models(patch, {"small": "ready"})
            patch.setattr(health, name, broken)
            answer = await AsyncClient().get("/readyz")
        assert answer.status_code == 503
        parts = {"database": "ok", "redis": "ok", "models": {"small": "ready"}}
        assert answer.json() == {"status": "not_ready", **parts, part: {} if part == "models" else "down"}


async def test_redis_out_of_reach_is_seen(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    models(monkeypatch, {"small": "ready"})
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    answer = await AsyncClient().get("/readyz")
    assert (answer.status_code, answer.json()["redis"], answer.json()["database"]) == (503, "down", "ok")
