"""Budgets and amounts, as mails and pages say them. No I/O."""

from datetime import date, datetime, timedelta

from django.conf import settings

from quotas.money import amount, shown
from quotas.periods import Period, midnight
from quotas.protocol import BudgetLimit, Unit


def figure(unit: Unit, value: int) -> str:
    """`1,000 tokens`, `12.50 USD`."""
    return f"{value:,} tokens" if unit is Unit.TOKENS else shown(amount(value), settings.CURRENCY)


def allowance(budget: BudgetLimit) -> str:
    """`12.50 USD a month`, `1,000 tokens in 7 days`."""
    return f"{figure(budget.unit, budget.limit)} {period(budget)}"


def period(budget: BudgetLimit) -> str:
    return in_days(budget.days)


def in_days(days: int) -> str:
    """0: a calendar month."""
    if not days:
        return "a month"
    return f"in {days} days" if days > 1 else "a day"


def percent(part: int, whole: int) -> int:
    """Rounded down: 100 only where all is spent."""
    return part * 100 // whole


def room_again(budget: BudgetLimit, day: date) -> datetime:
    """When there is more: the next month, or the next day, when the oldest one drops out."""
    return midnight(day + timedelta(days=1)) if budget.days else midnight(Period.month(day).end)
