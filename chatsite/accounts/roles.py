"""Who may do what in an organization. Pure: a role and a permission in, yes or no out."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Role(StrEnum):
    OWNER = "owner"
    ADMIN = "admin"
    MEMBER = "member"
    BILLING = "billing"


class Permission(StrEnum):
    USE = "use"  # chat, and have API keys of one's own
    MANAGE_MEMBERS = "manage_members"  # invite, remove, roles, limits; of owners only with OWN
    MANAGE_KEYS = "manage_keys"  # see and revoke the API keys of others
    RENAME = "rename"
    SEE_HISTORY = "see_history"
    SEE_USAGE = "see_usage"  # of all members
    SEE_BILLING = "see_billing"  # statements
    MANAGE_BUDGETS = "manage_budgets"
    MANAGE_WEBHOOKS = "manage_webhooks"
    OWN = "own"  # make, change and remove owners


_ADMIN: Final = {
    Permission.USE,
    Permission.MANAGE_MEMBERS,
    Permission.MANAGE_KEYS,
    Permission.RENAME,
    Permission.SEE_HISTORY,
    Permission.SEE_USAGE,
    Permission.MANAGE_BUDGETS,
    Permission.MANAGE_WEBHOOKS,
}
ALLOWED: Final[Mapping[Role, frozenset[Permission]]] = {
    Role.OWNER: frozenset(Permission),
    Role.ADMIN: frozenset(_ADMIN),
    Role.MEMBER: frozenset({Permission.USE}),
    Role.BILLING: frozenset({Permission.USE, Permission.SEE_USAGE, Permission.SEE_BILLING, Permission.MANAGE_BUDGETS}),
}
EXPLAINED: Final[Mapping[Role, str]] = {
    Role.OWNER: "Everything, owners included",
    Role.ADMIN: "Members, invitations, limits, budgets and keys, but not owners",
    Role.MEMBER: "Use it: chat, and have API keys",
    Role.BILLING: "Use it, see everybody's usage and the statements, and set budgets",
}


def may(role: str, permission: Permission) -> bool:
    """Whether somebody with this role may do that. A role that is not known may do nothing."""
    return role in ALLOWED and permission in ALLOWED[Role(role)]


def may_manage(role: str, *others: str) -> bool:
    """Whether somebody with this role may invite, change or remove people who have, or shall have, the other roles."""
    return may(role, Permission.MANAGE_MEMBERS) and (Role.OWNER not in others or may(role, Permission.OWN))


def grantable(role: str) -> list[Role]:
    """The roles that somebody with this role may give to others."""
    return [each for each in Role if may_manage(role, each)]
