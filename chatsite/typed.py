"""Numbers and dates that people type, read by one rule wherever they are typed: forms, the admin, addresses, commands.

Digits are ASCII's. Ahead of them a minus may stand, and nothing else; a number that is not whole has one point; spaces
around are dropped. What Python's int() and float() take besides, nobody writes who means it: `1_0`, `+5`, `1e3`,
full-width digits. Separators of thousands are refused too: in half of the world they are the point. Days are written
year first, which has one reading.
"""

import re
from datetime import UTC, datetime
from typing import Any, Final

from django import forms
from django.core.exceptions import ValidationError
from django.db import models

_WHOLE: Final = re.compile(r"-?[0-9]+")
_AMOUNT: Final = re.compile(r"-?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)")
_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}")
_CLOCK: Final = re.compile(r"[0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?")
YEARS: Final = range(1970, 2100)  # nothing here was before; and a day further off is a slip, or breaks a calendar
_NO_DAY, _NO_TIME = "Write the date as 2026-01-31.", "Write the time as 14:05."


def whole(text: str) -> int:
    """Also as the `type` of a command's argument. Raises ValueError, which says what was expected."""
    if not _WHOLE.fullmatch(text.strip()):
        raise ValueError(f"{text[:40]!r} is no whole number in plain digits")
    return int(text)


def is_whole(text: str) -> bool:
    try:
        whole(text)
    except ValueError:
        return False
    return True


class _Typed(forms.Field):
    """Ahead of one of Django's fields, which would take more than `pattern`."""

    pattern: re.Pattern[str]

    def to_python(self, value: Any) -> Any:
        if isinstance(value, str):
            value = value.strip()
            if value and not self.pattern.fullmatch(value):
                raise ValidationError(self.error_messages["invalid"], code="invalid")
        return super().to_python(value)


class WholeField(_Typed, forms.IntegerField):
    pattern = _WHOLE
    default_error_messages = {"invalid": "Enter a whole number. Write digits alone, such as 1000."}


class AmountField(_Typed, forms.DecimalField):
    """An exact number: money, a price, a share."""

    pattern = _AMOUNT
    default_error_messages = {"invalid": "Enter a number. Write digits and at most one point, such as 1000 or 12.50."}


class FigureField(_Typed, forms.FloatField):
    """A number that is measured or set, not billed."""

    pattern = _AMOUNT
    default_error_messages = AmountField.default_error_messages


class DayField(_Typed, forms.DateField):
    pattern = _DAY
    input_formats = ["%Y-%m-%d"]
    default_error_messages = {"invalid": _NO_DAY}


class ClockField(_Typed, forms.TimeField):
    pattern = _CLOCK
    input_formats = ["%H:%M:%S", "%H:%M"]
    default_error_messages = {"invalid": _NO_TIME}


class MomentField(forms.SplitDateTimeField):
    """A day and a time of the person's clock, of the years that a clock of ours may meet."""

    default_error_messages = {
        "invalid_date": _NO_DAY,
        "invalid_time": _NO_TIME,
        "years": f"The year has to be from {YEARS[0]} to {YEARS[-1]}.",
    }

    def __init__(self, **kwargs: Any) -> None:
        forms.MultiValueField.__init__(self, (DayField(), ClockField()), **kwargs)

    def compress(self, data_list: Any) -> datetime | None:
        """In UTC. Raises ValidationError."""
        if data_list and data_list[0] and data_list[0].year not in YEARS:
            raise ValidationError(self.error_messages["years"], code="years")
        found: datetime | None = super().compress(data_list)
        return found.astimezone(UTC) if found else None


def field_for(db_field: models.Field) -> type[forms.Field] | None:
    """What a form takes for this column; None where nothing is to be read as a number or a date."""
    for kind, made in _FIELDS:
        if isinstance(db_field, kind):
            return made
    return None


_FIELDS: Final[tuple[tuple[type[models.Field], type[forms.Field]], ...]] = (
    (models.IntegerField, WholeField),
    (models.DecimalField, AmountField),
    (models.FloatField, FigureField),
    (models.DateTimeField, MomentField),  # which is a DateField, too
    (models.DateField, DayField),
)
