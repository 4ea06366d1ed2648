"""Rolling the ledger up by hour and day, and reading how far that is.

A mark says up to which row (its id) the ledger is rolled up. Rows get their ids in one order and are seen in another,
so the mark goes only as far as every writer has ended. It moves in the transaction that writes the rollups, and what
the ledger has behind it can be added to them: at any moment both together are the whole ledger. Whole hours are counted
anew, so doing it twice, or again after a crash, changes nothing.
"""

import time
from datetime import date, timedelta
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.utils import timezone

from quotas.models import UsageDay, UsageHour, UsageMark
from quotas.periods import Period, midnight
from quotas.scripts import read_sql

STEP = 50_000  # ids of one transaction
WAIT_SECONDS = 5.0  # for writers that have an id and are not done
POLL_SECONDS = 0.01
RUN_SECONDS = 40.0  # of one run; what is left then is the next one's
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('quotas_rollups', 0))"
_TRY_LOCK = "SELECT pg_try_advisory_xact_lock(hashtextextended('quotas_rollups', 0))"


def roll_up(seconds: float = RUN_SECONDS) -> bool:
    """Brings the rollups up to the ledger.

    False when some is left: another process does it, somebody takes long to write, or the time is over.
    """
    horizon = _horizon(WAIT_SECONDS)
    if horizon is None:
        return False
    deadline = time.monotonic() + seconds
    while True:
        with transaction.atomic():
            if not _locked(_TRY_LOCK):
                return False
            if _step(horizon):
                return True
        if time.monotonic() > deadline:
            return False


def rebuild() -> None:
    """Makes all rollups again. Whoever reads meanwhile gets the same sums, from the ledger. Waits for other runs."""
    with transaction.atomic():
        _locked(_LOCK)
        UsageHour.objects.all().delete()
        UsageDay.objects.all().delete()
        _set_mark(0)
    done = False
    while not done:
        horizon = _horizon(WAIT_SECONDS)
        if horizon is None:
            continue
        with transaction.atomic():
            _locked(_LOCK)
            done = _step(horizon)


def mend(organization_id: UUID, day: date) -> None:
    """Makes one day of one organization again, as far as the ledger is rolled up."""
    hours = Period(day, day + timedelta(days=1))
    given: dict[str, Any] = {"organization": organization_id, "day": day, "start": midnight(hours.start)}
    first, last = hours.ids
    with transaction.atomic(), connection.cursor() as cursor:
        _locked(_LOCK)
        UsageHour.objects.filter(
            organization_id=organization_id, hour__gte=midnight(hours.start), hour__lt=midnight(hours.end)
        ).delete()
        UsageDay.objects.filter(organization_id=organization_id, day=day).delete()
        for name in ("mend_hours", "mend_day"):
            cursor.execute(read_sql(name), {**given, "first": first, "last": last, "upto": mark()})


def mark() -> int:
    """The last row of the ledger that is rolled up, by its id."""
    return UsageMark.objects.values_list("ledger_id", flat=True).first() or 0


def _step(horizon: int) -> bool:
    """Some rows more, with the lock held. True when there are none before the horizon."""
    since = mark()
    upto = min(horizon, since + STEP)
    if upto <= since:
        return True
    with connection.cursor() as cursor:
        for name in ("roll_hours", "roll_days"):
            cursor.execute(read_sql(name), {"since": since, "upto": upto})
    _set_mark(upto)
    return upto == horizon


def _set_mark(ledger_id: int) -> None:
    UsageMark.objects.update_or_create(id=1, defaults={"ledger_id": ledger_id, "at": timezone.now()})


def _locked(query: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(query)
        return bool(cursor.fetchone()[0] is not False)


def _horizon(wait: float) -> int | None:
    """The last id behind which no row can turn up any more: every row up to it can be seen, or never will be.

    None when somebody has been writing for `wait` seconds.
    """
    last, writers = _writers()
    deadline = time.monotonic() + wait
    while writers:
        if time.monotonic() > deadline:
            return None
        time.sleep(POLL_SECONDS)
        writers &= _writers()[1]
    return last


def _writers() -> tuple[int, set[str]]:
    with connection.cursor() as cursor:
        cursor.execute(read_sql("rollup_horizon"))
        last, writers = cursor.fetchone()
        return int(last), set(writers)
