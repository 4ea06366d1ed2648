"""The history of API keys: who did what to which key, when, from where. Rows are only ever added."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final
from uuid import UUID

from allauth.account.adapter import get_adapter
from django.conf import settings
from django.http import HttpRequest

from chatsite.accounts.models import ApiKey, KeyEvent, OrganizationEvent
from chatsite.accounts.protocol import Actor, Via

UNKNOWN_ADDRESS: Final = "0.0.0.0"  # what the adapter says of a client without one
Change = tuple[str, str]  # what it was, what it is
LIMIT_TITLES: Final = {
    "requests_per_minute": "requests a minute",
    "tokens_per_minute": "tokens a minute",
    "concurrent": "replies at once",
    "monthly_tokens": "tokens a month",
    "monthly_cost": "cost a month",
}
_DONE: Final = {
    KeyEvent.Kind.CREATED: "Made",
    KeyEvent.Kind.ROTATED: "Replaced",
    KeyEvent.Kind.CHANGED: "Changed",
    KeyEvent.Kind.REVOKED: "Revoked",
}
PLACES: Final = {
    Via.PAGE: "on the account page",
    Via.ADMIN: "in the admin",
    Via.COMMAND: "by a command on the server",
    Via.SITE: "by the site itself",
}


def actor_of(request: HttpRequest, via: Via) -> Actor:
    """Who sent the request, from the address that the trusted proxies name."""
    address = get_adapter().get_client_ip(request)
    return Actor(request.user.pk, via, None if address == UNKNOWN_ADDRESS else address)


def words(value: object) -> str:
    """A value as a history tells it: `none`, `1,000`, `20.00 USD`, `chat, read`, `2026-01-31 14:05 UTC`."""
    match value:
        case None:
            return "none"
        case datetime():
            return in_utc(value)
        case tuple():
            return ", ".join(value)
        case Decimal():
            return f"{value:,.2f} {settings.CURRENCY}"
        case int():
            return f"{value:,}"
    return str(value)


def in_utc(when: datetime) -> str:
    """`2026-01-31 14:05 UTC`."""
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def record(key: ApiKey, kind: KeyEvent.Kind, by: Actor, details: Mapping[str, Change] | None = None) -> None:
    """Writes it down, in the caller's transaction. `details`: by what changed, what it was and what it is."""
    KeyEvent.objects.create(
        key_id=key.pk,
        owner_id=key.user_id,
        organization_id=key.organization_id,
        kind=kind,
        actor_id=by.user_id,
        via=by.via,
        address=by.address,
        details=[[name, *change] for name, change in (details or {}).items()],
    )


@dataclass(frozen=True)
class Line:
    """An event as people read it."""

    when: datetime
    done: str
    who: str
    changes: tuple[str, ...]


def lines(events: Iterable[KeyEvent], viewer_id: UUID) -> list[Line]:
    """For the page of whoever owns the key: others are not named."""
    return [
        Line(each.created_at, _DONE[KeyEvent.Kind(each.kind)], _who(each, viewer_id), changes(each)) for each in events
    ]


def changes(event: KeyEvent | OrganizationEvent) -> tuple[str, ...]:
    """`scopes: chat, read → read`; without an arrow where there was nothing before."""
    return tuple(
        f"{name}: {before} → {after}" if before else f"{name}: {after}" for name, before, after in event.details
    )


def _who(event: KeyEvent, viewer_id: UUID) -> str:
    place = PLACES[Via(event.via)]
    if event.actor_id is None:
        return place
    name = "by you" if event.actor_id == viewer_id else "by whoever runs this site"
    # Only one's own address is shown: that of the staff is for the admin.
    address = f", from {event.address}" if event.address and event.actor_id == viewer_id else ""
    return f"{name} {place}{address}"
