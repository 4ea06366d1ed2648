"""The page as a whole: long conversations, the keyboard, themes, phones."""

import asyncio
import re
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from playwright.async_api import Browser, Page, Route, expect

from chatsite.ids import new_id
from tests.acceptance.browsing import Visitor, visit
from tests.acceptance.gallery import PHONE
from tests.acceptance.live_site import LOADING_MODEL, LiveSite
from tests.waiting import wait_until

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]
MESSAGE = """
    INSERT INTO conversations_message (id, conversation_id, parent_id, role, content, status, finish_reason, model_id,
        token_ids, tokens, usage_input, usage_cached, usage_output, left_out, error_code, error_message, feedback,
        request_id, created_at)
    VALUES (%s, %s, %s, %s, %s, 'complete', %s, 'smollm2-135m', '', 3, 0, 0, 0, 0, '', '', 0, %s, %s)
"""


def long_conversation(site: LiveSite, length: int) -> str:
    """A conversation with so many messages: its public id."""
    conversation = site.say("Ada", "The first", "Yes.")
    parent: UUID | None = site.execute("SELECT active_leaf_id FROM conversations_conversation")[0][0]
    start = datetime.now(UTC) - timedelta(minutes=1)
    for number in range(3, length + 1):
        role, reason = ("user", "") if number % 2 else ("assistant", "stop")
        text = f"Message {number}: " + "a few words more. " * (number % 7 + 1)
        message, moment = new_id(), start + timedelta(milliseconds=number)
        request = None if role == "user" else new_id()
        site.execute(MESSAGE, message, conversation[5:], parent, role, text, reason, request, moment)
        parent = message
    site.execute("UPDATE conversations_conversation SET active_leaf_id = %s", parent)
    return conversation


IN_VIEW = """() => {
  const top = document.getElementById("scroll").getBoundingClientRect().top;
  const turn = [...document.querySelectorAll("#thread .turn")].find((each) => each.getBoundingClientRect().top >= top);
  return [turn.id, Math.round(turn.getBoundingClientRect().top)];
}"""


async def test_s7_a_chat_of_500_messages_opens_with_its_end_and_loads_the_rest_on_scroll(visitor: Visitor) -> None:
    page = visitor.page
    conversation = long_conversation(visitor.site, 500)
    await visitor.open(f"/c/{conversation}")
    turns = page.locator("#thread .turn")
    await expect(page.get_by_text("Message 500:")).to_be_in_viewport()
    shown = await turns.count()
    assert 10 <= shown <= 100
    await page.evaluate("document.getElementById('scroll').scrollTop = 300")
    seen = await page.evaluate(IN_VIEW)
    await expect(turns).not_to_have_count(shown)  # older ones came, and what was in view stayed where it was
    assert await page.evaluate(IN_VIEW) == seen
    while (shown := await turns.count()) < 500:
        await page.evaluate("document.getElementById('scroll').scrollTop = 0")
        await expect(turns).not_to_have_count(shown)
    await expect(turns).to_have_count(500)


async def reads_further_up(visitor: Visitor) -> str:
    """Opens a conversation of 60 messages, and scrolls back a little. Returns its id."""
    conversation = long_conversation(visitor.site, 60)
    await visitor.open(f"/c/{conversation}")
    await visitor.page.evaluate("document.getElementById('scroll').scrollTop -= 900")
    await visitor.page.evaluate("new Promise(requestAnimationFrame)")
    return conversation


async def loses_the_connection(page: Page) -> None:
    """Until the context is online again."""
    await page.context.set_offline(True)
    await page.evaluate("document.querySelector('#chat')._htmx.ws.connection.socket.close()")


async def test_s7_who_reads_further_up_keeps_the_place_while_more_comes_after_a_lost_connection(
    visitor: Visitor,
) -> None:
    page, site = visitor.page, visitor.site
    conversation = await reads_further_up(visitor)
    await loses_the_connection(page)
    site.say("Ada", "From another device", "Said meanwhile.", conversation)
    seen = await page.evaluate(IN_VIEW)
    shown = await page.locator("#thread .turn").count()
    await page.context.set_offline(False)
    await expect(page.get_by_text("Said meanwhile.")).to_be_attached()
    await expect(page.locator("#connection")).to_be_hidden()
    assert await page.evaluate(IN_VIEW) == seen
    assert await page.locator("#thread .turn").count() == shown + 2  # the others were left as they are
    await visitor.press("Jump to latest")
    await expect(page.get_by_text("Said meanwhile.")).to_be_in_viewport()
    visitor.complaints.clear()  # the browser calls a socket that does not connect an error


async def test_s7_who_reads_further_up_keeps_the_place_when_the_whole_is_shown_anew(visitor: Visitor) -> None:
    page = visitor.page
    await reads_further_up(visitor)
    seen = await page.evaluate(IN_VIEW)
    await page.evaluate("document.getElementById('thread').lastElementChild.id = 'msg_unknown'")  # of another branch
    await page.evaluate("document.querySelector('#chat')._htmx.ws.connection.socket.close()")
    await expect(page.locator("#msg_unknown")).to_have_count(0)
    await expect(page.get_by_text("Message 60:")).to_be_attached()
    assert await page.evaluate(IN_VIEW) == seen


async def test_s7_who_reads_further_up_keeps_the_place_when_more_than_a_page_was_missed(visitor: Visitor) -> None:
    """What was read is not in what the server shows anew: it is loaded."""
    page, site = visitor.page, visitor.site
    conversation = await reads_further_up(visitor)
    await loses_the_connection(page)
    for number in range(28):
        site.say("Ada", f"Meanwhile {number}", "Said meanwhile.", conversation)
    seen = await page.evaluate(IN_VIEW)
    await page.context.set_offline(False)
    await expect(page.get_by_text("Meanwhile 27")).to_be_attached(timeout=15_000)
    await wait_until(lambda: in_view_again(page, seen))
    visitor.complaints.clear()  # the browser calls a socket that does not connect an error


async def in_view_again(page: Page, seen: object) -> bool:
    return bool(await page.evaluate(IN_VIEW) == seen)


FAILING = {"status": 503, "content_type": "text/html", "body": "<h1>Away</h1><p class='detail'>Try again shortly.</p>"}


async def test_what_cannot_be_loaded_takes_no_ones_place_and_can_be_asked_for_again(visitor: Visitor) -> None:
    page, site = visitor.page, visitor.site
    conversation = long_conversation(site, 60)
    await visitor.open(f"/c/{conversation}")
    await page.route(re.compile("/earlier|/turns/"), lambda route: route.fulfill(**FAILING))
    await page.evaluate("document.getElementById('scroll').scrollTop = 0")
    earlier = page.get_by_role("button", name="Earlier messages")
    await earlier.click()
    await expect(page.locator("#notice")).to_contain_text("could not be loaded")
    await expect(page.get_by_role("heading", name="Away")).to_have_count(0)

    huge = new_id()  # larger than a frame: the page is given a button that presses itself
    leaf = site.execute("SELECT active_leaf_id FROM conversations_conversation")[0][0]
    site.execute(MESSAGE, huge, conversation[5:], leaf, "user", "All of it. " * 30_000, "", None, datetime.now(UTC))
    site.execute("UPDATE conversations_conversation SET active_leaf_id = %s", huge)
    site.call("Ada", "PATCH", f"/v1/conversations/{conversation}", {"title": "A look at it"})
    show = page.get_by_role("button", name="Show this message")
    await expect(show).to_be_visible()
    await page.unroute_all()
    await show.click()
    await expect(page.get_by_text("All of it.")).to_be_attached()
    await earlier.click()
    await expect(page.get_by_text("The first", exact=True)).to_be_attached()
    await expect(page.locator("#notice")).to_be_empty()
    visitor.complaints.clear()  # the browser calls any answer of 503 an error


FOCUS_IS_VISIBLE = """() => {
  const element = document.activeElement;
  const looks = () => [element, element.closest(".composer, .search") ?? element].map((each) => {
    const style = getComputedStyle(each);
    return [style.outline, style.boxShadow, style.borderColor, style.opacity, style.transform];
  }).toString();
  const focused = looks();
  element.blur();
  const without = looks();
  element.focus();
  return focused !== without;
}"""


async def tab_to(page: Page, name: str, limit: int = 40) -> None:
    """Presses Tab until what has the focus has this name."""
    named = "document.activeElement.getAttribute('aria-label') ?? document.activeElement.innerText.trim()"
    for _ in range(limit):
        await page.keyboard.press("Tab")
        assert await page.evaluate(FOCUS_IS_VISIBLE), await page.evaluate("document.activeElement.outerHTML")
        if await page.evaluate(named) == name:
            return
    raise AssertionError(f"Tab does not reach {name}")


async def test_everything_by_keyboard_from_signing_in_to_regenerating(site: LiveSite, browser: Browser) -> None:
    async with visit(site, browser, None, "/accounts/login/") as visitor:
        page = visitor.page
        await page.get_by_label("Email").focus()
        await page.keyboard.type(site.accounts["Ada"].email)
        await page.keyboard.press("Tab")
        await page.keyboard.type(site.accounts["Ada"].password)
        await page.keyboard.press("Enter")
        await page.wait_for_url(f"{site.url}/")
        await page.locator("#chat[data-connected]").wait_for()
        await expect(visitor.draft).to_be_focused()
        await page.keyboard.type("By keyboard")
        await page.keyboard.press("Enter")
        await visitor.reply_grows()
        await tab_to(page, "Stop")
        await page.keyboard.press("Enter")
        await visitor.sees("Stopped")
        await visitor.idle()
        await visitor.draft.focus()
        await tab_backwards_to(page, "Regenerate")
        await page.keyboard.press("Enter")
        await visitor.reply_grows()
        await expect(visitor.page.locator("body")).not_to_be_focused()  # the focus was not lost with the turn
        await visitor.press("Stop")
        await visitor.sees("2/2")
        await visitor.idle()


async def tab_backwards_to(page: Page, name: str) -> None:
    for _ in range(20):
        await page.keyboard.press("Shift+Tab")
        if await page.evaluate("document.activeElement.getAttribute('aria-label')") == name:
            return
    raise AssertionError(f"Shift+Tab does not reach {name}")


@pytest.mark.parametrize("late", ["hx-ws", "htmx.esm", "socket.js", "reply.js"])
async def test_a_script_that_comes_late_costs_no_connection(visitor: Visitor, late: str) -> None:
    async def slow(route: Route) -> None:
        await asyncio.sleep(0.5)
        await route.continue_()

    await visitor.page.route(re.compile(re.escape(late)), slow)
    await visitor.open("/")  # waits until it is connected


async def test_a_theme_that_was_chosen_stays(visitor: Visitor) -> None:
    page = visitor.page
    await page.emulate_media(color_scheme="light")
    await page.get_by_role("button", name="Account").click()
    await page.get_by_text("Dark", exact=True).click()
    dark = await page.evaluate("getComputedStyle(document.body).backgroundColor")
    await page.reload()
    assert await page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert await page.evaluate("getComputedStyle(document.body).backgroundColor") == dark
    await visitor.open("/account/")
    await expect(page.get_by_role("radio", name="Dark")).to_be_checked()
    assert await page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
    await page.get_by_role("radio", name="System").check()
    assert await page.evaluate("document.documentElement.dataset.theme") is None


async def test_on_a_phone_the_conversations_are_in_a_drawer(site: LiveSite, browser: Browser) -> None:
    async with visit(site, browser, "Ada", viewport=PHONE, has_touch=True) as visitor:
        page = visitor.page
        await expect(page.get_by_role("link", name="New chat")).to_be_hidden()
        await visitor.press("Conversations")
        await expect(page.get_by_role("link", name="New chat")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("link", name="New chat")).to_be_hidden()
        await visitor.draft.fill("word " * 30 + "w" * 300)
        await visitor.press("Send")
        await page.wait_for_url("**/c/conv_*")
        await visitor.reply_grows()
        stop = page.get_by_role("button", name="Stop")
        await expect(stop).to_be_in_viewport(ratio=1)  # nothing is wider than the screen
        assert await page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        await visitor.press("Stop")
        await visitor.idle()
        await page.locator("#title").click()
        assert await page.locator("#title-input").evaluate("(box) => box.scrollLeft") == 0  # it starts at its start
        await expect(page.locator("#model-button")).to_be_hidden()
        await page.keyboard.press("Escape")
        site.execute("UPDATE inference_replica SET id = %s WHERE model_id = %s", new_id(), LOADING_MODEL)
        await wait_until(lambda: site.readiness()["models"][LOADING_MODEL] == "loading", 15)
        loading = site.call("Ada", "POST", "/v1/conversations", {"model": LOADING_MODEL, "title": "A long title " * 5})
        await visitor.open(f"/c/{loading['id']}")
        await expect(page.locator("#model-state")).to_have_text("loading")
        assert await page.locator("#model-title").evaluate("(name) => name.scrollWidth <= name.clientWidth")


async def test_the_api_reference_follows_the_theme(visitor: Visitor) -> None:
    page = visitor.page
    ground = "getComputedStyle(document.querySelector('.swagger-ui')).backgroundColor"
    await page.emulate_media(color_scheme="dark")
    await page.goto(f"{visitor.site.url}/docs/")
    await page.locator(".opblock").first.wait_for()
    assert await page.evaluate(ground) == "rgb(23, 25, 28)"
    await page.evaluate("localStorage.setItem('theme', 'light')")
    await page.reload()
    await page.locator(".opblock").first.wait_for()
    assert await page.evaluate("document.documentElement.classList.contains('dark-mode')") is False
    await page.get_by_role("link", name="Back to chat").click()
    await expect(visitor.draft).to_be_visible()


FIRST_AND_LAST = """(element) => {
  const text = element.firstChild;
  return [0, text.length - 1].map((at) => {
    const range = document.createRange();
    range.setStart(text, at);
    range.setEnd(text, at + 1);
    return range.getBoundingClientRect().left;
  });
}"""


async def test_arabic_is_read_from_its_own_side_wherever_it_stands(visitor: Visitor) -> None:
    page = visitor.page
    text = "\u0643\u064a\u0641 \u0627\u0644\u062d\u0627\u0644!"
    await visitor.open(f"/c/{visitor.site.say('Ada', text, text)}")
    for place in (".bubble", ".prose p", "#title", ".row .name"):
        first, last = await page.locator(place).first.evaluate(FIRST_AND_LAST)
        assert last < first, place  # the mark at its end stands at the left
