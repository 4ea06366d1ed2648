"""A repeated POST has one effect."""

import asyncio
from datetime import timedelta
from typing import Any, ClassVar

import pytest
from django.db import transaction
from django.test import Client
from django.urls import path
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from chatsite.accounts import idempotency
from chatsite.accounts.idempotency import Replay, abandon, begin, finish, idempotent, reopen
from chatsite.accounts.models import IdempotentCall
from chatsite.database import run_db
from chatsite.errors import Conflict, IdempotencyInFlight, IdempotencyMismatch, InvalidInput
from chatsite.ids import new_id
from chatsite.scopes import Scope
from tests.conftest import Person

pytestmark = pytest.mark.usefixtures("database")
ROUTE = "POST /v1/things"
effects: list[Any] = []


class Things(APIView):
    required_scopes: ClassVar = {"POST": Scope.CHAT}

    @idempotent
    def post(self, request: Request) -> Response:
        effects.append(request.data)
        if request.data.get("refuse"):
            raise Conflict
        return Response({"id": new_id(), "made": timezone.now()}, status=201)


urlpatterns = [path("v1/things", Things.as_view()), path("v1/others", Things.as_view())]


@pytest.fixture(autouse=True)
def _own_routes(settings: Any) -> None:
    settings.ROOT_URLCONF = __name__
    effects.clear()


async def test_the_second_call_gets_the_first_s_answer(person: Person) -> None:
    assert await begin(person.principal, ROUTE, "k", b"body") is None
    await finish(person.principal, ROUTE, "k", 200, {"message": "msg_1"})
    assert await begin(person.principal, ROUTE, "k", b"body") == Replay(200, {"message": "msg_1"})


async def test_of_many_at_once_one_reopens(person: Person) -> None:
    await begin(person.principal, ROUTE, "k", b"body")
    await finish(person.principal, ROUTE, "k", 200, {"message": "msg_1"})
    replay = await begin(person.principal, ROUTE, "k", b"body")
    assert replay is not None
    results = await asyncio.gather(*(reopen(person.principal, ROUTE, "k", replay) for _ in range(8)))
    assert sorted(results) == [False] * 7 + [True]
    with pytest.raises(IdempotencyInFlight):
        await begin(person.principal, ROUTE, "k", b"body")
    await finish(person.principal, ROUTE, "k", 200, {"message": "msg_2"})
    assert not await reopen(person.principal, ROUTE, "k", replay)
    assert await begin(person.principal, ROUTE, "k", b"body") == Replay(200, {"message": "msg_2"})


async def test_a_call_in_flight_and_another_body_are_refused(person: Person) -> None:
    await begin(person.principal, ROUTE, "k", b"body")
    with pytest.raises(IdempotencyInFlight):
        await begin(person.principal, ROUTE, "k", b"body")
    with pytest.raises(IdempotencyMismatch):
        await begin(person.principal, ROUTE, "k", b"another")


async def test_of_many_at_once_one_goes_on(person: Person) -> None:
    results = await asyncio.gather(
        *(begin(person.principal, ROUTE, "k", b"") for _ in range(12)), return_exceptions=True
    )
    assert sum(result is None for result in results) == 1
    assert sum(isinstance(result, IdempotencyInFlight) for result in results) == 11


async def test_keys_belong_to_a_principal_and_a_route(person: Person, stranger: Person) -> None:
    await begin(person.principal, ROUTE, "k", b"body")
    for principal, route in (
        (stranger.principal, ROUTE),
        (person.session_principal, ROUTE),
        (person.principal, "POST /x"),
    ):
        assert await begin(principal, route, "k", b"another") is None


@pytest.mark.parametrize("status", [400, 409, 429, 500, 503])
async def test_a_failed_call_is_not_remembered(person: Person, status: int) -> None:
    await begin(person.principal, ROUTE, "k", b"body")
    await finish(person.principal, ROUTE, "k", status, {"code": "x"})
    assert await begin(person.principal, ROUTE, "k", b"corrected") is None


async def test_an_abandoned_call_may_be_repeated_but_a_finished_one_stays(person: Person) -> None:
    await begin(person.principal, ROUTE, "k", b"body")
    await abandon(person.principal, ROUTE, "k")
    assert await begin(person.principal, ROUTE, "k", b"body") is None
    await finish(person.principal, ROUTE, "k", 200, None)
    await abandon(person.principal, ROUTE, "k")
    assert await begin(person.principal, ROUTE, "k", b"body") == Replay(200, None)


async def test_a_call_whose_process_died_is_taken_over_once(person: Person) -> None:
    await begin(person.principal, ROUTE, "k", b"body")
    long_ago = timezone.now() - timedelta(seconds=idempotency.TAKEOVER_SECONDS + 1)
    await run_db(IdempotentCall.objects.update, created_at=long_ago)
    results = await asyncio.gather(
        *(begin(person.principal, ROUTE, "k", b"body") for _ in range(5)), return_exceptions=True
    )
    assert sum(result is None for result in results) == 1
    assert sum(isinstance(result, IdempotencyInFlight) for result in results) == 4


def test_an_answer_recorded_in_a_transaction_goes_with_it(person: Person) -> None:
    idempotency.begin_sync(person.principal, ROUTE, "k", b"body")
    with pytest.raises(RuntimeError), transaction.atomic():
        idempotency.record(person.principal, ROUTE, "k", 200, {})
        raise RuntimeError
    with pytest.raises(IdempotencyInFlight):
        idempotency.begin_sync(person.principal, ROUTE, "k", b"body")


@pytest.mark.parametrize("key", ["", "x" * 256, "a\nb", "caf\u00e9"])
async def test_a_strange_key_is_refused(person: Person, key: str) -> None:
    with pytest.raises(InvalidInput):
        await begin(person.principal, ROUTE, key, b"")


def post(person: Person, body: str, key: str = "k", path: str = "/v1/things") -> Any:
    headers = {**person.headers, "idempotency-key": key}
    return Client().post(path, body, content_type="application/json", headers=headers)


def test_a_view_runs_once_and_answers_the_same(person: Person) -> None:
    first, second = post(person, '{"a": 1}'), post(person, '{"a": 1}')
    assert (first.status_code, first.json()) == (second.status_code, second.json()) == (201, first.json())
    assert effects == [{"a": 1}]
    assert post(person, '{"a": 2}').json()["code"] == "idempotency_mismatch"
    assert post(person, '{"a": 1}', key="k2").json() != first.json()
    assert post(person, '{"a": 1}', path="/v1/others").json() != first.json()


def test_a_view_that_refuses_is_asked_again(person: Person) -> None:
    for _ in range(2):
        assert post(person, '{"refuse": true}').json()["code"] == "conflict"
    assert len(effects) == 2
    assert IdempotentCall.objects.count() == 0


def test_old_records_are_forgotten(person: Person) -> None:
    idempotency.begin_sync(person.principal, ROUTE, "old", b"")
    IdempotentCall.objects.update(created_at=timezone.now() - timedelta(hours=25))
    idempotency.begin_sync(person.principal, ROUTE, "new", b"")
    assert idempotency.forget_old() == 1
    assert IdempotentCall.objects.get().key == "new"
