"""Amounts and figures of statements and budgets."""

from decimal import Decimal

from django import template

register = template.Library()
LEAST = 2  # decimal places


@register.filter
def money(cost: Decimal, places: int = 0) -> str:
    """To the last digit that is there, and at least two decimal places, or `places`: `1,234.50`, `0.0000121`."""
    whole, _, digits = f"{cost:,.10f}".partition(".")
    return f"{whole}.{digits.rstrip('0').ljust(max(LEAST, places), '0')}"


@register.filter
def count(number: int) -> str:
    """`1,000`."""
    return f"{number:,}"
