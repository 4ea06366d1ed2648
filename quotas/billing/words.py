"""Budgets and amounts, as mails and pages say them. No I/O."""

from datetime import date, datetime, timedelta

from django.conf import settings

from quotas.money import amount, apart, shown
from quotas.periods import Period, midnight
from quotas.protocol import BudgetLimit, Unit


def figure(unit: Unit, value: int) -> str:
    """`1,000 tokens`, `12.50 USD`."""
    if unit is Unit.TOKENS:
        return f"{value:,} token{'' if value == 1 else 's'}"
    return shown(amount(value), settings.CURRENCY)


def spent(budget: BudgetLimit, value: int) -> str:
    """What is spent of it. Where it would read as the limit although there is some left, it is rounded down."""
    text = figure(budget.unit, value)
    if value >= budget.limit or text != figure(budget.unit, budget.limit):
        return text
    return apart(amount(value), amount(budget.limit), settings.CURRENCY)[0]


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
