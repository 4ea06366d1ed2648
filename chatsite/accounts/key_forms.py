"""Forms of API keys: to make one, to change its terms, to replace it."""

from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Final

from django import forms
from django.utils import timezone

from chatsite import scopes, typed
from chatsite.accounts.forms import LineField
from chatsite.accounts.keys import Terms
from chatsite.accounts.limit_forms import LimitsForm
from chatsite.accounts.models import LIMITS, ApiKey
from chatsite.scopes import Scope

NEVER, ON_DATE, KEEP = "never", "date", "keep"
DAYS: Final = (30, 90, 365)
EXPIRY_CHOICES: Final = [
    (NEVER, "Never"),
    *((str(days), f"In {days} days") for days in DAYS),
    (ON_DATE, "At the end of a day"),
]
LAST_YEARS: Final = 10  # a key may be given an end so far away
OVERLAPS: Final = [("0", "At once"), ("3600", "In 1 hour"), ("86400", "In 1 day"), ("604800", "In 7 days")]


class ExpiryForm(forms.Form):
    """When a key ends."""

    expiry = forms.ChoiceField(
        label="Expires",
        choices=EXPIRY_CHOICES,
        initial=NEVER,
        error_messages={"invalid_choice": "Choose when the key expires."},
    )
    expires_on = typed.DayField(
        label="Last day",
        required=False,
        widget=forms.DateInput(format="%Y-%m-%d", attrs={"type": "date"}),
    )

    def clean(self) -> dict[str, Any]:
        super().clean()
        found = self.cleaned_data
        asked = found.get("expiry") == ON_DATE and "expires_on" not in self.errors
        if asked and (problem := _wrong_day(found.get("expires_on"))):
            self.add_error("expires_on", problem)
        return found

    def end(self, now_is: datetime | None = None) -> datetime | None:
        """When the key shall end, None for never. `now_is`: what "as it is" means."""
        choice = self.cleaned_data["expiry"]
        if choice == KEEP:
            return now_is
        if choice == ON_DATE:
            return end_of(self.cleaned_data["expires_on"])
        return None if choice == NEVER else timezone.now() + timedelta(days=int(choice))


def end_of(day: date) -> datetime:
    """The first moment after that day, by the clock of the person."""
    after = datetime.combine(day + timedelta(days=1), time())
    return timezone.make_aware(after, timezone.get_current_timezone()).astimezone(UTC)


def _wrong_day(day: date | None) -> str:
    if day is None:
        return "Say on which day."
    today = timezone.localdate()
    if day < today:
        return "This day has passed."
    if day > today + timedelta(days=366 * LAST_YEARS):
        return f"This is more than {LAST_YEARS} years away. Choose “Never” instead."
    return ""


class TermsForm(ExpiryForm, LimitsForm):
    name = LineField(
        label="Name",
        max_length=ApiKey._meta.get_field("name").max_length,
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
        help_text="Where it will be used, such as “billing script”.",
        error_messages={"required": "Give the key a name, so that you know later which one it is."},
    )
    scopes = forms.MultipleChoiceField(
        label="May be used to",
        choices=[(str(each), scopes.EXPLAINED[each]) for each in scopes.OFFERED],
        initial=[str(each) for each in scopes.DEFAULT],
        widget=forms.CheckboxSelectMultiple,
        error_messages={
            "required": "Choose at least one: a key without any could do nothing.",
            "invalid_choice": "Choose among what is offered.",
        },
    )

    def terms(self, key: ApiKey | None = None) -> Terms:
        """What was asked for. `key`: the one that is changed; what the form does not offer, it keeps."""
        chosen = {*map(Scope, self.cleaned_data["scopes"])}
        if key is not None:
            chosen |= {Scope(each) for each in key.scopes} - {*scopes.OFFERED}
        return Terms(
            name=self.cleaned_data["name"],
            scopes=tuple(each for each in Scope if each in chosen),
            expires_at=self.end(key.expires_at if key else None),
            **self.limits(),
        )


class NewKeyForm(TermsForm):
    """For a key that is not there yet."""


class ChangeKeyForm(TermsForm):
    """For one that is. Its end stays as it is unless another is chosen."""

    def __init__(self, data: Any = None, *, key: ApiKey) -> None:
        initial = {"name": key.name, "scopes": key.scopes, "expiry": KEEP}
        initial |= {name: getattr(key, name) for name in LIMITS}
        super().__init__(data, initial=initial)
        end = f"As it is: {timezone.localtime(key.expires_at):%Y-%m-%d %H:%M}" if key.expires_at else "As it is: never"
        choices = [choice for choice in EXPIRY_CHOICES if key.expires_at or choice[0] != NEVER]
        self.fields["expiry"].choices = [(KEEP, end), *choices]  # type: ignore[attr-defined]


class RotateKeyForm(ExpiryForm):
    """For a key that takes another's place."""

    overlap = forms.ChoiceField(
        label="The old key ends",
        choices=OVERLAPS,
        initial="86400",
        help_text="Until then both work, so that you can change your programs over. They share the same limits.",
        error_messages={"invalid_choice": "Choose when the old key ends."},
    )
    field_order = ("overlap", "expiry", "expires_on")

    def __init__(self, data: Any = None, *, key: ApiKey) -> None:
        """The new key is offered as long a life as the old one was given."""
        initial: dict[str, Any] = {"expiry": NEVER}
        if key.expires_at is not None:
            days = max(1, round((key.expires_at - key.created_at) / timedelta(days=1)))
            initial = {"expiry": ON_DATE, "expires_on": timezone.localdate() + timedelta(days=days)}
            if days in DAYS:
                initial = {"expiry": str(days)}
        super().__init__(data, initial=initial)
        self.fields["expiry"].label = "The new key expires"

    def pause(self) -> timedelta:
        """How long the old key goes on."""
        return timedelta(seconds=int(self.cleaned_data["overlap"]))
