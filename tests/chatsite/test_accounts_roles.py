"""Who may do what: the whole table."""

import pytest

from chatsite.accounts.roles import Permission, Role, grantable, may, may_manage

TABLE = {
    Role.OWNER: {*Permission},
    Role.ADMIN: {
        Permission.USE,
        Permission.MANAGE_MEMBERS,
        Permission.MANAGE_KEYS,
        Permission.RENAME,
        Permission.SEE_HISTORY,
        Permission.SEE_USAGE,
        Permission.MANAGE_BUDGETS,
        Permission.MANAGE_WEBHOOKS,
    },
    Role.MEMBER: {Permission.USE},
    Role.BILLING: {Permission.USE, Permission.SEE_USAGE, Permission.SEE_BILLING, Permission.MANAGE_BUDGETS},
}


@pytest.mark.parametrize("role", Role)
def test_each_role_may_what_the_table_says_and_no_more(role: Role) -> None:
    assert {each for each in Permission if may(role, each)} == TABLE[role]


@pytest.mark.parametrize("role", ["", "Owner", "root", "owner "])
def test_an_unknown_role_may_nothing(role: str) -> None:
    assert not any(may(role, each) for each in Permission)
    assert not may_manage(role) and grantable(role) == []


def test_only_owners_manage_owners() -> None:
    assert may_manage(Role.OWNER, Role.OWNER, Role.MEMBER)
    assert may_manage(Role.ADMIN, Role.ADMIN, Role.BILLING)
    assert not may_manage(Role.ADMIN, Role.OWNER, Role.MEMBER)
    assert not may_manage(Role.ADMIN, Role.MEMBER, Role.OWNER)
    assert not may_manage(Role.BILLING, Role.MEMBER)
    assert grantable(Role.OWNER) == [*Role]
    assert grantable(Role.ADMIN) == [Role.ADMIN, Role.MEMBER, Role.BILLING]
    assert grantable(Role.MEMBER) == []
