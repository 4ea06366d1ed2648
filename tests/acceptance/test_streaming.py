"""A reply as it streams into the page: it grows, stops, fails, and survives every kind of drop."""

import asyncio
import re

import pytest
from playwright.async_api import Page, WebSocketRoute, expect

from tests.acceptance.browsing import LAST_REPLY, Visitor
from tests.acceptance.live_site import NEWEST
from tests.waiting import wait_until

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]
STORED = f"SELECT content FROM conversations_message WHERE id = ({NEWEST})"
OWN = "SELECT content FROM conversations_message WHERE role = 'user' ORDER BY id"


async def begin(visitor: Visitor, text: str) -> str:
    """A conversation whose first reply streams: what is shown of it."""
    await visitor.send(text)
    await visitor.page.wait_for_url("**/c/conv_*")
    return await visitor.reply_grows(beyond=20)


async def end(visitor: Visitor) -> None:
    await visitor.press("Stop")
    await visitor.idle()


async def test_a_message_is_answered_stopped_regenerated_and_continued(visitor: Visitor) -> None:
    page = visitor.page
    first = await begin(visitor, "Tell me about waves")
    second = await visitor.reply_grows(beyond=len(first))
    assert second.startswith(first)  # S6: it grows, and nothing is sent or shown twice
    await expect(visitor.draft).to_have_value("")
    await visitor.press("Stop")
    await visitor.sees("Stopped")
    await visitor.idle()
    await wait_until(lambda: visitor.site.engine("state")["running"] == 0, 1.5)  # S10
    kept = await visitor.reply()
    assert kept.startswith(second)

    await visitor.press("Regenerate")
    await visitor.reply_grows()
    await visitor.press("Stop")
    await visitor.sees("2/2")
    await visitor.press("Previous version")  # S16
    await visitor.sees("1/2")
    assert await visitor.reply() == kept

    visitor.site.engine("options", stop=0.2)
    await visitor.press("Continue")
    await visitor.idle()
    assert (await visitor.reply()).startswith(kept)  # S15
    await expect(page.locator("#conversations")).to_contain_text("Tell me about waves")


async def test_a_failed_reply_keeps_its_text_and_says_why(visitor: Visitor) -> None:
    visitor.site.engine("faults", stream="error", after=12)
    await visitor.send("Fail for me")
    await expect(visitor.page.locator(f"{LAST_REPLY} .why")).to_be_visible(timeout=30_000)
    assert await visitor.reply()
    visitor.site.engine("reset")
    visitor.site.engine("options", stop=0.3)
    await visitor.press("Regenerate")
    await visitor.sees("2/2")
    await visitor.idle()


async def test_enter_pressed_twice_sends_once(visitor: Visitor) -> None:
    page = visitor.page
    thrice = "() => { for (let i = 0; i < 3; i += 1) document.getElementById('composer').requestSubmit(); }"
    for text in ("Once only", "Once more"):
        await visitor.draft.fill(text)
        await page.evaluate(thrice)
        await page.wait_for_url("**/c/conv_*")
        await visitor.sees(text)
        await end(visitor)
    assert visitor.site.execute(OWN) == [("Once only",), ("Once more",)]


async def test_s8_a_dropped_connection_goes_on_where_it_was(visitor: Visitor) -> None:
    page = visitor.page
    seen = await begin(visitor, "Count the stars")
    await page.evaluate("document.querySelector('#chat')._htmx.ws.connection.socket.close()")
    await expect(page.locator("#connection")).to_contain_text("reconnecting")
    await visitor.reply_grows(beyond=len(seen) + 60)
    await expect(page.locator("#connection")).to_be_hidden()
    await end(visitor)
    [[stored]] = visitor.site.execute(STORED)
    assert (await visitor.reply()).split() == stored.split()


async def test_s8_a_tab_that_slept_replaces_its_dead_connection(visitor: Visitor) -> None:
    page = visitor.page
    seen = await begin(visitor, "Count the stars")
    async with page.expect_websocket():
        await page.evaluate(
            """() => {
              const now = Date.now;
              Date.now = () => now() + 60_000;
              document.dispatchEvent(new Event("visibilitychange"));
            }"""
        )
    await visitor.reply_grows(beyond=len(seen) + 20)
    await end(visitor)
    [[stored]] = visitor.site.execute(STORED)
    assert (await visitor.reply()).split() == stored.split()


async def test_s8_a_connection_that_dies_in_silence_is_noticed(visitor: Visitor) -> None:
    """As behind a proxy that forgot it: open on both ends, and nothing comes. The page's clock runs faster."""
    page = visitor.page
    silent = Silence()
    await page.route_web_socket(re.compile("/ws/"), silent.pass_on)
    await page.clock.install()
    await begin(visitor, "Count the stars")
    silent.now = True
    seen = await visitor.reply()
    await page.clock.run_for(40_000)
    await wait_until(lambda: silent.connections > 1, 10)
    silent.now = False
    await page.clock.resume()
    await visitor.reply_grows(beyond=len(seen) + 20)
    await end(visitor)
    [[stored]] = visitor.site.execute(STORED)
    assert (await visitor.reply()).split() == stored.split()


class Silence:
    """Stands between page and server, and swallows what the server says on connections from before `now` ended."""

    def __init__(self) -> None:
        self.now = False
        self.connections = 0

    def pass_on(self, page: WebSocketRoute) -> None:
        self.connections += 1
        server = page.connect_to_server()
        page.on_message(server.send)
        server.on_message(lambda message: None if self.now else page.send(message))


async def test_s4_the_server_restarts_and_the_reply_goes_on(visitor: Visitor) -> None:
    page, site = visitor.page, visitor.site
    seen = await begin(visitor, "Count the grains of sand")
    await asyncio.to_thread(site.end, "web")
    await expect(page.locator("#connection")).to_contain_text("reconnecting")
    await asyncio.to_thread(site.start_again, "web")
    await expect(page.locator("#connection")).to_be_hidden(timeout=15_000)
    await visitor.reply_grows(beyond=len(seen) + 20)
    await end(visitor)
    [[stored]] = site.execute(STORED)
    assert (await visitor.reply()).split() == stored.split()
    visitor.complaints.clear()  # the browser calls each refused connection an error


async def test_offline_says_that_the_reply_goes_on(visitor: Visitor) -> None:
    page = visitor.page
    await begin(visitor, "Count the clouds")
    await page.context.set_offline(True)
    await page.evaluate("document.querySelector('#chat')._htmx.ws.connection.socket.close()")
    await expect(page.locator("#connection")).to_contain_text("You are offline. The reply goes on")
    await asyncio.sleep(0)
    await page.context.set_offline(False)
    await expect(page.locator("#connection")).to_be_hidden(timeout=15_000)
    await end(visitor)
    [[stored]] = visitor.site.execute(STORED)
    assert (await visitor.reply()).split() == stored.split()
    visitor.complaints.clear()


async def test_s36_a_screen_reader_hears_the_beginning_and_the_end_only(visitor: Visitor) -> None:
    page = visitor.page
    await page.evaluate(
        """() => {
          window.heard = [];
          const announcer = document.getElementById("announcer");
          const listen = () => announcer.textContent && heard.push(announcer.textContent);
          new MutationObserver(listen).observe(announcer, {childList: true});
        }"""
    )
    visitor.site.engine("options", stop=0.05)
    await visitor.send("Speak up")
    await page.wait_for_function("() => heard.length > 1")
    await visitor.idle()
    assert await page.evaluate("heard") == ["Replying", " ".join((await visitor.reply()).split())]
    assert await page.locator("[aria-live]:has(.turn), [role=log]").count() == 0


async def follows(page: Page) -> bool:
    """Whether the end of the conversation is in view."""
    return bool(
        await page.evaluate(
            "(() => { const b = document.getElementById('scroll');"
            " return b.scrollHeight - b.scrollTop - b.clientHeight < 60; })()"
        )
    )


async def test_the_view_follows_only_from_the_bottom(visitor: Visitor) -> None:
    page = visitor.page
    visitor.site.engine("options", tokens_per_second=120)
    await begin(visitor, "Go on and on")
    await visitor.reply_grows(beyond=3000)
    assert await follows(page)
    await expect(page.get_by_role("button", name="Jump to latest")).to_be_hidden()
    await page.mouse.move(640, 300)
    await page.mouse.wheel(0, -600)
    latest = page.get_by_role("button", name="Jump to latest")
    await expect(latest).to_be_visible()
    place = await page.locator("#scroll").evaluate("(box) => box.scrollTop")
    await visitor.reply_grows(beyond=len(await visitor.reply()) + 200)
    assert await page.locator("#scroll").evaluate("(box) => box.scrollTop") == place  # nothing jumps
    await latest.click()
    await expect(latest).to_be_hidden()
    await wait_until(lambda: follows(page))
    await end(visitor)
