"""The fields of limits, of a key or of a member."""

from decimal import Decimal
from typing import Any, Final

from django import forms
from django.conf import settings

from chatsite import typed
from chatsite.accounts.models import LIMITS

MAX_LIMIT: Final = 1_000_000_000
MAX_MONTHLY_TOKENS: Final = 1_000_000_000_000
LEAST_COST: Final = Decimal("0.01")
MAX_COST: Final = Decimal(1_000_000_000)
WIDGET: Final = {"autocomplete": "off"}


def count_field(label: str, most: int) -> typed.WholeField:
    """A whole number, or nothing."""
    return typed.WholeField(
        label=label,
        required=False,
        min_value=1,
        max_value=most,
        widget=forms.NumberInput(attrs={**WIDGET, "inputmode": "numeric"}),
        error_messages={
            "invalid": "Write a whole number, or nothing.",
            "min_value": "At least 1, or nothing.",
            "max_value": f"At most {most:,}.",
        },
    )


def cost_field(label: str) -> typed.AmountField:
    """An amount of money with cents, or nothing."""
    return typed.AmountField(
        label=label,
        required=False,
        min_value=LEAST_COST,
        max_value=MAX_COST,
        decimal_places=2,
        widget=forms.NumberInput(attrs={**WIDGET, "inputmode": "decimal"}),
        error_messages={
            "invalid": "Write an amount such as 20 or 12.50, or nothing.",
            "min_value": f"At least {LEAST_COST}, or nothing.",
            "max_value": f"At most {MAX_COST:,}.",
            "max_decimal_places": "At most two digits after the point.",
        },
    )


class LimitsForm(forms.Form):
    """Each may be empty: no such limit."""

    requests_per_minute = count_field("Requests a minute", MAX_LIMIT)
    tokens_per_minute = count_field("Tokens a minute", MAX_LIMIT)
    concurrent = count_field("Replies at once", MAX_LIMIT)
    monthly_tokens = count_field("Tokens a month", MAX_MONTHLY_TOKENS)
    monthly_cost = cost_field(f"{settings.CURRENCY} a month")

    def limits(self) -> dict[str, Any]:
        """By name, as `models.Limited` has them."""
        return {name: self.cleaned_data[name] for name in LIMITS}
