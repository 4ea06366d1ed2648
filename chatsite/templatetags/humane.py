"""Numbers, times and ids as people read them."""

from datetime import datetime

from django import template
from django.utils import timezone
from django.utils.timesince import timesince

register = template.Library()


@register.filter
def thousands(number: int) -> str:
    """`12,345`."""
    return f"{number:,}"


@register.filter
def slice_end(identifier: object) -> str:
    """The last eight characters of an id: its first ones are the time, and much the same in a list."""
    return str(identifier)[-8:]


@register.filter
def ago(moment: datetime) -> str:
    """`3 minutes ago`; within the first minute, and of a clock that is ahead, `just now`."""
    return f"{timesince(moment, depth=1)} ago" if (timezone.now() - moment).total_seconds() >= 60 else "just now"
