"""Numbers of rows as the admin shows them: thousands apart, wherever a field is shown and not typed."""

from collections.abc import Callable
from decimal import Decimal
from functools import cache
from typing import Any

from django.contrib import admin
from django.core.exceptions import FieldDoesNotExist
from django.db import models
from django.db.models import Field, Model

from chatsite.admin_links import NOTHING

CENTS = 2  # decimal places of a column that holds amounts of money and nothing finer


def figure(value: Decimal | float | None) -> str:
    """`1,234,567`, `0.000121`; all digits that are there, without zeros at the end. A dash for nothing."""
    if value is None:
        return NOTHING
    return f"{Decimal(str(value)).normalize():,f}"


def readable(model: type[Model], name: Any) -> Any:
    """In place of a field that is a number, what shows it readably. Anything else as it is."""
    return _column(model, name) if isinstance(name, str) and _is_figure(model, name) else name


def _is_figure(model: type[Model], name: str) -> bool:
    try:
        field: Any = model._meta.get_field(name)
    except FieldDoesNotExist:
        return False
    is_number = isinstance(field, models.IntegerField | models.DecimalField | models.FloatField)
    return is_number and not field.primary_key and not field.choices


@cache
def _column(model: type[Model], name: str) -> Callable[[Model], str]:
    field = model._meta.get_field(name)
    assert isinstance(field, Field)
    is_money = isinstance(field, models.DecimalField) and field.decimal_places == CENTS

    @admin.display(description=str(field.verbose_name), ordering=name)
    def shown(row: Model) -> str:
        value = getattr(row, name)
        return f"{value:,.2f}" if is_money and value is not None else figure(value)

    shown.__name__ = name
    return shown
