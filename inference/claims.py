"""The runner's hold on a request in PostgreSQL: `claim` fences every append, flush and settle."""

from uuid import UUID

from django.db import transaction
from django.utils import timezone

from chatsite.status import move
from inference.models import Request, RequestStatus
from inference.owners import owner


def take(request_id: UUID, claim: UUID, attempt: int, replica_id: UUID) -> Request | None:
    """Compare-and-set: this attempt has the request from now on. None when it is over, gone, or a later one has it."""
    with transaction.atomic():
        request = next(iter(Request.objects.filter(id=request_id)), None)  # `first` would order: half as dear again
        if request is None or request.status not in Request.TRANSITIONS.active or request.attempt >= attempt:
            return None
        held = Request.objects.filter(id=request_id, attempt=request.attempt, claim=request.claim)
        claimed_at = request.claimed_at or timezone.now()
        updates = {"attempt": attempt, "claim": claim, "replica_id": replica_id, "claimed_at": claimed_at}
        if request.status == RequestStatus.QUEUED:
            if not move(held, RequestStatus.QUEUED, RequestStatus.RUNNING, **updates):
                return None
            owner(request.owner_kind).claimed(request.owner_id, request.id)
        elif not held.filter(status=RequestStatus.RUNNING).update(**updates):  # an earlier attempt was lost
            return None
        for name, value in updates.items():
            setattr(request, name, value)
        request.status = RequestStatus.RUNNING
        return request


def held(request_id: UUID, claim: UUID) -> Request | None:
    """The request, when PostgreSQL still gives it to that claim."""
    return Request.objects.filter(id=request_id, claim=claim, status=RequestStatus.RUNNING).first()
