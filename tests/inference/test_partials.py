"""Saving partial text: one statement, only for live claims, and one bad row fails nobody else."""

from collections.abc import Sequence
from uuid import UUID

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from chatsite.ids import new_id
from inference.events import pack_ids
from inference.models import Model, Partial, Request
from inference.partials import PartialRow, save
from inference.settlement import join_text
from tests.conftest import Person


@pytest.fixture
def requests(person: Person) -> list[Request]:
    model = Model.objects.create(
        name="m", title="M", context_length=100, tiers=["free"], price_input=1, price_cached=1, price_output=1
    )
    return [
        Request.objects.create(
            organization=person.organization,
            user_id=person.user.id,
            model=model,
            lane="free",
            owner_kind="message",
            owner_id=new_id(),
            status="running",
            sampling={},
            cache_salt="",
            prompt_tokens=1,
            attempt=1,
            claim=new_id(),
            deadline=timezone.now(),
        )
        for _ in range(5)
    ]


def row(request: Request, start: int, ids: Sequence[int], text: str, claim: UUID | None = None) -> PartialRow:
    return PartialRow(
        request.id,
        claim or request.claim,
        1,
        start,
        start + len(ids),
        start,
        pack_ids(ids),
        text,  # type: ignore[arg-type]
    )


def test_one_statement_saves_all(requests: list[Request]) -> None:
    with CaptureQueriesContext(
        connection,
    ) as queries:
        assert save([row(request, 0, [1, 2], "ab") for request in requests]) == set()
    assert sum("INSERT" in query["sql"] for query in queries) == 1
    assert Partial.objects.count() == 5


def test_s26_a_claim_that_is_no_longer_live_saves_nothing(requests: list[Request]) -> None:
    assert save([row(requests[0], 0, [1], "a", claim=new_id()), row(requests[1], 0, [1], "b")]) == set()
    assert [partial.request_id for partial in Partial.objects.all()] == [requests[1].id]


def test_a_row_that_is_refused_does_not_fail_the_others(requests: list[Request]) -> None:
    rows = [row(request, 0, [1], "a") for request in requests]
    rows[3] = row(requests[3], 0, [1], "NUL \0 cannot be stored")
    assert save(rows) == {requests[3].id}
    assert Partial.objects.count() == 4


def test_a_save_whose_answer_was_lost_grows_when_it_is_repeated(requests: list[Request]) -> None:
    save([row(requests[0], 0, [1, 2], "ab")])
    save([row(requests[0], 0, [1, 2, 3], "abc")])
    save([row(requests[0], 0, [1], "a")])  # late: shorter, so it changes nothing
    save([row(requests[0], 3, [4], "d")])
    joined = join_text(Partial.objects.order_by("from_token"), 0, 0, None)
    assert (joined.token_ids, joined.text) == ([1, 2, 3, 4], "abcd")


def test_text_beyond_a_gap_is_not_joined(requests: list[Request]) -> None:
    save([row(requests[0], 0, [1], "a"), row(requests[0], 2, [3], "c")])
    assert join_text(Partial.objects.order_by("from_token"), 0, 0, None).text == "a"
