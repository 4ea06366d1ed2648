"""The admin in a real browser: nothing in the console, where breaches of the policy go; light, dark, phone; axe."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, expect

from tests.acceptance.browsing import Visitor, visit
from tests.acceptance.live_site import LiveSite
from tests.admin_rows import LISTS, SINGLE_PAGES

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]
ROOT, WRITER = "Finn", "Ada"
SAID = "What was said on Tuesday"
RIGHTS = "UPDATE accounts_user SET is_staff = %s, is_superuser = %s WHERE email = %s"
# The theme's own: its scrolling boxes share a name, and Select2 and Django's selector name their parts themselves.
THEIRS = {"landmark-unique", "empty-table-header", "aria-input-field-name", "aria-prohibited-attr"}
SCREENS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light", "viewport": {"width": 1280, "height": 800}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1280, "height": 800}},
    "phone": {"color_scheme": "light", "viewport": {"width": 390, "height": 780}},
}


@pytest.fixture
def conversation(site: LiveSite) -> str:
    return site.say(WRITER, SAID, "So it was.")


@pytest.fixture
def superuser(site: LiveSite) -> Iterator[str]:
    site.execute(RIGHTS, True, True, site.accounts[ROOT].email)
    yield ROOT
    site.execute(RIGHTS, False, False, site.accounts[ROOT].email)


@pytest_asyncio.fixture(loop_scope="session")
async def operator(site: LiveSite, browser: Browser, superuser: str, conversation: str) -> AsyncIterator[Visitor]:
    """A superuser on the front page of the admin."""
    async with visit(site, browser, superuser, "/admin/", **SCREENS["light"]) as visitor:
        yield visitor


def pages(site: LiveSite) -> list[str]:
    """The address of each list, of what is in it first, and of each form."""
    lists = [f"/admin/{name.replace('_', '/', 1)}/" for name in [*LISTS, *SINGLE_PAGES]]
    newest = {
        "accounts/user": "accounts_user", "accounts/organization": "accounts_organization",
        "accounts/apikey": "accounts_apikey", "inference/request": "inference_request",
        "quotas/ledgerentry": "quotas_ledgerentry", "quotas/plan": "quotas_plan",
        "conversations/conversation": "conversations_conversation", "conversations/message": "conversations_message",
        "inference/replica": "inference_replica", "usersessions/usersession": "usersessions_usersession",
    }  # fmt: skip
    rows = [
        f"/admin/{path}/{site.execute(f'SELECT id FROM {table} ORDER BY id DESC LIMIT 1')[0][0]}/change/"
        for path, table in newest.items()
    ]
    forms = ["accounts/user/add", "quotas/plan/add", "quotas/subscription/add", "auth/group/add"]
    return ["/admin/", *lists, *rows, *(f"/admin/{form}/" for form in forms)]


@pytest.mark.parametrize("screen", list(SCREENS))
async def test_every_page_is_quiet_fits_and_can_be_used(
    site: LiveSite, browser: Browser, superuser: str, conversation: str, screen: str
) -> None:
    async with visit(site, browser, superuser, "/admin/", **SCREENS[screen]) as visitor:
        for address in pages(site)[:: 4 if screen == "dark" else 1]:  # colours are the same on all of them
            await visitor.open(address)
            await expect(visitor.page.locator("h1")).to_be_visible()  # the theme has started
            wide = await visitor.page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, f"{address} is {wide} px wider than the screen"
            if screen == "phone":
                continue
            found = await Axe().run(visitor.page)
            wrong = [each for each in found.response["violations"] if each["id"] not in THEIRS]
            assert not wrong, f"{address}: {[(each['id'], each['nodes'][0]['html']) for each in wrong]}"
            assert visitor.complaints == [], address


async def test_what_moves_in_the_theme_keeps_to_the_policy(operator: Visitor) -> None:
    page = operator.page
    await operator.open("/admin/accounts/user/")
    await page.get_by_role("button", name="Filters").click()
    await page.locator("#changelist-filter").get_by_role("link", name="Yes").first.click()
    await expect(page.get_by_role("button", name="Filtered")).to_be_visible()
    await page.locator("input.action-select").first.check()
    await page.locator("#changelist-actions select").select_option("deactivate")
    await expect(page.get_by_role("button", name="Run")).to_be_visible()
    await operator.open("/admin/quotas/subscription/add/")
    await page.locator(".select2-selection").first.click()
    await page.locator(".select2-search__field").fill("ad")
    await expect(page.locator(".select2-results__option").first).to_be_visible()
    await page.get_by_role("button", name="Dark").click()
    await expect(page.locator("html.dark")).to_be_visible()
    await page.reload()
    await expect(page.locator("html.dark")).to_be_visible()


async def test_anything_is_found_by_its_id(operator: Visitor, site: LiveSite) -> None:
    page = operator.page
    [[request]] = site.execute("SELECT id FROM inference_request ORDER BY id DESC LIMIT 1")
    await page.get_by_role("search", name="Find anywhere").get_by_role("searchbox").fill(f"req_{request}")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="Timeline")).to_be_visible()
    for step in ("Accepted and queued", "Claimed by a replica", "First token", "Done"):
        await expect(page.get_by_role("row", name=step)).to_be_visible()
    await page.get_by_role("link", name="conv_").click()
    await expect(page.get_by_role("link", name="Read the text…")).to_be_visible()
    assert SAID not in await page.content()


async def test_a_conversation_is_read_with_a_reason_only(operator: Visitor, site: LiveSite, conversation: str) -> None:
    page = operator.page
    await operator.open(f"/admin/conversations/conversation/{conversation}/change/")
    await page.get_by_role("link", name="Read the text…").click()
    await page.get_by_label("Reason").fill("Ticket 4711: the user asks what was said.")
    await page.get_by_role("button", name="Read the text").click()
    await expect(page.locator(".turn-user", has_text=SAID)).to_be_visible()
    await expect(page.get_by_text("So it was.")).to_be_visible()
    found = site.execute("SELECT staff_email, reason FROM conversations_textaccess ORDER BY id DESC LIMIT 1")
    assert found == [(site.accounts[ROOT].email, "Ticket 4711: the user asks what was said.")]
    await page.goto(page.url)
    await expect(page.get_by_label("Reason")).to_be_visible()
    assert SAID not in await page.content()
