"""The sidebar and the header: renaming, deleting, searching, choosing a model, sharing."""

import pytest
from playwright.async_api import Browser, expect

from chatsite.ids import new_id, public_id
from tests.acceptance.browsing import Visitor, visit
from tests.acceptance.live_site import LARGE_MODEL, LiveSite
from tests.acceptance.scenes.frame import fill_sidebar, opens_menu_of, opens_share
from tests.acceptance.scenes.texts import ANSWER, QUESTION, TITLES

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


async def test_conversations_are_renamed_and_deleted_from_their_row(visitor: Visitor) -> None:
    page = visitor.page
    fill_sidebar(visitor.site, marks=False)
    await visitor.open()
    await expect(page.locator("#conversations h2").first).to_have_text("Today")
    await opens_menu_of(visitor, TITLES[1])
    await visitor.press("Rename")
    await page.get_by_role("dialog").get_by_label("Title").fill("Buckets")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("dialog")).to_be_hidden()
    await expect(page.get_by_role("link", name="Buckets", exact=True)).to_be_visible()
    assert await page.evaluate("document.activeElement.getAttribute('aria-label')") == "Actions for Buckets"

    await opens_menu_of(visitor, "Buckets")
    await visitor.press("Delete")
    await page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    await expect(page.get_by_role("link", name="Buckets", exact=True)).to_be_visible()
    await opens_menu_of(visitor, "Buckets")
    await visitor.press("Delete")
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(page.get_by_role("link", name="Buckets", exact=True)).to_have_count(0)
    assert not visitor.site.execute("SELECT 1 FROM conversations_conversation WHERE title = 'Buckets'")


async def test_the_title_is_edited_in_place_and_escape_keeps_it(visitor: Visitor) -> None:
    page = visitor.page
    await visitor.open(f"/c/{visitor.site.say('Ada', QUESTION, ANSWER)}")
    await page.locator("#title").click()
    await page.keyboard.type("Something else")
    await page.keyboard.press("Escape")
    await expect(page.locator("#title")).to_have_text(QUESTION)
    await page.locator("#title").click()
    await page.keyboard.type("Tides")
    await page.keyboard.press("Enter")
    await expect(page.locator("#title")).to_have_text("Tides")
    await page.reload()
    await expect(page.locator("#title")).to_have_text("Tides")


async def test_a_word_of_a_message_is_found_by_keyboard(visitor: Visitor) -> None:
    page = visitor.page
    conversation = visitor.site.say("Ada", "What pulls the sea?", ANSWER)
    visitor.site.say("Eve", "Where is Fundy?", "The Bay of Fundy is in Canada.")
    fill_sidebar(visitor.site, marks=False)
    await visitor.open()
    await page.keyboard.press("Control+K")
    await page.keyboard.type("bay of fundy")
    await expect(page.locator("#found mark")).to_have_text("Bay of Fundy")
    await expect(page.locator("#found .row")).to_have_count(1)  # and not what Eve was told
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"**/c/{conversation}")


async def test_the_model_that_is_chosen_answers(visitor: Visitor) -> None:
    page = visitor.page
    await page.locator("#model-button").click()
    await page.locator("#model-menu").get_by_text("SmolLM2 1.7B").click()
    await expect(page.locator("#model-title")).to_have_text("SmolLM2 1.7B")
    visitor.site.engine("options", script="Of course.")
    await visitor.send("Can you?")
    await visitor.sees("Of course.")
    asked = visitor.site.execute("SELECT model_id FROM inference_request ORDER BY id DESC LIMIT 1")
    assert asked == [(LARGE_MODEL,)]


async def test_the_sidebar_stays_as_it_was_left(visitor: Visitor) -> None:
    page = visitor.page
    button = page.locator("#sidebar-button")
    await expect(button).to_have_attribute("aria-expanded", "true")
    await button.click()
    await expect(page.get_by_role("link", name="New chat")).to_be_hidden()
    await page.reload()
    await expect(page.get_by_role("link", name="New chat")).to_be_hidden()
    await expect(button).to_have_attribute("aria-expanded", "false")


async def test_a_share_shows_the_conversation_as_it_was_until_it_is_stopped(
    site: LiveSite, browser: Browser, visitor: Visitor
) -> None:
    await opens_share(visitor)
    await visitor.press("Create link")
    address = await visitor.page.get_by_role("dialog").get_by_role("textbox").input_value()
    conversation = visitor.page.url.rsplit("/", 1)[1]
    site.say("Ada", "A later secret", "Which nobody sees.", conversation)
    async with visit(site, browser, "Eve") as eve:
        await eve.page.goto(address)
        await expect(eve.page.locator("#thread")).to_contain_text("The Moon pulls")
        await expect(eve.page.locator("#thread")).not_to_contain_text("secret")
        assert "Ada" not in await eve.page.content()
        assert site.accounts["Ada"].email not in await eve.page.content()
        await visitor.press("Stop sharing")
        await expect(visitor.page.get_by_role("button", name="Create link")).to_be_visible()
        answer = await eve.page.goto(address)
        assert answer
        assert answer.status == 404
        eve.complaints.clear()


async def test_s32_another_persons_pages_are_not_found(site: LiveSite, browser: Browser, visitor: Visitor) -> None:
    await opens_share(visitor)
    await visitor.press("Create link")
    token = (await visitor.page.get_by_role("dialog").get_by_role("textbox").input_value()).rsplit("/", 1)[1]
    conversation = visitor.page.url.rsplit("/", 1)[1]
    before = site.execute("SELECT id, title, updated_at FROM conversations_conversation")
    async with visit(site, browser, "Eve") as eve:
        form = {"csrfmiddlewaretoken": await csrf_token(eve)}
        for asked in (conversation, public_id("conv", new_id())):
            for path in ("", "/earlier", "/share"):
                answer = await eve.page.request.get(f"{site.url}/c/{asked}{path}")
                assert (answer.status, "Moon" in await answer.text()) == (404, False), path
            for path in ("title", "delete", "share"):
                answer = await eve.page.request.post(
                    f"{site.url}/c/{asked}/{path}", form={**form, "title": "Mine"}, headers={"referer": site.url}
                )
                assert answer.status == 404, path
        answer = await eve.page.request.post(f"{site.url}/s/{token}/stop", form=form, headers={"referer": site.url})
        assert answer.status == 404
    assert site.execute("SELECT id, title, updated_at FROM conversations_conversation") == before
    assert site.execute("SELECT revoked_at FROM conversations_share") == [(None,)]


async def csrf_token(visitor: Visitor) -> str:
    return await visitor.page.locator("[name=csrfmiddlewaretoken]").first.input_value()
