"""The nightly check: ledger, rollups and the counters in Redis say the same. What differs is noted and made right."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import structlog
from asgiref.sync import async_to_sync
from django.db import connection, transaction
from django.utils import timezone
from redis.exceptions import RedisError

from chatsite.errors import Unavailable
from chatsite.redis import close_async_client
from quotas import counters, rollups, spent_counters
from quotas.models import UsageCheck, UsageFinding
from quotas.periods import Period, midnight, today
from quotas.scripts import read_sql
from quotas.spent_counters import Difference

KEPT: Final = timedelta(days=90)  # that checks and findings stay
MAX_FINDINGS: Final = 1000  # of one check: then something is wrong as a whole, and rebuilding is the way
What = UsageFinding.What
log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class _Wrong:
    """A day of an organization whose rollup is not what the ledger says."""

    organization_id: UUID
    day: date
    what: What
    sums: tuple[tuple[str, Decimal, Decimal], ...]  # unit, in the ledger, in the rollup


def check() -> UsageCheck:
    """Looks at this month and the one before, and at every counter there is.

    Raises DatabaseError, RedisError; what was found until then stays.
    """
    since = Period.month(Period.month(today()).start - timedelta(days=1)).start
    run = UsageCheck.objects.create(since=since)
    UsageCheck.objects.filter(began_at__lt=run.began_at - KEPT).delete()
    organizations, wrong = _compare_rollups(since)
    for each in wrong[:MAX_FINDINGS]:
        _note(run, each)
    for organization_id, day in dict.fromkeys((each.organization_id, each.day) for each in wrong[:MAX_FINDINGS]):
        rollups.mend(organization_id, day)
    run.organizations, run.findings = organizations, sum(len(each.sums) for each in wrong)
    _check_counters(run)
    run.ended_at = timezone.now()
    run.save()
    log.info("usage checked", organizations=run.organizations, counters=run.counters, findings=run.findings)
    return run


def _compare_rollups(since: date) -> tuple[int, list[_Wrong]]:
    """How many organizations have used anything, and what is wrong; both as of one moment."""
    first, last = Period(since, today() + timedelta(days=2)).ids
    given: dict[str, Any] = {"since": since, "start": midnight(since), "first": first, "last": last}
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(read_sql("compare_rollups"), given)
        rows = cursor.fetchall()
    found = [wrong for row in rows for wrong in _wrong_in(*row)]
    return len({row[0] for row in rows}), found


def _wrong_in(organization_id: UUID, day: date, *sums: Decimal) -> Iterator[_Wrong]:
    """`sums`: requests, tokens and cost of the ledger, the hours and the day."""
    ledger, hours, days = sums[:3], sums[3:6], sums[6:9]
    for what, rolled in ((What.HOURS, hours), (What.DAYS, days)):
        units = zip(UsageFinding.Unit.values, ledger, rolled, strict=True)
        differing = tuple((unit, right, found) for unit, right, found in units if right != found)
        if differing:
            yield _Wrong(organization_id, day, what, differing)


def _note(run: UsageCheck, wrong: _Wrong) -> None:
    UsageFinding.objects.bulk_create(
        UsageFinding(
            of_check=run,
            organization_id=wrong.organization_id,
            what=wrong.what,
            day=wrong.day,
            unit=unit,
            in_ledger=right,
            found=found,
        )
        for unit, right, found in wrong.sums
    )


# Counters


def _check_counters(run: UsageCheck) -> None:
    for organization_id in spent_counters.organizations():
        looked_at, differences = spent_counters.compare(organization_id)
        run.counters += looked_at
        run.findings += len(differences)
        UsageFinding.objects.bulk_create(_findings(run, organization_id, differences))
        if differences:
            async_to_sync(_read_again)(organization_id, [each.counter for each in differences])


def _findings(run: UsageCheck, organization_id: UUID, differences: Sequence[Difference]) -> Iterable[UsageFinding]:
    for each in differences:
        subject, unit = each.counter
        yield UsageFinding(
            of_check=run,
            organization_id=organization_id,
            what=What.COUNTER,
            subject=subject,
            unit=unit.value,
            in_ledger=each.in_ledger,
            found=each.found,
        )


async def _read_again(organization_id: UUID, wrong: Sequence[counters.Counter]) -> None:
    try:
        await counters.read(organization_id, wrong)
    except (Unavailable, RedisError) as error:
        log.warning("counters not read again", organization=str(organization_id), error=str(error))
    finally:
        await close_async_client()
