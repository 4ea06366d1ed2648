"""Names of members and keys, and who is told about money."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from chatsite.accounts.models import ApiKey, Membership, User
from chatsite.accounts.roles import Permission, Role, may

GONE = "somebody who is gone"
GONE_KEY = "a key that is gone"


@dataclass(frozen=True)
class Names:
    """What members and keys are called; keys also by the chain of those that replaced one another."""

    members: Mapping[UUID, str]
    keys: Mapping[UUID, str]

    def member(self, user_id: UUID) -> str:
        return self.members.get(user_id, GONE)

    def key(self, key_id: UUID) -> str:
        return self.keys.get(key_id, GONE_KEY)


def names(organization_id: UUID, users: Iterable[UUID], keys: Iterable[UUID]) -> Names:
    """Of users by id; of the organization's keys by their ids or those of their chains, the newest name counts."""
    wanted = set(keys)
    found = ApiKey.objects.filter(organization_id=organization_id).order_by("created_at")
    by_key: dict[UUID, str] = {}
    for row in found.filter(chain_id__in=wanted) | found.filter(id__in=wanted):
        by_key[row.pk] = by_key[row.chain_id] = row.name
    return Names({each.pk: each.called for each in User.objects.filter(pk__in=set(users))}, by_key)


def told_about_money(organization_id: UUID, also: Iterable[UUID] = ()) -> list[str]:
    """The addresses of those who may see the billing, and of the users `also` where they are members."""
    roles = [each for each in Role if may(each, Permission.SEE_BILLING)]
    places = Membership.objects.filter(organization_id=organization_id, user__is_active=True)
    found = places.filter(role__in=roles) | places.filter(user_id__in=list(also))
    return sorted(set(found.values_list("user__email", flat=True)))
