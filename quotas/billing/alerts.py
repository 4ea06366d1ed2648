"""Tells when 50, 80 and 100 % of a budget are spent: once for each budget, period and threshold.

Rows are written first, under a lock of the organization's, so that several workers tell it once. What they tell goes
out afterwards, and is tried again until it has gone.
"""

import asyncio
from collections.abc import Sequence
from typing import Final
from uuid import UUID

import structlog
from django.conf import settings
from django.core.mail import EmailMessage
from django.db import connection, transaction
from django.template.loader import render_to_string

from chatsite.accounts.models import ApiKey
from chatsite.errors import Unavailable
from chatsite.ids import public_id
from chatsite.redis import close_async_client
from chatsite.webhooks.services import Event, emit
from quotas.billing import alert_rules as rules
from quotas.billing import words
from quotas.billing.activity import Activity
from quotas.billing.limits import id_of, limits_in
from quotas.billing.mails import send_due
from quotas.billing.models import BudgetAlert
from quotas.billing.people import told_about_money
from quotas.money import amount
from quotas.periods import today
from quotas.protocol import BudgetLimit, Spending, Unit
from quotas.selectors import spendings

TASK: Final = "alerts"
log = structlog.stdlib.get_logger(__name__)


def check_active() -> int:
    """Looks at every organization that has used something since the last time; returns how many alerts are new."""
    active = Activity(TASK)
    count = 0
    for organization_id in sorted(active.organizations):
        try:
            count += len(check(organization_id))
        except Unavailable as error:  # Redis is away: all are looked at again
            log.warning("budgets not looked at", error=error.message)
            return count
    active.done()
    return count


def check(organization_id: UUID) -> list[BudgetAlert]:
    """Writes down what was reached and not told yet; returns that. Raises Unavailable."""
    limits, day = [each.limit for each in limits_in(organization_id)], today()
    if not limits:
        return []
    standings = asyncio.run(_spendings(organization_id, limits))
    if today() != day:  # they may be of either day: the next run knows
        return []
    with transaction.atomic():
        _lock(organization_id)
        return [alert for each in standings for alert in _note(organization_id, each)]


async def _spendings(organization_id: UUID, limits: Sequence[BudgetLimit]) -> list[Spending]:
    try:
        return await spendings(organization_id, limits)
    finally:
        await close_async_client()


def _lock(organization_id: UUID) -> None:
    """Whoever looks at the same organization waits, in the caller's transaction."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"alerts {organization_id}"])


def _note(organization_id: UUID, spending: Spending) -> list[BudgetAlert]:
    """Of several thresholds that are new, only the highest is sent out."""
    budget, day = spending.budget, today()
    settled = spending.taken - spending.reserved
    reached = rules.reached(budget, settled)
    if not reached:
        return []
    same = {
        "organization_id": organization_id,
        "scope": budget.scope,
        "subject": budget.subject,
        "unit": budget.unit.value,
        "days": budget.days,
        "hard": budget.hard,
        "limit": budget.limit,
    }
    told = BudgetAlert.objects.filter(**same, period_start__gte=rules.told_since(budget, day))
    known = set(told.values_list("threshold", flat=True))
    found = [
        BudgetAlert(
            **same,
            period_start=rules.period_start(budget, day),
            threshold=each,
            spent=settled,
            title=budget.title,
            mail_due=each == reached[-1],
        )
        for each in reached
        if each not in known
    ]
    made = BudgetAlert.objects.bulk_create(found)
    if made and made[-1].mail_due:
        emit(organization_id, Event.BUDGET_THRESHOLD, _data(made[-1]))
    return made


def _data(alert: BudgetAlert) -> dict[str, object]:
    """What a webhook is told. Figures are whole tokens, or an amount as a decimal string with its currency."""
    budget = budget_of(alert)
    id = id_of(alert.subject)
    told: dict[str, object] = {
        "scope": alert.scope,
        "subject": public_id("user" if alert.scope == "user" else "key", id) if id else None,
        "title": alert.title,
        "unit": alert.unit,
        "period": f"{alert.days} days" if alert.days else "month",
        "hard": alert.hard,
        "threshold": alert.threshold,
    }
    if budget.unit is Unit.TOKENS:
        return {**told, "limit": alert.limit, "spent": alert.spent}
    figures = {"limit": alert.limit, "spent": alert.spent}
    return {**told, **{name: f"{amount(each):f}" for name, each in figures.items()}, "currency": settings.CURRENCY}


# What goes out


def send_mails() -> int:
    """Mails what is due; returns how many mails."""
    return send_due(BudgetAlert, _mail, "budget_alert")


def _mail(alert: BudgetAlert) -> EmailMessage | None:
    people = told_about_money(alert.organization_id, _concerned(alert))
    return EmailMessage(_subject(alert), _text(alert), to=people) if people else None


def _concerned(alert: BudgetAlert) -> list[UUID]:
    """Whose limit it is: the member, or who owns the key."""
    id = id_of(alert.subject)
    if id is None:
        return []
    if alert.scope == "user":
        return [id]
    return list(ApiKey.objects.filter(chain_id=id).values_list("user_id", flat=True).distinct())


def _subject(alert: BudgetAlert) -> str:
    name = " ".join(alert.organization.name.split())
    return f"{name[:60]}: {alert.threshold} % of a budget is spent"


def budget_of(alert: BudgetAlert) -> BudgetLimit:
    return BudgetLimit(alert.scope, alert.subject, alert.title, Unit(alert.unit), alert.limit, alert.days, alert.hard)


def _text(alert: BudgetAlert) -> str:
    budget = budget_of(alert)
    context = {
        "alert": alert,
        "allowance": words.allowance(budget),
        "spent": words.spent(budget, alert.spent),
        "percent": words.percent(alert.spent, alert.limit),
        "again": words.room_again(budget, alert.created_at.date()),
        "page": f"{settings.SITE_URL}/usage/budgets/" if settings.SITE_URL else "",
        "site_name": settings.SITE_NAME,
    }
    return render_to_string("billing/mail/budget_alert.txt", context)
