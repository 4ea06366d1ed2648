"""What the history of an organization says of its webhooks.

Of an address it has scheme and host: the rest often lets whoever knows it write there, and the history is for ever.
"""

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from chatsite.accounts import history
from chatsite.accounts.audit import Change
from chatsite.accounts.models import OrganizationEvent
from chatsite.accounts.protocol import Actor
from chatsite.webhooks.models import Endpoint

Kind = OrganizationEvent.Kind
Terms = Mapping[str, str]  # by what they are called
ADDRESS: Final = "address"


def terms_of(endpoint: Endpoint) -> Terms:
    return {
        ADDRESS: endpoint.url,
        "events": ", ".join(endpoint.events),
        "sending": "on" if endpoint.active else "off",
    }


def added(endpoint: Endpoint, by: Actor) -> None:
    """In the caller's transaction, as the others are."""
    _record(Kind.WEBHOOK_ADDED, endpoint, by, {"events": ("", terms_of(endpoint)["events"])})


def changed(endpoint: Endpoint, before: Terms, by: Actor) -> None:
    """`before`: its terms then. Where they are the same nothing is written."""
    after = terms_of(endpoint)
    details = {name: (before[name], value) for name, value in after.items() if before[name] != value}
    if ADDRESS in details:
        old, new = _host(before[ADDRESS]), _host(endpoint.url)
        details[ADDRESS] = (old, new) if old != new else ("", f"{new}, another path")
    if details:
        _record(Kind.WEBHOOK_CHANGED, endpoint, by, details)


def secret_replaced(endpoint: Endpoint, by: Actor) -> None:
    _record(Kind.WEBHOOK_SECRET, endpoint, by, {})


def deleted(endpoint: Endpoint, by: Actor) -> None:
    _record(Kind.WEBHOOK_DELETED, endpoint, by, {})


def _record(kind: OrganizationEvent.Kind, endpoint: Endpoint, by: Actor, details: Mapping[str, Change]) -> None:
    """With the address in any case: it tells which webhook it was."""
    told = {ADDRESS: ("", _host(endpoint.url)), **details}
    history.record(endpoint.organization_id, kind, by, details=told)


def _host(url: str) -> str:
    """`https://hooks.example.org`, without names and passwords."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
