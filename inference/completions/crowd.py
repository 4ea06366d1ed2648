"""How much may be under way on the flex tier: what waits there holds no quota that would keep it within bounds.

Who is let in is decided by a count of this moment. Who is refused was so for at least a moment: until the next count,
whatever its organization sends beyond that is refused before anything is done for it.
"""

from dataclasses import dataclass
from uuid import UUID

from django.conf import settings
from django.db.models import Count, Q, QuerySet

from chatsite.caching import ShortCache
from chatsite.errors import RateLimited
from inference.errors import HighDemand
from inference.models import Lane, Request
from inference.redis import rules

AGAIN_SECONDS = 5.0
KNOWN_SECONDS = 1.0


@dataclass(frozen=True)
class _Own:
    """Requests of the batch lane of an organization that wait or run: all, and those of one model."""

    all: int
    of_model: int


@dataclass
class _Crowd:
    """Those of a model, and of how many organizations they are."""

    all: int
    organizations: int


known_refused: ShortCache[tuple[UUID, str], _Own] = ShortCache(KNOWN_SECONDS)  # by organization and model
known_crowds: ShortCache[str, _Crowd] = ShortCache(KNOWN_SECONDS)  # by model; a count of ten thousand takes 9 ms


def check_early(organization_id: UUID, model: str, more: int) -> None:
    """Raises as `check`, where that was refused within the last second, and as much would be now. Without I/O."""
    own, crowd = known_refused.get((organization_id, model)), known_crowds.get(model)
    if own is None:
        return
    _check_own(own, more)
    if crowd is not None:
        _check_crowd(own, crowd, more)


def check(organization_id: UUID, model: str, more: int) -> None:
    """Raises RateLimited where the organization has as many as it may; HighDemand where the model's queue is full, and
    the organization has its share of it: an equal part for each that has any. So who has none finds room.

    Of several that come at once a few more may be let in. Raises database errors.
    """
    own = _count_own(organization_id, model)
    try:
        _check_own(own, more)
        if (crowd := known_crowds.get(model)) is None:
            crowd = _count_crowd(model)
            known_crowds.put(model, crowd)
        _check_crowd(own, crowd, more)
    except RateLimited:
        known_refused.put((organization_id, model), own)
        raise
    crowd.all += more  # whom this process lets in until the next count
    crowd.organizations += not own.of_model


def _check_own(own: _Own, more: int) -> None:
    most = settings.FLEX_REQUESTS
    if own.all + more > most:
        words = f"An organization may have {most:,} requests of the flex tier under way, and this one has {own.all:,}."
        error = RateLimited(words, retry_after=AGAIN_SECONDS)
        error.should_retry = False if more > most else None
        raise error


def _check_crowd(own: _Own, crowd: _Crowd, more: int) -> None:
    most = rules.settings().admission.queue_cap
    organizations = crowd.organizations + (not own.of_model)
    share = most // max(1, organizations) or 1  # a count that is a second old may have none yet
    if crowd.all + more > most and own.of_model + more > share:
        raise HighDemand("High demand. Try again later, or without the flex tier.", retry_after=AGAIN_SECONDS)


def _count_own(organization_id: UUID, model: str) -> _Own:
    found = _under_way().filter(organization_id=organization_id)
    return _Own(**found.aggregate(all=Count("id"), of_model=Count("id", filter=Q(model_id=model))))


def _count_crowd(model: str) -> _Crowd:
    found = _under_way().filter(model_id=model)
    return _Crowd(**found.aggregate(all=Count("id"), organizations=Count("organization_id", distinct=True)))


def _under_way() -> QuerySet[Request]:
    return Request.objects.filter(released_at=None, status__in=Request.TRANSITIONS.active, lane=Lane.BATCH)
