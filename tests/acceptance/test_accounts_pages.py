"""From signing up to signing out elsewhere, by the links in real mail."""

import re
from uuid import uuid4

import pytest
from playwright.async_api import Browser, Error, expect

from tests.acceptance.browsing import Visitor, visit
from tests.acceptance.live_site import Account, LiveSite
from tests.acceptance.scenes.accounts import NEW_PASSWORD, signs_up, tries_to_sign_in
from tests.waiting import wait_until

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]
ENDS_WITHIN = 2_000  # ms until the pages of a session that was ended are left


def new_address() -> str:
    return f"{uuid4().hex[:12]}@example.com"


async def becomes_member(visitor: Visitor) -> Account:
    """Signs up, opens the link, and signs in."""
    email = new_address()
    await signs_up(visitor, email)
    await expect(visitor.page.get_by_role("heading", name="Check your mail")).to_be_visible()
    await visitor.page.goto(visitor.site.link_in_mail(email))
    await visitor.press("Confirm")
    await tries_to_sign_in(visitor, email, NEW_PASSWORD)
    await visitor.page.wait_for_url(f"{visitor.site.url}/")
    account = Account(email, NEW_PASSWORD, "")
    visitor.site.accounts[email] = account
    return account


async def test_signing_up_by_a_link_in_the_mail(site: LiveSite, browser: Browser) -> None:
    async with visit(site, browser, None, "/accounts/login/") as visitor:
        page = visitor.page
        await page.get_by_role("link", name="Create an account").click()
        email = new_address()
        await signs_up(visitor, email)
        await expect(page.get_by_role("heading", name="Check your mail")).to_be_visible()
        await tries_to_sign_in(visitor, email, NEW_PASSWORD)  # too early
        await expect(page.get_by_role("heading", name="Check your mail")).to_be_visible()

        link = site.link_in_mail(email)
        await page.goto(link)
        await visitor.press("Confirm")
        await expect(page.get_by_text("is confirmed")).to_be_visible()
        await tries_to_sign_in(visitor, email, NEW_PASSWORD)
        await page.wait_for_url(f"{site.url}/")
        site.engine("options", script="Welcome.")
        await visitor.send("Hello")  # with an organization and a plan of their own
        await visitor.sees("Welcome.")

        await page.goto(link)  # used
        await expect(page.get_by_role("heading", name="This link no longer works")).to_be_visible()
        await page.context.clear_cookies()
        await page.goto(link)
        await expect(page.get_by_role("heading", name="This link no longer works")).to_be_visible()
        visitor.complaints.clear()


async def test_nobody_learns_which_addresses_have_an_account(site: LiveSite, browser: Browser) -> None:
    async with visit(site, browser, None, "/accounts/login/") as visitor:
        said = []
        for email in (site.accounts["Ada"].email, new_address()):
            await signs_up(visitor, email)
            said.append(await visitor.page.locator("main").inner_text())
            await tries_to_sign_in(visitor, email, "wrong password")
            said.append(await visitor.page.locator("main").inner_text())
            await visitor.open("/accounts/password/reset/")
            await visitor.page.get_by_label("Email").fill(email)
            await visitor.press("Send the link")
            said.append(await visitor.page.locator("main").inner_text())
        assert said[:3] == said[3:]


async def test_a_forgotten_password_is_reset_once_and_old_sessions_end(site: LiveSite, browser: Browser) -> None:
    async with (
        visit(site, browser, None, "/accounts/login/") as visitor,
        visit(site, browser, None, "/accounts/login/") as elsewhere,
    ):
        account = await becomes_member(visitor)
        page = elsewhere.page
        await elsewhere.open("/accounts/password/reset/")
        await page.get_by_label("Email").fill(account.email)
        await elsewhere.press("Send the link")
        link = await wait_until(lambda: newest_link(site, account.email, "password/reset"), 10)
        await page.goto(link)
        await page.get_by_label("New password").first.fill("eight green bottles hanging")
        await elsewhere.press("Change password")
        await expect(page.get_by_role("heading", name="Your password is changed")).to_be_visible()
        await visitor.page.wait_for_url("**/accounts/login/**", timeout=ENDS_WITHIN)
        await page.goto(link)  # used
        await expect(page.get_by_role("heading", name="This link no longer works")).to_be_visible()
        await tries_to_sign_in(elsewhere, account.email, NEW_PASSWORD)
        await expect(page.get_by_role("alert")).to_be_visible()
        await tries_to_sign_in(elsewhere, account.email, "eight green bottles hanging")
        await page.wait_for_url(f"{site.url}/")
        for one in (visitor, elsewhere):
            one.complaints.clear()


def newest_link(site: LiveSite, email: str, part: str) -> str:
    link = site.link_in_mail(email)
    return link if part in link else ""


async def test_guessing_locks_out_and_says_for_how_long(site: LiveSite, browser: Browser) -> None:
    async with visit(site, browser, None, "/accounts/login/") as visitor:
        page = visitor.page
        for _ in range(6):
            await tries_to_sign_in(visitor, site.accounts["Finn"].email, "a guess")
        await expect(page.get_by_role("heading", name="Too many attempts")).to_be_visible()
        await expect(page.get_by_text(re.compile(r"Try again in \d+ (minutes|seconds)"))).to_be_visible()
        await tries_to_sign_in(visitor, site.accounts["Finn"].email, site.accounts["Finn"].password)
        await expect(page.get_by_role("heading", name="Too many attempts")).to_be_visible()
        site.forget()
        await tries_to_sign_in(visitor, site.accounts["Finn"].email, site.accounts["Finn"].password)
        await page.wait_for_url(f"{site.url}/")
        visitor.complaints.clear()


async def test_signed_out_elsewhere_a_page_goes_to_sign_in_and_keeps_the_draft(
    site: LiveSite, browser: Browser
) -> None:
    async with (
        visit(site, browser, None, "/accounts/login/") as here,
        visit(site, browser, None, "/accounts/login/") as there,
    ):
        account = await becomes_member(here)
        await there.sign_in(account.email)
        await there.send("Count to a million")
        await there.page.wait_for_url("**/c/conv_*")
        conversation = there.page.url
        await there.reply_grows(beyond=20)
        await there.draft.fill("Not sent yet")

        await here.open("/account/")
        await here.press("Sign out everywhere else")
        await there.page.wait_for_url("**/accounts/login/**", timeout=ENDS_WITHIN)
        await there.page.get_by_label("Email").fill(account.email)
        await there.page.get_by_label("Password", exact=True).fill(account.password)
        await there.press("Sign in")
        await there.page.wait_for_url(conversation)  # back where it was
        await expect(there.draft).to_have_value("Not sent yet")
        await there.page.locator("#chat[data-connected]").wait_for()
        await there.reply_grows(beyond=40)  # the reply went on
        await there.press("Stop")
        await there.idle()
        there.complaints.clear()


async def test_signing_out_leaves_nothing_behind(site: LiveSite, browser: Browser) -> None:
    async with visit(site, browser, None, "/accounts/login/") as visitor:
        account = await becomes_member(visitor)
        page = visitor.page
        await page.get_by_label("Message", exact=True).fill("A secret draft")
        await page.wait_for_function("() => Object.values(localStorage).includes('A secret draft')")
        await page.get_by_role("button", name="Account").click()
        await visitor.press("Sign out")
        await page.wait_for_url("**/accounts/login/**")
        assert "A secret draft" not in str(await page.evaluate("Object.values({...localStorage, ...sessionStorage})"))
        await page.go_back()
        await expect(page.get_by_label("Password", exact=True)).to_be_visible()
        await tries_to_sign_in(visitor, account.email, account.password)
        await page.wait_for_url(f"{site.url}/")
        await expect(page.get_by_label("Message", exact=True)).to_have_value("")
        visitor.complaints.clear()


async def test_s33_a_key_is_shown_once_and_works_until_it_is_revoked(site: LiveSite, browser: Browser) -> None:
    async with visit(site, browser, "Ada", "/account/") as visitor:
        page = visitor.page
        await page.get_by_role("link", name="New key").click()
        await page.get_by_label("Name", exact=True).fill("Nightly report")
        await visitor.press("Create key")
        secret = await page.get_by_label("Key", exact=True).input_value()
        assert len(secret) > 40
        headers = {"authorization": f"Bearer {secret}"}
        models = f"{site.url}/v1/models"
        anonymous = await browser.new_context()
        assert (await anonymous.request.get(models, headers=headers)).ok

        await page.get_by_role("link", name="Done").click()
        await expect(page.locator("#keys")).to_contain_text("Nightly report")
        await page.reload()
        assert secret not in await page.content()
        with pytest.raises(Error, match="ERR_CACHE_MISS"):  # the browser has not kept it either
            await page.go_back()
        assert secret not in site.logs()
        for (table,) in site.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'"):
            found = site.execute(f'SELECT 1 FROM "{table}" AS each WHERE each::text LIKE %s', f"%{secret[8:]}%")
            assert found == [], table
        await visitor.open("/account/")
        await page.get_by_role("link", name="Revoke Nightly report").click()
        await visitor.press("Revoke")
        await expect(page.locator("#keys > .rows")).not_to_contain_text("Nightly report")
        await page.get_by_text("Keys that have ended").click()
        await expect(page.locator("#keys .ended")).to_contain_text("Revoked just now")
        assert (await anonymous.request.get(models, headers=headers)).status == 401
        await anonymous.close()
        visitor.complaints.clear()


async def test_two_clicks_on_a_slow_line_show_the_key(site: LiveSite, browser: Browser) -> None:
    """The second answer would take the place of the first, and nobody could ever read the key."""
    async with visit(site, browser, "Ada", "/account/keys/new") as visitor:
        page = visitor.page
        line = await page.context.new_cdp_session(page)
        slow = {"offline": False, "latency": 400, "downloadThroughput": -1, "uploadThroughput": -1}
        await line.send("Network.enable")
        await page.get_by_label("Name", exact=True).fill("Slow line")
        await line.send("Network.emulateNetworkConditions", slow)
        await page.get_by_role("button", name="Create key").dblclick(delay=20)
        assert len(await page.get_by_label("Key", exact=True).input_value()) > 40
        visitor.complaints.clear()


async def test_a_new_address_is_confirmed_before_it_counts(site: LiveSite, browser: Browser) -> None:
    async with visit(site, browser, None, "/accounts/login/") as visitor:
        account = await becomes_member(visitor)
        page, new = visitor.page, new_address()
        await visitor.open("/accounts/email/")
        await page.get_by_role("textbox").last.fill(new)
        await visitor.press("Send a link to it")
        await expect(page.get_by_role("heading", name="Is it you?")).to_be_visible()
        await page.get_by_label("Password", exact=True).fill(account.password)
        await visitor.press("Confirm")
        await expect(page.get_by_role("status")).to_contain_text(new)
        await visitor.open("/account/")
        await expect(page.locator("#profile")).to_contain_text(account.email)
        await page.goto(site.link_in_mail(new))
        await visitor.press("Confirm")
        await visitor.open("/account/")
        await expect(page.locator("#profile")).to_contain_text(new)
        assert account.email not in await page.content()
