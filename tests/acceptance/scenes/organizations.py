"""Organizations: members, invitations, what a member may, and the ways in and out."""

from typing import Final

from playwright.async_api import expect

from tests.acceptance.browsing import Visitor
from tests.acceptance.gallery import scene
from tests.acceptance.scenes.frame import list_of

# Made anew for each scene: Ada owns it, Eve is an admin with limits, Finn a member.
ACME: Final = "0197d000-0000-7000-8000-000000000001"
PAGE: Final = f"/organization/org_{ACME}/"
MAKE: Final = """
    INSERT INTO accounts_organization (id, name, created_at) VALUES (%s, 'Kitchen Table Laboratories', now())
    ON CONFLICT DO NOTHING
"""
RESET: Final = """
    UPDATE accounts_organization SET name = 'Kitchen Table Laboratories', awaits_plan = false WHERE id = %s
"""
MADE: Final = """
    INSERT INTO accounts_organizationevent (organization_id, kind, member_id, actor_id, via, details, created_at)
    SELECT %s, 'created', id, id, 'page', '[]', now() - interval '2 months' FROM accounts_user
    WHERE email = 'ada@example.com'
"""
JOIN: Final = """
    INSERT INTO accounts_membership (organization_id, user_id, role, created_at, requests_per_minute, monthly_cost)
    SELECT %s, id, %s, now() - interval '2 days', %s, %s FROM accounts_user WHERE email = %s
"""
PLACES: Final = (
    ("owner", None, None, "ada@example.com"),
    ("admin", 60, 20, "eve@example.com"),
    ("member", None, None, "finn@example.com"),
)


def has_an_organization(visitor: Visitor) -> None:
    site = visitor.site
    site.execute(MAKE, ACME)
    site.execute(RESET, ACME)
    for table in ("membership", "invitation"):
        site.execute(f"DELETE FROM accounts_{table} WHERE organization_id = %s", ACME)
    for role, requests, cost, email in PLACES:
        site.execute(JOIN, ACME, role, requests, cost, email)


async def opens_the_organization(visitor: Visitor) -> None:
    has_an_organization(visitor)
    await visitor.open(PAGE)
    await expect(visitor.page.get_by_role("heading", name="Kitchen Table Laboratories")).to_be_visible()


async def invites(visitor: Visitor, email: str, role: str = "member") -> None:
    await visitor.page.get_by_label("Email").fill(email)
    await visitor.page.get_by_label("Role").select_option(role)
    await visitor.press("Invite")


async def manages(visitor: Visitor, name: str) -> None:
    await visitor.page.get_by_role("link", name=f"Manage {name}").click()
    await expect(visitor.page.get_by_role("heading", name=name)).to_be_visible()


@scene()
async def organization(visitor: Visitor) -> None:
    await opens_the_organization(visitor)


@scene()
async def organization_invitations(visitor: Visitor) -> None:
    await opens_the_organization(visitor)
    await invites(visitor, "grace@example.com", "billing")
    await expect(visitor.page.get_by_text("is on its way")).to_be_visible()
    visitor.site.execute(
        "UPDATE accounts_invitation SET expires_at = now(), sent_at = now() - interval '7 days' "
        "WHERE organization_id = %s", ACME,
    )  # fmt: skip
    await invites(visitor, "a.rather.long.address.of.somebody@subdomain.example.com")
    await visitor.page.locator("#invitations").scroll_into_view_if_needed()


@scene()
async def organization_invite_refused(visitor: Visitor) -> None:
    await opens_the_organization(visitor)
    await invites(visitor, "eve@example.com")
    await expect(visitor.page.get_by_role("alert")).to_contain_text("is a member already")
    await visitor.page.locator("#invitations").scroll_into_view_if_needed()


@scene()
async def organization_history(visitor: Visitor) -> None:
    await organization_invitations(visitor)
    await visitor.page.evaluate("scrollTo(0, document.body.scrollHeight)")


@scene(account="Finn")
async def organization_as_member(visitor: Visitor) -> None:
    await opens_the_organization(visitor)


@scene()
async def organization_own(visitor: Visitor) -> None:
    has_an_organization(visitor)
    [[own]] = visitor.site.execute(
        "SELECT organization.id FROM accounts_organization organization "
        "JOIN accounts_user person ON person.id = personal_of_id WHERE email = 'ada@example.com'"
    )
    await visitor.open(f"/organization/org_{own}/")
    await expect(visitor.page.get_by_text("yours alone")).to_be_visible()


@scene()
async def organization_new(visitor: Visitor) -> None:
    await visitor.open("/organization/new")


@scene(name="organization-no-plan")
async def organization_without_a_plan(visitor: Visitor) -> None:
    has_an_organization(visitor)
    visitor.site.execute("UPDATE accounts_organization SET awaits_plan = true WHERE id = %s", ACME)
    await visitor.open(PAGE)
    await expect(visitor.page.get_by_text("No plan yet.")).to_be_visible()


@scene()
async def organization_new_no_plan(visitor: Visitor) -> None:
    visitor.site.execute(MADE, ACME)
    await visitor.open("/organization/new")
    await expect(visitor.page.get_by_text("It will have no plan")).to_be_visible()


@scene()
async def member(visitor: Visitor) -> None:
    await opens_the_organization(visitor)
    await manages(visitor, "Eve")


@scene()
async def member_refused(visitor: Visitor) -> None:
    await member(visitor)
    await visitor.page.get_by_label("Tokens a minute").fill("0")
    await visitor.page.get_by_label("USD a month").fill("1.005")
    await visitor.press("Save")
    await expect(visitor.page.get_by_text("At least 1, or nothing.")).to_be_visible()
    await visitor.page.get_by_text("Limits of this member").scroll_into_view_if_needed()


@scene()
async def member_remove(visitor: Visitor) -> None:
    await opens_the_organization(visitor)
    await manages(visitor, "Finn")
    await visitor.page.get_by_role("link", name="Remove from the organization…").click()
    await expect(visitor.page.get_by_role("heading", name="Remove this member?")).to_be_visible()


@scene(account="Finn")
async def organization_leave(visitor: Visitor) -> None:
    await opens_the_organization(visitor)
    await visitor.page.get_by_role("link", name="Leave…").click()
    await expect(visitor.page.get_by_role("heading", name="Leave this organization?")).to_be_visible()


async def is_invited(visitor: Visitor, email: str) -> str:
    """The link in the mail."""
    await opens_the_organization(visitor)
    await invites(visitor, email)
    await expect(visitor.page.get_by_text("is on its way")).to_be_visible()
    return visitor.site.link_in_mail(email)


@scene()
async def invitation(visitor: Visitor) -> None:
    link = await is_invited(visitor, "grace@example.com")
    await visitor.page.context.clear_cookies()
    await visitor.page.goto(link)
    await expect(visitor.page.get_by_role("heading", name="Join Kitchen Table Laboratories?")).to_be_visible()


@scene()
async def invitation_for_another(visitor: Visitor) -> None:
    link = await is_invited(visitor, "grace@example.com")
    visitor.site.execute("DELETE FROM accounts_membership WHERE organization_id = %s", ACME)  # or Ada were a member
    await visitor.page.goto(link)
    await expect(visitor.page.get_by_text("You are signed in as")).to_be_visible()


@scene()
async def invitation_ended(visitor: Visitor) -> None:
    await visitor.open("/organization/invitations/nonsense")
    await expect(visitor.page.get_by_role("heading", name="no longer works")).to_be_visible()


@scene()
async def account_menu_at_work(visitor: Visitor) -> None:
    await opens_the_organization(visitor)
    work = visitor.page.get_by_role("button", name="Work here")
    if await work.count():  # else an earlier scene of this session has switched already
        await work.click()
    await visitor.open("/")
    sidebar = await list_of(visitor)
    await sidebar.get_by_role("button", name="Account").click()
    await expect(visitor.page.get_by_role("link", name="Organization")).to_be_visible()
