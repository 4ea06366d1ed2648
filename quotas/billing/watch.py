"""Flags keys and members that spend ten times what is usual, tells their owners, and pauses the keys that are to be."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import structlog
from django.conf import settings
from django.core.mail import EmailMessage
from django.db import connection, transaction
from django.template.loader import render_to_string
from django.utils import timezone

from chatsite.accounts.models import ApiKey, User
from chatsite.accounts.pausing import pause
from chatsite.accounts.protocol import SITE
from chatsite.ids import first_id, public_id
from chatsite.webhooks.services import Event, emit
from quotas.billing import unusual
from quotas.billing.activity import Activity
from quotas.billing.mails import send_due
from quotas.billing.models import SpendingFlag
from quotas.billing.people import told_about_money
from quotas.money import shown
from quotas.scripts import read_sql

TASK: Final = "unusual spending"
ONCE_IN: Final = timedelta(days=1)  # a key that goes on is flagged again; one that was resumed has so long
Scope = SpendingFlag.Scope
log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True)
class _Spender:
    """A member, or the keys of a chain, and what they spent in the past hour."""

    scope: SpendingFlag.Scope
    id: UUID
    keys: tuple[UUID, ...]
    spent: Decimal


def check_active() -> int:
    """Looks at every organization that has used something since the last time; returns how many flags are new."""
    active = Activity(TASK)
    count = sum(len(check(each, timezone.now())) for each in sorted(active.organizations))
    active.done()
    return count


def check(organization_id: UUID, now: datetime) -> list[SpendingFlag]:
    """Flags who has spent too much in the past hour, each once a day. A member whose key is flagged is not."""
    found: list[SpendingFlag] = []
    users: set[UUID] = set()
    for spender in _spenders(organization_id, now):
        if spender.scope is Scope.MEMBER and spender.id in users:
            continue
        usual = unusual.usual(_hours(organization_id, spender, now), settings.UNUSUAL_SPENDING_FLOOR)
        if not unusual.is_unusual(spender.spent, usual):
            continue
        if spender.scope is Scope.KEY:
            users |= set(ApiKey.objects.filter(chain_id=spender.id).values_list("user_id", flat=True))
        flag = _flag(organization_id, spender, usual, now)
        found += [flag] if flag else []
    return found


def _spenders(organization_id: UUID, now: datetime) -> list[_Spender]:
    """Keys first. Only those who have spent enough that it could be unusual: mostly nobody."""
    first = first_id(now - unusual.HOUR)
    with connection.cursor() as cursor:
        cursor.execute(read_sql("spent_by_key"), {"organization": organization_id, "first": first})
        rows = cursor.fetchall()
    chains = dict(ApiKey.objects.filter(pk__in=[key for _, key, _ in rows if key]).values_list("pk", "chain_id"))
    by_chain: dict[UUID, Decimal] = defaultdict(Decimal)
    by_user: dict[UUID, Decimal] = defaultdict(Decimal)
    for user_id, key_id, cost in rows:
        by_user[user_id] += cost
        if key_id in chains:
            by_chain[chains[key_id]] += cost
    keys = [_Spender(Scope.KEY, id, _keys_of(id), spent) for id, spent in _enough(by_chain).items()]
    return keys + [_Spender(Scope.MEMBER, id, (), spent) for id, spent in _enough(by_user).items()]


def _enough(spent: Mapping[UUID, Decimal]) -> dict[UUID, Decimal]:
    least = settings.UNUSUAL_SPENDING_FLOOR
    return {id: each for id, each in sorted(spent.items()) if unusual.is_unusual(each, least)}


def _keys_of(chain_id: UUID) -> tuple[UUID, ...]:
    return tuple(ApiKey.objects.filter(chain_id=chain_id).values_list("pk", flat=True))


def _hours(organization_id: UUID, spender: _Spender, now: datetime) -> list[Decimal]:
    begin, end = unusual.looked_back(now)
    given: dict[str, Any] = {
        "organization": organization_id,
        "first": first_id(begin),
        "last": first_id(end),
        "user": spender.id if spender.scope is Scope.MEMBER else None,
        "keys": list(spender.keys) if spender.scope is Scope.KEY else None,
    }
    with connection.cursor() as cursor:
        cursor.execute(read_sql("spent_by_hour"), given)
        return [cost for (cost,) in cursor.fetchall()]


@transaction.atomic
def _flag(organization_id: UUID, spender: _Spender, usual: Decimal, now: datetime) -> SpendingFlag | None:
    """None where it was flagged within a day."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"flags {organization_id}"])
    same = {"organization_id": organization_id, "scope": spender.scope, "subject_id": spender.id}
    if SpendingFlag.objects.filter(**same, created_at__gt=now - ONCE_IN).exists():
        return None
    paused = False
    if spender.scope is Scope.KEY and _is_to_pause(spender.id):
        why = f"yes: it spent {shown(spender.spent, settings.CURRENCY)} in an hour"
        paused = pause(spender.id, SITE, why)
    flag = SpendingFlag.objects.create(
        **same, spent=spender.spent, usual=usual, paused=paused, created_at=now, mail_due=True
    )
    emit(organization_id, Event.SPENDING_UNUSUAL, _data(flag))
    log.warning("unusual spending", organization=str(organization_id), scope=flag.scope, paused=paused)
    return flag


def _is_to_pause(chain_id: UUID) -> bool:
    return ApiKey.objects.filter(chain_id=chain_id, pause_when_unusual=True, revoked_at=None).exists()


def _data(flag: SpendingFlag) -> dict[str, object]:
    prefix = "key" if flag.scope == Scope.KEY else "user"
    return {
        "scope": prefix,
        "subject": public_id(prefix, flag.subject_id),
        "spent": f"{flag.spent:f}",
        "usual": f"{flag.usual:f}",
        "currency": settings.CURRENCY,
        "paused": flag.paused,
    }


# Mails


def send_mails() -> int:
    """Mails what is due; returns how many mails."""
    return send_due(SpendingFlag, _mail, "unusual_spending")


def _mail(flag: SpendingFlag) -> EmailMessage | None:
    key = ApiKey.objects.filter(chain_id=flag.subject_id).order_by("-id").first() if flag.scope == Scope.KEY else None
    people = told_about_money(flag.organization_id, [key.user_id if key else flag.subject_id])
    return EmailMessage(_subject(flag), _text(flag, key), to=people) if people else None


def _subject(flag: SpendingFlag) -> str:
    what = "An API key" if flag.scope == Scope.KEY else "A member"
    return f"{what} spends far more than usual" + (", and is paused" if flag.paused else "")


def _text(flag: SpendingFlag, key: ApiKey | None) -> str:
    member = User.objects.filter(pk=flag.subject_id).first() if flag.scope == Scope.MEMBER else None
    context = {
        "flag": flag,
        "key": key,
        "member": member,
        "spent": shown(flag.spent, settings.CURRENCY),
        "usual": shown(flag.usual, settings.CURRENCY),
        "page": f"{settings.SITE_URL}/account/keys/{key.public_id}" if settings.SITE_URL and key else "",
        "site_name": settings.SITE_NAME,
    }
    return render_to_string("billing/mail/unusual_spending.txt", context)
