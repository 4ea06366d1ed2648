"""The form of a budget."""

from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from django import forms
from django.conf import settings

from chatsite import typed
from chatsite.accounts.models import ApiKey, Membership, Organization
from chatsite.accounts.selectors import working
from quotas.billing.budgeting import Terms
from quotas.models import Budget
from quotas.money import MAX_BUDGET_COST, MAX_BUDGET_TOKENS
from quotas.periods import MAX_ROLLING_DAYS
from quotas.protocol import Unit

EVERYBODY: Final = "organization"
WRONG: Final = {"invalid_choice": "Choose among what is offered.", "required": "Choose one."}
MOST_DIGITS: Final = 40  # of what somebody types
REFUSE, WARN = "hard", "soft"


def whose_choices(organization: Organization) -> list[tuple[str, Any]]:
    """The organization, its members, its keys (those that replaced one another are one)."""
    places = Membership.objects.filter(organization=organization).select_related("user").order_by("created_at")
    keys = ApiKey.objects.filter(working(), organization=organization, replaced_by=None).select_related("user")
    shared = not organization.is_personal
    members = [(f"member:{each.user_id}", each.user.called) for each in places] if shared else []
    names = [
        (f"key:{each.chain_id}", f"{each.name} ({each.user.called})" if shared else each.name)
        for each in keys.order_by("name", "id")
    ]
    groups = [("One member", members), ("One API key", names)]
    return [(EVERYBODY, "The whole organization"), *[group for group in groups if group[1]]]


class BudgetForm(forms.Form):
    """`present`: the budget that is changed."""

    whose = forms.ChoiceField(label="For", error_messages=WRONG)
    amount = typed.AmountField(
        label="Limit",
        max_digits=MOST_DIGITS,
        widget=forms.TextInput(attrs={"autocomplete": "off", "inputmode": "decimal"}),
        error_messages={
            "required": "How much?",
            "invalid": "Write a number such as 20 or 12.50.",
            "max_digits": "This is too much.",
            "max_whole_digits": "This is too much.",
        },
    )
    unit = forms.ChoiceField(
        label="Of",
        choices=[(Unit.COST.value, settings.CURRENCY), (Unit.TOKENS.value, "tokens")],
        error_messages=WRONG,
    )
    period = forms.ChoiceField(
        label="In",
        choices=[(Budget.Period.MONTH.value, "a calendar month (UTC)"), (Budget.Period.ROLLING.value, "the last days")],
        error_messages=WRONG,
    )
    days = typed.WholeField(
        label="Days",
        required=False,
        min_value=1,
        max_value=MAX_ROLLING_DAYS,
        widget=forms.NumberInput(attrs={"autocomplete": "off", "inputmode": "numeric"}),
        error_messages={
            "invalid": "Write a whole number.",
            "min_value": "At least 1.",
            "max_value": f"At most {MAX_ROLLING_DAYS}.",
        },
    )
    when_spent = forms.ChoiceField(
        label="When it is spent",
        choices=[
            (REFUSE, "Refuse what would go beyond it"),
            (WARN, "Only warn, at 50, 80 and 100 %"),
        ],
        initial=REFUSE,
        widget=forms.RadioSelect,
        error_messages=WRONG,
    )

    def __init__(self, data: Any = None, *, organization: Organization, present: Budget | None = None) -> None:
        super().__init__(data, initial=_initial(present) if present else None)
        choices = whose_choices(organization)
        if present is not None and _whose(present) not in _values(choices):
            choices.append((_whose(present), "As it is: somebody or a key that is gone"))
        self.fields["whose"].choices = choices  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any]:
        data: dict[str, Any] = super().clean() or self.cleaned_data
        amount = data.get("amount")
        if amount is not None and "unit" in data and (problem := _wrong_amount(amount, data["unit"])):
            self.add_error("amount", problem)
        if data.get("period") == Budget.Period.ROLLING and data.get("days") is None and "days" not in self.errors:
            self.add_error("days", "How many days?")
        return data

    def terms(self) -> Terms:
        data = self.cleaned_data
        kind, _, subject = data["whose"].partition(":")
        tokens = data["unit"] == Unit.TOKENS
        return Terms(
            scope=Budget.Scope(kind),
            subject_id=UUID(subject) if subject else None,
            days=data["days"] if data["period"] == Budget.Period.ROLLING else None,
            tokens=int(data["amount"]) if tokens else None,
            cost=None if tokens else data["amount"],
            hard=data["when_spent"] == REFUSE,
        )


def _wrong_amount(amount: Decimal, unit: str) -> str:
    if amount <= 0:
        return "More than 0."
    if unit == Unit.TOKENS:
        if amount != amount.to_integral_value():
            return "Tokens are whole: write a number without a point."
        return f"At most {MAX_BUDGET_TOKENS:,} tokens." if amount > MAX_BUDGET_TOKENS else ""
    if amount > MAX_BUDGET_COST:
        return f"At most {MAX_BUDGET_COST:,} {settings.CURRENCY}."
    return "At most two digits after the point." if amount != round(amount, 2) else ""


def _values(choices: list[tuple[str, Any]]) -> set[str]:
    nested = [value for _, group in choices if isinstance(group, list) for value, _ in group]
    return {EVERYBODY, *nested}


def _whose(budget: Budget) -> str:
    return f"{budget.scope}:{budget.subject_id}" if budget.subject_id else EVERYBODY


def _initial(budget: Budget) -> dict[str, Any]:
    return {
        "whose": _whose(budget),
        "amount": budget.limit_cost if budget.limit_tokens is None else budget.limit_tokens,
        "unit": (Unit.COST if budget.limit_tokens is None else Unit.TOKENS).value,
        "period": budget.period,
        "days": budget.days,
        "when_spent": REFUSE if budget.hard else WARN,
    }
