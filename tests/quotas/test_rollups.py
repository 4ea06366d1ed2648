"""Rolling up the ledger: nothing twice, nothing left out, whoever writes, dies or runs meanwhile."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from io import StringIO
from typing import Any
from uuid import UUID

import pytest
from django.core.management import call_command
from django.db import connection, transaction
from django.db.models import Sum

from chatsite.ids import new_id
from quotas import rollups, services
from quotas.models import LedgerEntry, UsageDay, UsageHour, UsageMark
from quotas.services import Correction
from quotas.tasks import roll_up_usage
from tests.quotas.used import used
from tests.waiting import wait_until_sync

pytestmark = pytest.mark.django_db
MORNING = datetime(2026, 3, 29, 0, 30, tzinfo=UTC)  # in the night in which clocks in Europe skip an hour


def sums(rows: Any) -> tuple[Any, ...]:
    found = rows.aggregate(*(Sum(name) for name in ("input", "cached", "output", "cost")))
    return tuple(found.values())


def everything() -> list[tuple[Any, ...]]:
    """Of both tables, but for their keys."""
    hours = UsageHour.objects.order_by("organization_id", "hour", "user_id", "api_key_id", "model")
    days = UsageDay.objects.order_by("organization_id", "day", "user_id", "api_key_id", "model")
    names = ("organization_id", "user_id", "api_key_id", "model", "requests", "input", "cached", "output", "cost")
    return [*hours.values_list("hour", *names), *days.values_list("day", *names)]


def check_sums() -> None:
    assert sums(UsageHour.objects) == sums(UsageDay.objects) == sums(LedgerEntry.objects)
    assert (
        UsageDay.objects.aggregate(Sum("requests"))["requests__sum"] == LedgerEntry.objects.filter(kind="usage").count()
    )


@contextmanager
def open_writer(organization: UUID) -> Iterator[Callable[[], None]]:
    """Another connection with a row that is written and not committed; call it to commit."""
    written, go = threading.Event(), threading.Event()

    def write() -> None:
        try:
            with transaction.atomic():
                used(organization, input=1000)
                written.set()
                assert go.wait(30)
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(write)
        assert written.wait(30)

        def commit() -> None:
            go.set()
            done.result(30)

        try:
            yield commit
        finally:
            commit()


def test_hours_and_days_are_those_of_utc() -> None:
    organization = new_id()
    for minutes in (0, 29, 30, 23 * 60 + 29, 23 * 60 + 30):
        used(organization, MORNING + timedelta(minutes=minutes))
    roll_up_usage()
    hours = UsageHour.objects.order_by("hour").values_list("hour", "requests")
    assert [(hour.astimezone(UTC).isoformat(), count) for hour, count in hours] == [
        ("2026-03-29T00:00:00+00:00", 2),
        ("2026-03-29T01:00:00+00:00", 1),
        ("2026-03-29T23:00:00+00:00", 1),
        ("2026-03-30T00:00:00+00:00", 1),
    ]
    days = UsageDay.objects.order_by("day").values_list("day", "requests", "input", "output")
    assert list(days) == [(date(2026, 3, 29), 4, 40, 20), (date(2026, 3, 30), 1, 10, 5)]
    check_sums()


def test_one_row_for_each_caller_and_model() -> None:
    organization, other, key = new_id(), new_id(), new_id()
    for about in ({}, {"user_id": other}, {"api_key_id": key}, {"model": "large"}, {}):
        used(organization, MORNING, **about)
    used(other, MORNING)
    assert rollups.roll_up()
    assert UsageHour.objects.count() == UsageDay.objects.count() == 5
    assert UsageDay.objects.get(organization_id=organization, api_key_id=key).cost == Decimal("0.000003")
    check_sums()


def test_rolling_up_again_changes_nothing() -> None:
    organization = new_id()
    for minutes in range(0, 300, 50):
        used(organization, MORNING + timedelta(minutes=minutes))
    rollups.roll_up()
    before, mark = everything(), rollups.mark()
    rollups.roll_up()
    assert (everything(), rollups.mark()) == (before, mark)
    UsageMark.objects.update(ledger_id=0)  # as if the mark had been lost
    rollups.roll_up()
    assert everything() == before


def test_what_is_late_or_wrong_belongs_to_the_hour_of_its_request() -> None:
    organization = new_id()
    request = used(organization, MORNING)
    rollups.roll_up()
    used(organization, MORNING - timedelta(days=40), input=7)
    services.correct(request, Correction(input=-3, output=-1, cost=Decimal("-0.0000007")))
    services.refund(request, Decimal("0.000001"))
    rollups.roll_up()
    row = UsageDay.objects.get(day=MORNING.date())
    assert (row.requests, row.input, row.output, row.cost) == (1, 7, 4, Decimal("0.0000013"))
    assert UsageDay.objects.get(day=date(2026, 2, 17)).input == 7
    check_sums()


def test_after_days_away_everything_is_taken_up_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollups, "STEP", 3)
    organization = new_id()
    for hours in range(20):
        used(organization, MORNING + timedelta(hours=7 * hours))
    assert not rollups.roll_up(seconds=-1)  # there is no time left for a second step
    while not rollups.roll_up(seconds=0.01):
        pass
    check_sums()
    assert UsageHour.objects.count() == 20


def test_rebuilding_makes_the_same_again_and_mends_what_was_wrong() -> None:
    organization = new_id()
    for hours in range(8):
        used(organization, MORNING + timedelta(hours=5 * hours), model=f"model-{hours % 2}")
    rollups.roll_up()
    right = everything()
    UsageHour.objects.all()[0].delete()
    UsageDay.objects.create(
        organization_id=organization, day=MORNING.date(), user_id=new_id(), model="ghost", requests=1, input=1,
        cached=0, output=1, cost=1,
    )  # fmt: skip
    out = StringIO()
    call_command("rebuild_rollups", stdout=out)
    assert everything() == right
    assert "Made again" in out.getvalue()


def test_mending_a_day_leaves_the_others_alone() -> None:
    organization = new_id()
    for days in range(3):
        used(organization, MORNING + timedelta(days=days))
    rollups.roll_up()
    right = everything()
    used(organization, MORNING + timedelta(days=1))  # behind the mark: it is not part of it yet
    UsageHour.objects.filter(hour__date=date(2026, 3, 30)).update(input=1)
    UsageDay.objects.filter(day=date(2026, 3, 30)).delete()
    rollups.mend(organization, date(2026, 3, 30))
    assert everything() == right
    rollups.roll_up()
    check_sums()


@pytest.mark.django_db(transaction=True)
def test_a_row_that_is_written_and_not_yet_seen_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has an id from before those that are seen: a mark beyond it would leave it out for ever."""
    organization = new_id()
    with open_writer(organization) as commit:
        used(organization)  # a later id, seen at once
        monkeypatch.setattr(rollups, "WAIT_SECONDS", 0.05)
        assert not rollups.roll_up()
        assert rollups.mark() == 0
        monkeypatch.setattr(rollups, "WAIT_SECONDS", 30)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(_in_thread, rollups.roll_up)
            wait_until_sync(lambda: waiting.running())
            commit()
            assert waiting.result(30)
    check_sums()
    assert LedgerEntry.objects.count() == 2


@pytest.mark.django_db(transaction=True)
def test_two_workers_at_once_and_writers_beside_them() -> None:
    organizations = [new_id() for _ in range(3)]
    over = threading.Event()

    def write(number: int) -> None:
        for minute in range(40):
            used(organizations[number], MORNING + timedelta(minutes=7 * minute), model=f"m{minute % 2}")

    def roll() -> None:
        while not over.is_set():
            rollups.roll_up()

    with ThreadPoolExecutor(5) as pool:
        workers = [pool.submit(_in_thread, roll) for _ in range(2)]
        writers = [pool.submit(_in_thread, write, number) for number in range(3)]
        for each in writers:
            each.result(60)
        over.set()
        for each in workers:
            each.result(60)
    rollups.roll_up()
    check_sums()
    assert LedgerEntry.objects.count() == 120


def _in_thread(function: Callable[..., Any], *args: Any) -> Any:
    try:
        return function(*args)
    finally:
        connection.close()
