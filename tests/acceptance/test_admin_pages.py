"""The admin in a browser: who gets in, a request's story, and what cannot be changed."""

import pytest
from playwright.async_api import Browser, expect

from tests.acceptance.browsing import Visitor, visit
from tests.acceptance.live_site import LiveSite
from tests.acceptance.scenes.admin import opens, some_use

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


async def test_nobody_but_staff_gets_in(site: LiveSite, browser: Browser) -> None:
    async with visit(site, browser, "Ada") as visitor:
        for path in ("", "inference/request/", "conversations/conversation/"):
            answer = await visitor.page.request.get(f"{site.url}/admin/{path}", max_redirects=0)
            assert answer.status in (302, 403, 404)


async def test_a_request_tells_its_whole_story(site: LiveSite, browser: Browser) -> None:
    async with visit(site, browser, "demo") as staff:
        some_use(staff)
        request, message = site.execute("SELECT id, owner_id FROM inference_request ORDER BY id DESC LIMIT 1")[0]
        await opens(staff, f"search/?q=msg_{message}")
        await opens(staff, f"search/?q=req_{request}")
        page = staff.page
        assert str(request) in page.url
        for step in ("Accepted", "Claimed", "First token", "Done"):
            await expect(page.get_by_role("region", name="Timeline")).to_contain_text(step)
        for told in ("Paid", "SmolLM2 135M", site.engine_url):
            await expect(page.locator("#content-main, #main").first).to_contain_text(told)


async def test_the_ledger_cannot_be_changed(site: LiveSite, browser: Browser) -> None:
    async with visit(site, browser, "demo") as staff:
        some_use(staff)
        entry = site.execute("SELECT id FROM quotas_ledgerentry ORDER BY id DESC LIMIT 1")[0][0]
        await opens(staff, f"quotas/ledgerentry/{entry}/change/")
        await no_way_to_change(staff)
        await opens(staff, "quotas/ledgerentry/")
        await expect(staff.page.get_by_role("link", name="Add ledger entry")).to_have_count(0)


async def no_way_to_change(staff: Visitor) -> None:
    await expect(staff.page.locator("[name=_save], .deletelink")).to_have_count(0)
    fields = staff.page.locator("#ledgerentry_form :is(input:not([type=hidden]), textarea, select)")
    await expect(fields).to_have_count(0)


HIDDEN_BY_BAR = """
    () => document.activeElement.matches('.tuning :is(input, a)') && !document.activeElement.closest('.tuning-bar')
        && document.activeElement.getBoundingClientRect().bottom
        > document.querySelector('.tuning-bar').getBoundingClientRect().top
"""


async def test_the_scheduler_is_tuned_by_keyboard(site: LiveSite, browser: Browser) -> None:
    async with visit(site, browser, "demo", viewport={"width": 390, "height": 780}) as staff:
        page = staff.page
        try:
            await opens(staff, "inference/schedulertuning/")
            await page.get_by_label("Enterprise: weight").focus()
            for _ in range(60):
                await page.keyboard.press("Tab")
                assert not await page.evaluate(HIDDEN_BY_BAR), await page.evaluate("document.activeElement.name")
            await page.get_by_label("Reap limit").focus()
            await page.keyboard.press("ControlOrMeta+a")
            await page.keyboard.type("300")
            await page.keyboard.press("Enter")
            await expect(page.get_by_text("1 setting has changed")).to_be_visible()
            await expect(page.get_by_label("Reap limit")).to_have_value("300")
            await page.get_by_role("link", name="History", exact=True).click()
            await expect(page.get_by_text("Lease, reap limit: 200 → 300")).to_be_visible()
            await opens(staff, "inference/schedulertuning/reset/")
            await staff.press("Reset to defaults")
            await expect(page.get_by_label("Reap limit")).to_have_value("200")
        finally:
            site.execute("DELETE FROM inference_schedulertuning")
