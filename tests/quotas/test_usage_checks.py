"""The nightly check: it finds what differs, makes it right, and finds nothing where nothing is wrong."""

import asyncio
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from django.utils import timezone

from chatsite.ids import new_id
from chatsite.redis import close_async_client, sync_client
from inference.protocol import Usage
from quotas import counters, rollups, services, spent_counters, usage_checks
from quotas.budgets import Unit, key, member
from quotas.models import LedgerEntry, UsageCheck, UsageDay, UsageFinding, UsageHour
from quotas.money import units
from quotas.scripts import quota_prefix
from quotas.spent_counters import Difference
from quotas.tasks import check_usage
from tests.admin_rows import make_model, make_request
from tests.conftest import Person
from tests.quotas.used import used

pytestmark = pytest.mark.django_db(transaction=True)


def count(organization: UUID, *wanted: tuple[str, Unit]) -> None:
    """Counters as they are made when a budget needs them."""

    async def read() -> None:
        await counters.read(organization, wanted)
        await close_async_client()

    asyncio.run(read())


def change(organization: UUID, name: str, by: int) -> None:
    """As a fault would."""
    sync_client().hincrby(f"{quota_prefix(organization)}:counted", name, by)


def today_number() -> int:
    return int(datetime.now(UTC).timestamp()) // 86400


def findings() -> list[tuple[Any, ...]]:
    rows = UsageFinding.objects.order_by("what", "unit", "subject")
    return list(rows.values_list("what", "unit", "subject", "in_ledger", "found"))


@pytest.fixture
def everything(person: Person) -> UUID:
    """An organization with use, all of it rolled up and counted."""
    organization = person.organization.pk
    used(organization, user_id=person.user.pk, api_key_id=person.key.pk, usage=Usage(1000, 0, 100))
    used(organization, user_id=new_id(), usage=Usage(10, 0, 1))
    used(organization, datetime.now(UTC) - timedelta(days=20), user_id=person.user.pk, usage=Usage(5, 0, 5))
    rollups.roll_up()
    subjects = ("org", member(person.user.pk), key(person.key.chain_id))
    count(organization, *((subject, unit) for subject in subjects for unit in Unit))
    return organization


def unreleased(person: Person) -> None:
    """A request of 100 tokens that PostgreSQL has ended, and of which Redis may not know."""
    make_request(person, make_model(), released_at=None, prompt_tokens=70, cached_tokens=0, output_tokens=30)


def test_nothing_is_found_where_all_agree(everything: UUID, person: Person) -> None:
    unreleased(person)  # the rollups are behind, which is no fault; and so are the counters, which is none either
    check_usage()
    run = UsageCheck.objects.get()
    assert findings() == []
    assert (run.organizations, run.counters, run.findings) == (1, 6, 0)
    assert run.ended_at is not None


def test_a_counter_that_is_wrong_is_noted_and_read_again(everything: UUID, person: Person) -> None:
    change(everything, f"org cost {today_number()}", units(Decimal("0.5")))
    change(everything, f"user:{person.user.pk} tokens {today_number()}", -7)
    check_usage()
    spent = sum(LedgerEntry.objects.values_list("cost", flat=True))
    assert findings() == [
        ("counter", "cost", "org", spent, spent + Decimal("0.5")),
        ("counter", "tokens", f"user:{person.user.pk}", 1110, 1103),
    ]
    assert spent_counters.compare(everything) == (6, [])
    check_usage()
    assert [run.findings for run in UsageCheck.objects.order_by("id")] == [2, 0]


def test_what_is_reserved_is_no_difference(everything: UUID) -> None:
    change(everything, f"org tokens {today_number()}", 4000)
    change(everything, "org tokens held", 4000)
    assert spent_counters.compare(everything) == (6, [])


def test_more_in_redis_than_in_the_ledger_is_found_while_requests_are_not_released(
    everything: UUID, person: Person
) -> None:
    unreleased(person)
    change(everything, f"org tokens {today_number()}", 100)  # settled, not yet marked as released
    assert spent_counters.compare(everything)[1] == []
    change(everything, f"org tokens {today_number()}", 1)
    assert spent_counters.compare(everything)[1] == [Difference(("org", Unit.TOKENS), Decimal(1221), Decimal(1222))]


def test_a_released_request_that_redis_has_not_is_found(everything: UUID) -> None:
    used(everything, usage=Usage(70, 0, 30))
    differences = spent_counters.compare(everything)[1]
    assert Difference(("org", Unit.TOKENS), Decimal(1221), Decimal(1121)) in differences


def test_counters_of_keys_that_are_gone_are_left_out(everything: UUID, person: Person) -> None:
    person.key.delete()
    assert spent_counters.compare(everything) == (4, [])


def test_a_rollup_that_is_wrong_is_noted_and_made_again(everything: UUID) -> None:
    UsageHour.objects.filter(input=1000).update(input=999, cost=0)
    UsageDay.objects.filter(input=10).delete()
    check_usage()
    found = [(what, unit, int(right * 10**7), int(wrong * 10**7)) for what, unit, _, right, wrong in findings()]
    assert [(what, unit) for what, unit, _, _ in found] == [
        ("days", "cost"), ("days", "requests"), ("days", "tokens"), ("hours", "cost"), ("hours", "tokens"),
    ]  # fmt: skip
    assert found[1][2:] == (2 * 10**7, 10**7)
    assert found[4][2:] == (1111 * 10**7, 1110 * 10**7)
    check_usage()
    assert UsageCheck.objects.latest("id").findings == 0


def test_a_rollup_of_nothing_is_found(everything: UUID) -> None:
    ghost = new_id()
    UsageDay.objects.create(
        organization_id=ghost, day=datetime.now(UTC).date(), user_id=ghost, model="x", requests=1, input=0, cached=0,
        output=0, cost=0,
    )  # fmt: skip
    check_usage()
    assert UsageFinding.objects.get().organization_id == ghost
    assert not UsageDay.objects.filter(organization_id=ghost).exists()


def test_refunds_and_corrections_leave_all_in_agreement(everything: UUID) -> None:
    request = LedgerEntry.objects.get(input=1000).request_id
    services.refund(request, Decimal("0.00001"))
    count(everything, ("org", Unit.COST))
    rollups.roll_up()
    check_usage()
    assert findings() == []


def test_old_checks_go(everything: UUID) -> None:
    old = UsageCheck.objects.create(began_at=timezone.now() - timedelta(days=91), since="2026-01-01")
    UsageFinding.objects.create(
        of_check=old, organization_id=everything, what="days", unit="cost", in_ledger=1, found=2
    )
    usage_checks.check()
    assert not UsageFinding.objects.exists()
    assert UsageCheck.objects.count() == 1
