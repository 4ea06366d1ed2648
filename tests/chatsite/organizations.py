"""Organizations of several people, and what they do there, with Django's client."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from django.db import connection
from django.test import Client

from chatsite.accounts import members, organizations
from chatsite.accounts.models import Membership, Organization, OrganizationEvent, User
from chatsite.accounts.protocol import COMMAND, Actor, Via
from chatsite.accounts.roles import Role
from tests.conftest import Person

NO_LIMITS: dict[str, Any] = {
    "requests_per_minute": None,
    "tokens_per_minute": None,
    "concurrent": None,
    "monthly_tokens": None,
    "monthly_cost": None,
}


def by(user: User) -> Actor:
    """The user, on the page."""
    return Actor(user.pk, Via.PAGE, "192.0.2.1")


def make_organization(owner: Person, name: str = "Acme", **others: Person) -> Organization:
    """Shared, owned by `owner`; `others` by their role (`admin=`, `member=`, `billing=`, `owner2=`)."""
    made = organizations.create(owner.user, name, by(owner.user))
    for role, person in others.items():
        members.add(made.pk, person.user, Role(role.rstrip("0123456789")), COMMAND)
    return made


def place_of(person: Person, organization: Organization) -> Membership:
    return Membership.objects.get(user=person.user, organization=organization)


def roles_in(organization: Organization) -> dict[str, str]:
    return dict(Membership.objects.filter(organization=organization).values_list("user__email", "role"))


def events(organization: Organization) -> list[str]:
    """The kinds, the oldest first."""
    found = OrganizationEvent.objects.filter(organization_id=organization.pk).order_by("id")
    return list(found.values_list("kind", flat=True))


def signed_in(person: Person) -> Client:
    client = Client()
    client.force_login(person.user)
    return client


def address(organization: Organization, *more: str) -> str:
    return f"/organization/{organization.public_id}/{'/'.join(more)}"


def at_once(*jobs: Callable[[], Any]) -> list[Any]:
    """What each has returned, or the exception that it has raised."""

    def run(job: Callable[[], Any]) -> Any:
        try:
            return job()
        except Exception as error:
            return error
        finally:
            connection.close()

    with ThreadPoolExecutor(len(jobs)) as pool:
        return list(pool.map(run, jobs))
