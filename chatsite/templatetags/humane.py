"""Numbers and ids as people read them."""

from django import template

register = template.Library()


@register.filter
def thousands(number: int) -> str:
    """`12,345`."""
    return f"{number:,}"


@register.filter
def slice_end(identifier: object) -> str:
    """The last eight characters of an id: its first ones are the time, and much the same in a list."""
    return str(identifier)[-8:]
