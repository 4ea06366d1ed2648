"""The whole way of an organization: made, somebody invited by mail, joined, limited, removed."""

from uuid import uuid4

import pytest
from playwright.async_api import Browser, expect

from tests.acceptance.browsing import Visitor, visit
from tests.acceptance.live_site import Account, LiveSite
from tests.acceptance.scenes.accounts import NEW_PASSWORD, tries_to_sign_in
from tests.acceptance.scenes.organizations import invites, manages
from tests.waiting import wait_until

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]
ENDS_WITHIN = 3_000  # ms until the pages of whoever was removed are loaded anew


async def makes_an_organization(visitor: Visitor, name: str) -> None:
    """By the menu at the foot of the sidebar."""
    await visitor.page.locator("#account-button").click()
    await visitor.page.get_by_role("link", name="Organization").click()
    await visitor.page.get_by_role("link", name="New organization").click()
    await visitor.page.get_by_label("Name", exact=True).fill(name)
    await visitor.press("Create organization")
    await expect(visitor.page.get_by_role("heading", name=name)).to_be_visible()


async def test_invited_joined_limited_and_removed(site: LiveSite, browser: Browser) -> None:
    email, name = f"{uuid4().hex[:12]}@example.com", f"Team {uuid4().hex[:6]}"
    async with (
        visit(site, browser, "Eve") as owner,
        visit(site, browser, None, "/accounts/login/") as guest,
    ):
        await makes_an_organization(owner, name)
        await invites(owner, email.upper(), "member")
        await expect(owner.page.get_by_text(f"An invitation is on its way to {email}.")).to_be_visible()

        page = guest.page
        invitation = site.link_in_mail(email)
        await page.goto(invitation)
        await expect(page.get_by_role("heading", name=f"Join {name}?")).to_be_visible()
        await page.get_by_role("link", name="Create an account").click()
        await expect(page.get_by_label("Email")).to_have_value(email)
        await page.get_by_label("Password", exact=True).fill(NEW_PASSWORD)
        await guest.press("Create account")
        await expect(page.get_by_role("heading", name="Check your mail")).to_be_visible()
        await page.goto(await wait_until(lambda: newer_link(site, email, invitation), 10))
        await guest.press("Confirm")
        await expect(page.get_by_text(f"You have joined {name}.")).to_be_visible()
        await tries_to_sign_in(guest, email, NEW_PASSWORD)
        site.accounts[email] = Account(email, NEW_PASSWORD, "")
        await page.wait_for_url(f"{site.url}/")

        await guest.open("/organization/")
        await guest.press(f"Switch to {name}")
        await expect(page.get_by_text(f"You work in {name} now.")).to_be_visible()
        await page.goto(invitation)  # used
        await expect(page.get_by_role("heading", name="This link no longer works")).to_be_visible()
        guest.complaints.clear()  # the console tells of the 404
        await guest.open()
        site.engine("options", script="Welcome.")
        await guest.send("Hello")
        await guest.sees("Welcome.")
        conversation = page.url

        await owner.page.reload()
        await manages(owner, email)
        await owner.page.get_by_label("Admin").check()
        await owner.page.get_by_label("Replies at once").fill("1")
        await owner.press("Save")
        await expect(owner.page.get_by_text(f"{email} is saved.")).to_be_visible()
        await expect(page.locator("#chat[data-connected]")).to_be_visible()  # with other limits the page stays

        await owner.page.get_by_role("link", name="Remove from the organization…").click()
        await owner.press("Remove")
        await expect(owner.page.get_by_text(f"{email} is removed.")).to_be_visible()
        await expect(page.get_by_role("heading", name="Not found")).to_be_visible(timeout=ENDS_WITHIN)
        assert page.url == conversation
        guest.complaints.clear()
        await guest.open()  # signed in, in their own
        await expect(page.get_by_text("Hello")).to_have_count(0)


def newer_link(site: LiveSite, email: str, before: str) -> str:
    link = site.link_in_mail(email)
    return "" if link == before else link


async def test_a_chat_of_another_organization_offers_to_switch_there(site: LiveSite, browser: Browser) -> None:
    async with visit(site, browser, None, "/accounts/login/") as visitor:
        await visitor.sign_in("Finn")  # a session of his own, and the first organization that he makes: it has a plan
        name = f"Team {uuid4().hex[:6]}"
        await makes_an_organization(visitor, name)
        await visitor.open()
        site.engine("options", script="At work.")
        await visitor.send("Where am I?")
        await visitor.sees("At work.")
        conversation = visitor.page.url
        await visitor.open("/organization/")
        await visitor.page.get_by_role("button", name="Switch to Finn").click()
        await visitor.page.goto(conversation)
        await expect(visitor.page.get_by_role("heading", name="This chat is in another organization")).to_be_visible()
        visitor.complaints.clear()
        await visitor.press("Switch there")
        await visitor.sees("At work.")
