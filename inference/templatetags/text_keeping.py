"""Whether texts of an organization's stateless calls are kept, for the pages of rooms below."""

from django import template

from chatsite.accounts.models import Organization
from inference import keeping
from inference.models import TextKeeping

register = template.Library()


@register.simple_tag
def text_keeping(organization: Organization) -> TextKeeping | None:
    """What was set for it; None while nothing is kept."""
    return keeping.setting_of(organization.pk)
