"""How much may be under way on the flex tier: what waits there holds no quota that would keep it within bounds."""

from uuid import UUID

from django.conf import settings
from django.db.models import Count, Q

from chatsite.errors import RateLimited
from inference.errors import HighDemand
from inference.models import Lane, Request
from inference.redis import rules

AGAIN_SECONDS = 5.0


def check(organization_id: UUID, model: str, more: int) -> None:
    """Raises RateLimited where the organization has as many as it may, HighDemand where the model's queue is full.

    Of several that come at once a few more may be let in.
    """
    own, all_ = _under_way(organization_id, model)
    most = settings.FLEX_REQUESTS
    if own + more > most:
        words = f"An organization may have {most:,} requests of the flex tier under way, and this one has {own:,}."
        error = RateLimited(words, retry_after=AGAIN_SECONDS)
        error.should_retry = False if more > most else None
        raise error
    if all_ + more > rules.settings().admission.queue_cap:
        raise HighDemand("High demand. Try again later, or without the flex tier.", retry_after=AGAIN_SECONDS)


def _under_way(organization_id: UUID, model: str) -> tuple[int, int]:
    """Requests of the batch lane that wait or run: of the organization, and of the model."""
    rows = Request.objects.filter(released_at=None, status__in=Request.TRANSITIONS.active, lane=Lane.BATCH)
    own, of_model = Q(organization_id=organization_id), Q(model_id=model)
    found = rows.filter(own | of_model).aggregate(own=Count("id", filter=own), all=Count("id", filter=of_model))
    return found["own"], found["all"]
