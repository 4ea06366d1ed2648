"""The ways to the usage page, with mouse and keyboard."""

import pytest
from playwright.async_api import Browser, expect

from tests.acceptance.browsing import visit
from tests.acceptance.gallery import DESKTOP
from tests.acceptance.live_site import LiveSite
from tests.acceptance.scenes.frame import list_of
from tests.acceptance.scenes.money import statement
from tests.acceptance.scenes.texts import ANSWER, QUESTION

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


async def test_from_the_menu_to_another_range_by_keyboard(site: LiveSite, browser: Browser) -> None:
    site.say("Eve", QUESTION, ANSWER)
    async with visit(site, browser, "Eve") as visitor:
        page = visitor.page
        await (await list_of(visitor)).get_by_role("button", name="Account").click()
        await page.get_by_role("link", name="Usage", exact=True).click()
        await expect(page.get_by_role("heading", name="Usage", exact=True)).to_be_visible()
        await expect(page.get_by_role("img", name="By day")).to_be_visible()
        await page.get_by_role("link", name="7 days").focus()
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/usage/?range=7")
        await expect(page.get_by_role("link", name="7 days")).to_have_attribute("aria-current", "true")
        await expect(page.get_by_role("table").get_by_role("row", name="smollm2-135m")).to_be_visible()
        assert visitor.complaints == []


async def test_a_message_over_a_limit_leads_to_what_is_left(site: LiveSite, browser: Browser) -> None:
    conversation = site.say("Finn", QUESTION, ANSWER)
    site.engine("options", first_token_seconds=60)
    for text in ("One", "Two", "Three"):  # as many as the free plan allows
        site.start_reply("Finn", text)
    async with visit(site, browser, "Finn", f"/c/{conversation}") as visitor:
        await visitor.send("Four")
        await visitor.page.get_by_role("alert").get_by_role("link", name="See your usage").click()
        await expect(visitor.page.get_by_role("heading", name="What is left for you")).to_be_visible()
        await expect(visitor.page.locator("#limits")).to_contain_text("0 of 3 replies left")


async def test_the_lines_of_a_statement_fit_on_a_desktop(site: LiveSite, browser: Browser) -> None:
    async with visit(site, browser, "Ada", viewport=DESKTOP) as visitor:
        await statement(visitor)
        lines = visitor.page.get_by_role("region", name="Lines, table")
        assert await lines.evaluate("(box) => box.scrollWidth <= box.clientWidth")
        tab = visitor.page.get_by_role("link", name="Statements", exact=True)
        await expect(tab).to_have_attribute("aria-current", "true")
