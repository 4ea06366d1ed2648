"""The history of organizations: who did what to whom, when, from where. Rows are only ever added, and have no names."""

from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

from chatsite.accounts.audit import PLACES, Change, Line, changes
from chatsite.accounts.models import Invitation, OrganizationEvent, User
from chatsite.accounts.protocol import Actor, Via

Kind = OrganizationEvent.Kind
GONE: Final = "somebody who is gone"
# What was done, to whom.
SENTENCES: Final[Mapping[str, str]] = {
    Kind.CREATED: "Organization made",
    Kind.RENAMED: "Name changed",
    Kind.INVITED: "{whom} invited",
    Kind.RESENT: "Invitation of {whom} sent again",
    Kind.WITHDRAWN: "Invitation of {whom} withdrawn",
    Kind.JOINED: "{whom} joined",
    Kind.ROLE: "Role of {whom} changed",
    Kind.LIMITS: "Limits of {whom} changed",
    Kind.REMOVED: "{whom} removed",
    Kind.LEFT: "{whom} left",
    Kind.BUDGET_ADDED: "Budget{of_whom} added",
    Kind.BUDGET_CHANGED: "Budget{of_whom} changed",
    Kind.BUDGET_DELETED: "Budget{of_whom} deleted",
    Kind.WEBHOOK_ADDED: "Webhook added",
    Kind.WEBHOOK_CHANGED: "Webhook changed",
    Kind.WEBHOOK_SECRET: "Secret of a webhook replaced",
    Kind.WEBHOOK_DELETED: "Webhook deleted",
    Kind.STOPPED: "Everything stopped",
    Kind.RESUMED: "Stop taken back",
}
BUDGETS: Final = (Kind.BUDGET_ADDED, Kind.BUDGET_CHANGED, Kind.BUDGET_DELETED)


def record(
    organization_id: UUID,
    kind: OrganizationEvent.Kind,
    by: Actor,
    *,
    member_id: UUID | None = None,
    invitation_id: UUID | None = None,
    details: Mapping[str, Change] | None = None,
) -> None:
    """Writes it down, in the caller's transaction. `details`: by what changed, what it was and what it is."""
    OrganizationEvent.objects.create(
        organization_id=organization_id,
        kind=kind,
        member_id=member_id,
        invitation_id=invitation_id,
        actor_id=by.user_id,
        via=by.via,
        address=by.address,
        details=[[name, *change] for name, change in (details or {}).items()],
    )


def lines(events: Iterable[OrganizationEvent]) -> list[Line]:
    """For those in the organization who look after it. Staff of the site are not named."""
    found = list(events)
    names = _names(found)
    return [Line(each.created_at, _done(each, names), _who(each, names), changes(each)) for each in found]


def _done(event: OrganizationEvent, names: Mapping[UUID, str]) -> str:
    whom = _whom(event, names)
    return SENTENCES[event.kind].format(whom=whom, of_whom=f" of {whom}" if event.member_id else "")


def _names(events: list[OrganizationEvent]) -> dict[UUID, str]:
    people = {pk for each in events for pk in (each.member_id, each.actor_id) if pk}
    invited = {each.invitation_id for each in events if each.invitation_id}
    addresses = Invitation.objects.filter(pk__in=invited).values_list("pk", "email")
    return {**dict(addresses), **{user.pk: user.called for user in User.objects.filter(pk__in=people)}}


def _whom(event: OrganizationEvent, names: Mapping[UUID, str]) -> str:
    about = event.member_id or event.invitation_id
    return names.get(about, GONE) if about else GONE


def _who(event: OrganizationEvent, names: Mapping[UUID, str]) -> str:
    if event.via != Via.PAGE:
        return "by whoever runs this site" if event.via == Via.ADMIN else PLACES[Via(event.via)]
    oneself = event.actor_id == event.member_id and event.kind not in BUDGETS
    if event.actor_id is None or oneself:
        return ""
    return f"by {names.get(event.actor_id, GONE)}"
