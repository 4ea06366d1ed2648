"""Webhooks of an organization: made, changed, and told of events.

`emit` writes what is to be sent in the caller's transaction, so an event is sent if what it tells of happened, and only
then.
Receivers may get one twice, with the same id: after an answer that was lost, or a worker that was killed.
"""

import json
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from chatsite.accounts import organizations
from chatsite.accounts.protocol import Actor
from chatsite.accounts.roles import Permission
from chatsite.errors import Conflict, InvalidInput, NotFound
from chatsite.ids import new_id, public_id
from chatsite.webhooks import signing, webhook_history
from chatsite.webhooks.addresses import problem_of
from chatsite.webhooks.events import EXPLAINED, Event
from chatsite.webhooks.models import Delivery, Endpoint

__all__ = [
    "Event",
    "add",
    "change",
    "delete",
    "emit",
    "find",
    "renew_secret",
    "secret_of",
    "send_test",
    "shown_secret",
    "switch_off",
]
MAX_ENDPOINTS: Final = 10  # of one organization
MAX_TESTS: Final = 10  # that wait, of one webhook


class TooManyWebhooks(Conflict):
    """This organization has as many webhooks as one may have. Delete one first."""


class WebhookExists(Conflict):
    """There is a webhook with this address already."""


def emit(organization_id: UUID, event: Event, data: Mapping[str, Any]) -> int:
    """To be sent to every active webhook of the organization that wants it; returns to how many.

    `data` goes out as JSON. In the caller's transaction.
    """
    wanting = Endpoint.objects.filter(organization_id=organization_id, active=True, events__contains=[str(event)])
    return len(Delivery.objects.bulk_create(_delivery(each, event, data) for each in wanting))


def _delivery(endpoint: Endpoint, event: Event, data: Mapping[str, Any]) -> Delivery:
    id, now = new_id(), timezone.now()
    body = {
        "id": public_id("evt", id),
        "type": str(event),
        "timestamp": _time(now),
        "data": {"organization": public_id("org", endpoint.organization_id), **data},
    }
    return Delivery(id=id, endpoint=endpoint, event=event, body=json.dumps(body), created_at=now, due_at=now)


def _time(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def secret_of(endpoint: Endpoint) -> bytes:
    return signing.secret_of(settings.SECRET_KEY, endpoint.pk, endpoint.salt)


def shown_secret(endpoint: Endpoint) -> str:
    """To be shown once, to who has made it."""
    return signing.shown(secret_of(endpoint))


@transaction.atomic
def add(organization_id: UUID, url: str, events: Collection[Event], by: Actor) -> Endpoint:
    """Raises NotFound, NotAllowed, InvalidInput, TooManyWebhooks, WebhookExists."""
    organizations.hold(organization_id, by, Permission.MANAGE_WEBHOOKS)
    if Endpoint.objects.filter(organization_id=organization_id).count() >= MAX_ENDPOINTS:
        raise TooManyWebhooks
    endpoint = _save(Endpoint(organization_id=organization_id), url, events, active=True)
    webhook_history.added(endpoint, by)
    return endpoint


@transaction.atomic
def change(
    organization_id: UUID, endpoint_id: UUID, url: str, events: Collection[Event], by: Actor, *, active: bool
) -> Endpoint:
    """Raises NotFound, NotAllowed, InvalidInput, WebhookExists."""
    organizations.hold(organization_id, by, Permission.MANAGE_WEBHOOKS)
    endpoint = find(organization_id, endpoint_id)
    before = webhook_history.terms_of(endpoint)
    _save(endpoint, url, events, active=active)
    webhook_history.changed(endpoint, before, by)
    return endpoint


@transaction.atomic
def switch_off(endpoint_id: UUID, by: Actor) -> bool:
    """Nothing is sent there until somebody switches it on again. False: it was off, or is gone."""
    endpoint = Endpoint.objects.select_for_update(no_key=True).filter(pk=endpoint_id, active=True).first()
    if endpoint is None:
        return False
    before = webhook_history.terms_of(endpoint)
    endpoint.active = False
    endpoint.save(update_fields=["active"])
    webhook_history.changed(endpoint, before, by)
    return True


def _save(endpoint: Endpoint, url: str, events: Collection[Event], *, active: bool) -> Endpoint:
    if problem := problem_of(url, private=settings.WEBHOOKS_TO_PRIVATE_NETWORKS):
        raise InvalidInput(problem, param="url")
    chosen = [str(each) for each in EXPLAINED if each in events]
    if not chosen:
        raise InvalidInput("Choose at least one event.", param="events")
    others = Endpoint.objects.filter(organization_id=endpoint.organization_id, url=url).exclude(pk=endpoint.pk)
    if others.exists():
        raise WebhookExists
    endpoint.url, endpoint.events, endpoint.active = url, chosen, active
    endpoint.save()
    return endpoint


@transaction.atomic
def renew_secret(organization_id: UUID, endpoint_id: UUID, by: Actor) -> Endpoint:
    """What is sent from now on is signed by another secret. Raises NotFound, NotAllowed."""
    organizations.hold(organization_id, by, Permission.MANAGE_WEBHOOKS)
    endpoint = find(organization_id, endpoint_id)
    endpoint.salt = new_id()
    endpoint.save(update_fields=["salt"])
    webhook_history.secret_replaced(endpoint, by)
    return endpoint


@transaction.atomic
def delete(organization_id: UUID, endpoint_id: UUID, by: Actor) -> None:
    """With what was sent there, and what waits. Raises NotFound, NotAllowed."""
    organizations.hold(organization_id, by, Permission.MANAGE_WEBHOOKS)
    endpoint = find(organization_id, endpoint_id)
    webhook_history.deleted(endpoint, by)
    endpoint.delete()


@transaction.atomic
def send_test(organization_id: UUID, endpoint_id: UUID, by: Actor) -> None:
    """Sends something that tells of nothing. Raises NotFound, NotAllowed, Conflict."""
    organizations.hold(organization_id, by, Permission.MANAGE_WEBHOOKS)
    endpoint = find(organization_id, endpoint_id)
    if endpoint.deliveries.filter(state=Delivery.State.WAITING).count() >= MAX_TESTS:
        raise Conflict("So much waits for this webhook that a test would tell nothing.")
    _delivery(endpoint, Event.TEST, {}).save()


def find(organization_id: UUID, endpoint_id: UUID) -> Endpoint:
    """Raises NotFound."""
    found = Endpoint.objects.filter(pk=endpoint_id, organization_id=organization_id).first()
    if found is None:
        raise NotFound
    return found
