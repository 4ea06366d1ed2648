"""A message on its way: there at once, kept when the connection is not, and never written twice."""

import asyncio
import re
from collections.abc import Callable

import pytest
from playwright.async_api import Browser, Route, WebSocketRoute, expect

from tests.acceptance.browsing import Visitor, visit
from tests.acceptance.live_site import LiveSite

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]
OWN = "SELECT content FROM conversations_message WHERE role = 'user' ORDER BY id"
QUICK = {"script": "Certainly.", "tokens_per_second": 0}


def asked(site: LiveSite) -> list[str]:
    return [content for (content,) in site.execute(OWN)]


async def opens_conversation(visitor: Visitor) -> None:
    await visitor.open(f"/c/{visitor.site.say('Ada', 'Shall we begin?', 'Certainly.')}")


def between(judge: Callable[[str, int], str]) -> Callable[[WebSocketRoute], None]:
    """Stands between page and server. `judge` gets each `send` frame and how many there were before: "pass", "cut" the
    connection under it, or pass it and cut before the answer ("deaf").
    """
    seen = 0

    def handle(page: WebSocketRoute) -> None:
        server = page.connect_to_server()
        deaf = False

        async def to_server(frame: str | bytes) -> None:
            nonlocal seen, deaf
            verdict = "pass"
            if '"type":"send"' in str(frame):
                verdict, seen = judge(str(frame), seen), seen + 1
            if verdict == "cut":
                await page.close(code=1011)
                return
            deaf = deaf or verdict == "deaf"
            server.send(frame)
            if verdict == "deaf":
                await asyncio.sleep(0.5)  # the server has it by then, whatever the page hears
                await page.close(code=1011)

        page.on_message(to_server)
        server.on_message(lambda frame: None if deaf else page.send(frame))

    return handle


async def test_a_message_is_in_the_thread_before_the_server_answers(visitor: Visitor) -> None:
    held: list[str] = []
    go_on = asyncio.Event()

    def handle(page: WebSocketRoute) -> None:
        server = page.connect_to_server()

        async def to_server(frame: str | bytes) -> None:
            if '"type":"send"' in str(frame):
                held.append(str(frame))
                await go_on.wait()
            server.send(frame)

        page.on_message(to_server)

    await visitor.page.route_web_socket(re.compile("/ws/"), handle)
    await opens_conversation(visitor)
    await visitor.send("Are you quick?")
    bubble = visitor.page.locator(".turn.user").filter(has_text="Are you quick?")
    await expect(bubble).to_be_visible()
    await expect(visitor.draft).to_have_value("")
    assert len(held) == 1
    assert asked(visitor.site) == ["Shall we begin?"]  # it was there before the server knew
    go_on.set()
    await expect(visitor.page.locator("#outgoing .turn")).to_have_count(0)
    await visitor.idle()
    await expect(bubble).to_have_count(1)
    assert asked(visitor.site) == ["Shall we begin?", "Are you quick?"]


async def test_the_first_message_is_there_before_its_conversation_is(visitor: Visitor) -> None:
    page = visitor.page
    go_on = asyncio.Event()

    async def hold(route: Route) -> None:
        if route.request.method == "POST":
            await go_on.wait()
        await route.continue_()

    await page.route(f"{visitor.site.url}/", hold)
    visitor.site.engine("options", **QUICK)
    await visitor.send("Hello there")
    await expect(page.locator(".turn.user")).to_have_text(re.compile("Hello there"))
    assert asked(visitor.site) == []
    go_on.set()
    await page.wait_for_url("**/c/conv_*")
    await visitor.idle()
    await expect(page.locator(".turn.user")).to_have_count(1)


@pytest.mark.parametrize("verdict", ["cut", "deaf"])
async def test_a_message_whose_connection_breaks_is_sent_again_and_written_once(visitor: Visitor, verdict: str) -> None:
    """Cut: the server never had it. Deaf: it has it, and the page did not hear of it."""
    handle = between(lambda frame, seen: "pass" if seen else verdict)
    await visitor.page.route_web_socket(re.compile("/ws/"), handle)
    await opens_conversation(visitor)
    await visitor.send("Did you get that?")
    bubble = visitor.page.locator(".turn.user").filter(has_text="Did you get that?")
    await expect(visitor.page.locator(".turn.sending")).to_have_count(0, timeout=15_000)
    await visitor.idle()
    await expect(bubble).to_have_count(1)
    await expect(visitor.page.locator("#outgoing .turn")).to_have_count(0)
    assert asked(visitor.site) == ["Shall we begin?", "Did you get that?"]
    visitor.complaints.clear()


async def test_a_message_that_does_not_come_through_says_so_and_goes_out_once(visitor: Visitor) -> None:
    broken = True
    handle = between(lambda frame, seen: "cut" if broken else "pass")
    await visitor.page.route_web_socket(re.compile("/ws/"), handle)
    await opens_conversation(visitor)
    await visitor.send("Anybody there?")
    await expect(visitor.page.locator("#outgoing")).to_contain_text(
        "not known yet whether this was sent", timeout=15_000
    )
    assert asked(visitor.site) == ["Shall we begin?"]
    broken = False
    await expect(visitor.page.locator("#outgoing .turn")).to_have_count(0, timeout=15_000)
    await visitor.idle()
    assert asked(visitor.site) == ["Shall we begin?", "Anybody there?"]
    visitor.complaints.clear()


async def test_what_was_written_offline_goes_out_by_itself(visitor: Visitor) -> None:
    await opens_conversation(visitor)
    await visitor.page.context.set_offline(True)
    await visitor.page.evaluate("document.querySelector('#chat')._htmx.ws.connection.socket.close()")
    await visitor.send("From the train")
    await expect(visitor.page.get_by_text("Not sent yet")).to_be_visible()
    await visitor.page.context.set_offline(False)
    await expect(visitor.page.locator("#outgoing .turn")).to_have_count(0, timeout=15_000)
    await visitor.idle()
    assert asked(visitor.site) == ["Shall we begin?", "From the train"]
    visitor.complaints.clear()


async def test_a_draft_is_kept_for_each_conversation_until_it_is_sent(visitor: Visitor) -> None:
    await opens_conversation(visitor)
    conversation = visitor.page.url
    await visitor.draft.fill("Half a thought")
    await visitor.page.reload()
    await expect(visitor.draft).to_have_value("Half a thought")
    await visitor.open("/")
    await expect(visitor.draft).to_have_value("")
    await visitor.page.goto(conversation)
    await expect(visitor.draft).to_have_value("Half a thought")
    await visitor.page.locator("#chat[data-connected]").wait_for()
    await visitor.draft.press("Enter")
    await visitor.idle()
    await visitor.page.reload()
    await expect(visitor.draft).to_have_value("")


async def test_a_refused_message_is_kept_with_the_reason(visitor: Visitor) -> None:
    await visitor.send("word " * 20_000)
    await expect(visitor.page.get_by_role("alert").first).to_contain_text("longer than the 4096 tokens")
    assert (await visitor.draft.input_value()).startswith("word word")
    assert asked(visitor.site) == []
    visitor.complaints.clear()  # the browser calls any answer of 400 an error


async def test_over_a_limit_the_wait_is_counted_down_and_the_message_kept(site: LiveSite, browser: Browser) -> None:
    site.engine("options", first_token_seconds=60)
    for text in ("One", "Two", "Three"):  # as many as the free plan allows
        site.start_reply("Finn", text)
    async with visit(site, browser, "Finn") as visitor:
        notice = visitor.page.locator("#notice")
        await visitor.send("Four")
        await expect(notice).to_contain_text("The free plan allows 3 replies at once")
        await expect(notice).to_contain_text("Try again in")
        await expect(notice.get_by_role("link", name="See your usage")).to_have_attribute("href", "/usage/#limits")
        await expect(visitor.draft).to_have_value("Four")
        await expect(visitor.page.locator("#meters")).not_to_contain_text("20,000 of 20,000")
        await expect(notice).not_to_contain_text("Try again in", timeout=10_000)
        visitor.complaints.clear()  # the browser calls any answer of 429 an error


async def test_a_megabyte_is_pasted_and_the_limit_is_said(visitor: Visitor) -> None:
    page = visitor.page
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await page.evaluate("navigator.clipboard.writeText('A line of text that goes on.\\n'.repeat(36_000))")
    await visitor.draft.focus()
    await page.keyboard.press("Control+V")
    await expect(page.locator("#notice")).to_contain_text("256")
    took = await page.evaluate(
        "new Promise((done) => { const start = performance.now(); setTimeout(() => done(performance.now() - start)); })"
    )
    assert took < 2000  # the page still answers
    await page.keyboard.press("Enter")
    await expect(page.locator("#notice")).to_contain_text("256")
    assert asked(visitor.site) == []


async def test_an_edited_message_is_a_version_of_its_own(visitor: Visitor) -> None:
    await opens_conversation(visitor)
    visitor.site.engine("options", script="As you wish.")
    await visitor.page.locator(".turn.user").hover()
    await visitor.press("Edit")
    box = visitor.page.locator(".turn.user textarea")
    await box.fill("Shall we start?")
    await visitor.press("Save & send")
    await visitor.sees("As you wish.")
    await visitor.idle()
    await visitor.sees("2/2")
    await visitor.page.locator(".turn.user").hover()
    await visitor.press("Previous version")
    await visitor.sees("Shall we begin?")
    await visitor.sees("Certainly.")
    assert asked(visitor.site) == ["Shall we begin?", "Shall we start?"]
