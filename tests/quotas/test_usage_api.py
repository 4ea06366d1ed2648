"""`GET /v1/usage` and `GET /v1/quota`: who sees what, exact sums, clear errors."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client

from chatsite.accounts import services as accounts
from chatsite.accounts.models import Membership
from chatsite.accounts.roles import Role
from chatsite.ids import new_id, public_id
from inference.protocol import Usage
from quotas import rollups
from quotas.models import Budget, LedgerEntry
from tests.conftest import Person
from tests.quotas.used import used

pytestmark = pytest.mark.django_db(transaction=True)
SIMPLE = {"requests", "input", "cached", "output", "cost"}


def get(person: Person, path: str, **query: str) -> Any:
    return Client().get(path, query, headers={"authorization": person.headers["authorization"]})


def usage(person: Person, **query: str) -> Any:
    answer = get(person, "/v1/usage", **query)
    assert answer.status_code == 200, answer.content
    return answer.json()


@pytest.fixture
def colleague(person: Person, make_person: Any) -> Person:
    """Works in the organization of `person`, with a key there."""
    other = make_person("finn@example.com")
    Membership.objects.create(user=other.user, organization=person.organization, role=Role.MEMBER)
    key, secret = accounts.create_api_key(other.user, person.organization, "Finn's")
    return Person(other.user, person.organization, key, secret)


def by_both(person: Person, colleague: Person) -> None:
    organization = person.organization.id
    used(organization, user_id=person.user.id, usage=Usage(812, 640, 245))
    used(organization, user_id=person.user.id, api_key_id=person.key.id, model="large")
    rollups.roll_up()
    used(organization, user_id=colleague.user.id, api_key_id=colleague.key.id)


def test_by_day(person: Person) -> None:
    used(person.organization.id, user_id=person.user.id, usage=Usage(812, 640, 245))
    used(person.organization.id, user_id=person.user.id, usage=Usage(1, 0, 0))
    body = usage(person)
    assert set(body) == {"data", "total", "currency"}
    [day] = body["data"]
    assert day == {
        "group": f"{datetime.now(UTC):%Y-%m-%d}",
        "requests": 2,
        "input": 813,
        "cached": 640,
        "output": 245,
        "cost": "0.0001217",
    }
    assert body["total"] == {name: day[name] for name in SIMPLE}
    assert body["currency"] == "USD"


def test_without_any_use(person: Person) -> None:
    assert usage(person) == {
        "data": [],
        "total": {"requests": 0, "input": 0, "cached": 0, "output": 0, "cost": "0"},
        "currency": "USD",
    }


def test_groups_are_named_as_the_api_names_them(person: Person, colleague: Person) -> None:
    by_both(person, colleague)
    groups = {
        group: [row["group"] for row in usage(person, group_by=group)["data"]] for group in ("model", "key", "member")
    }
    assert groups["model"] == ["tiny", "large"]
    assert set(groups["key"]) == {None, person.key.public_id, colleague.key.public_id}
    assert groups["member"] == [person.user.public_id, colleague.user.public_id]


@pytest.mark.parametrize("role", Role)
def test_s32_members_see_their_own_and_others_all(person: Person, colleague: Person, role: Role) -> None:
    by_both(person, colleague)
    Membership.objects.filter(user=colleague.user, organization=person.organization).update(role=role)
    seen = usage(colleague, group_by="member")
    if role is Role.MEMBER:
        assert [row["group"] for row in seen["data"]] == [colleague.user.public_id]
        assert seen["total"]["requests"] == 1
        assert len(usage(colleague, group_by="key")["data"]) == 1
    else:
        assert seen["total"]["requests"] == 3


def test_s32_nothing_of_other_organizations(person: Person, stranger: Person) -> None:
    used(stranger.organization.id, user_id=person.user.id)  # the same user, elsewhere
    assert usage(person)["data"] == []
    assert usage(stranger)["total"]["requests"] == 1


def test_a_key_needs_the_scope_to_read(person: Person) -> None:
    person.key.scopes = ["chat"]
    person.key.save()
    for path in ("/v1/usage", "/v1/quota"):
        answer = get(person, path)
        assert (answer.status_code, answer.json()["code"]) == (403, "insufficient_scope")
        assert Client().get(path).status_code == 401


def test_the_total_is_the_sum_of_the_ledger(person: Person) -> None:
    now = datetime.now(UTC)
    for number in range(30):
        used(
            person.organization.id, now - timedelta(hours=5 * number), user_id=person.user.id,
            usage=Usage(1000 + 7 * number, 13 * number, 3 * number),
        )  # fmt: skip
        if number == 20:
            rollups.roll_up()
    total = usage(person, **{"from": f"{now - timedelta(days=10):%Y-%m-%d}"})["total"]
    assert Decimal(total["cost"]) == sum(LedgerEntry.objects.values_list("cost", flat=True))
    assert total["input"] == sum(LedgerEntry.objects.values_list("input", flat=True))


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ({"from": "tomorrow"}, "from"),
        ({"to": "2026-02-30"}, "to"),
        ({"from": "2026-03-02", "to": "2026-03-01"}, "to"),
        ({"from": "2026-03-02T00:00:00"}, "from"),
        ({"from": "\0"}, "from"),
        ({"group_by": "lane"}, "group_by"),
        ({"group_by": ""}, "group_by"),
    ],
)
def test_bad_input_is_told(person: Person, query: dict[str, str], param: str) -> None:
    answer = get(person, "/v1/usage", **query)
    assert answer.status_code == 400
    assert (answer.json()["code"], answer.json()["param"]) == ("invalid_input", param)


def test_limits_are_told_with_every_answer(person: Person) -> None:
    assert "x-ratelimit-limit-tokens" in get(person, "/v1/usage").headers
    assert "x-ratelimit-limit-tokens" in get(person, "/v1/usage", group_by="x").headers


def test_quota(person: Person) -> None:
    Budget.objects.create(organization=person.organization, limit_cost=Decimal(5), hard=False)
    used(person.organization.id, user_id=person.user.id, usage=Usage(0, 0, 1_000_000))
    body = get(person, "/v1/quota").json()
    assert body["plan"] == "demo"
    budget = next(each for each in body["limits"] if each["kind"] == "budget")
    reset = budget.pop("reset")
    assert datetime.fromisoformat(reset).day == 1
    assert budget == {
        "scope": "organization",
        "kind": "budget",
        "unit": "cost",
        "period": "month",
        "hard": False,
        "limit": "5",
        "remaining": "4.6",
        "reserved": "0",
        "currency": "USD",
    }
    minute = next(each for each in body["limits"] if each["kind"] == "tokens_per_minute")
    assert minute["scope"] == "plan"
    assert minute["remaining"] == minute["limit"] > 0


def test_somebody_who_left_has_no_key_any_more(person: Person, colleague: Person) -> None:
    Membership.objects.filter(user=colleague.user, organization=person.organization).delete()
    assert get(colleague, "/v1/usage").status_code == 401


def test_ids_of_those_who_are_gone_stay(person: Person) -> None:
    gone = new_id()
    used(person.organization.id, user_id=gone, api_key_id=gone)
    assert usage(person, group_by="member")["data"][0]["group"] == public_id("user", gone)
    assert usage(person, group_by="key")["data"][0]["group"] == public_id("key", gone)
