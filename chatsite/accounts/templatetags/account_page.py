"""Times of the account page."""

from datetime import datetime
from typing import Final

from django import template
from django.utils import timezone
from django.utils.html import format_html

STEPS: Final = ((86400 * 365, "year"), (86400 * 30, "month"), (86400, "day"), (3600, "hour"), (60, "minute"))
register = template.Library()


@register.filter
def ago(when: datetime) -> str:
    """`5 minutes ago`, with the exact time on hover."""
    seconds = (timezone.now() - when).total_seconds()
    words = "just now"
    for size, unit in STEPS:
        if seconds >= size:
            count = int(seconds // size)
            words = f"{count} {unit}{'' if count == 1 else 's'} ago"
            break
    return format_html(
        '<time datetime="{}" title="{} UTC">{}</time>', when.isoformat(), when.strftime("%Y-%m-%d %H:%M"), words
    )
