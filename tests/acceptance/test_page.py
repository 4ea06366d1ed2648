"""The page in a real browser, against real processes and a fake engine."""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from tests.acceptance.browsing import LAST_REPLY, Visitor, chromium
from tests.acceptance.live_site import LiveSite, live_site
from tests.waiting import wait_until

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]
NEWEST = "SELECT id FROM conversations_message ORDER BY id DESC LIMIT 1"
DANGEROUS = ":is(script, img, [onerror], [href^=javascript], [data-hx-get])"
PACE = {"tokens_per_second": 40, "first_token_seconds": 0.0, "stop": 0.0}
HOSTILE = """<script>window.ran = 1</script><img src=x onerror="window.ran = 1">

[link](javascript:window.ran=1) ![picture](https://example.org/x.png)

```html
<script>window.ran = 1</script>
```

**bold** <div data-hx-get="/" data-hx-trigger="load">x</div>
"""


@pytest.fixture(scope="module")
def site() -> Iterator[LiveSite]:
    with live_site() as site:
        yield site


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="module")
async def visitor(site: LiveSite, browser: Browser) -> AsyncIterator[Visitor]:
    """Somebody who has signed in and looks at an empty chat."""
    site.engine("reset")
    site.engine("options", **PACE)
    async with await browser.new_context() as context:
        visitor = Visitor(site, await context.new_page())
        await visitor.sign_in()
        yield visitor
        assert visitor.complaints == []


@pytest_asyncio.fixture(loop_scope="module")
async def another_tab(visitor: Visitor) -> AsyncIterator[Visitor]:
    tab = Visitor(visitor.site, await visitor.page.context.new_page())
    yield tab
    assert tab.complaints == []


async def test_a_message_is_answered_stopped_regenerated_and_continued(visitor: Visitor) -> None:
    page = visitor.page
    await visitor.send("Tell me about waves")
    await page.wait_for_url("**/c/conv_*")
    first = await visitor.reply_grows()
    second = await visitor.reply_grows(beyond=len(first))
    assert second.startswith(first)  # S6: it grows, and nothing is sent or shown twice
    await expect(page.get_by_label("Message")).to_have_value("")
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


async def test_s1_a_refresh_and_a_second_tab_see_all_of_a_running_reply_once(
    visitor: Visitor, another_tab: Visitor
) -> None:
    await visitor.send("Count the waves")
    await visitor.reply_grows(beyond=40)
    await visitor.page.reload()
    await another_tab.page.goto(visitor.page.url)
    seen = await visitor.reply_grows(beyond=80)
    await another_tab.reply_grows(beyond=len(seen))
    await another_tab.press("Stop")  # S13: from any tab
    await visitor.idle()
    await another_tab.idle()
    [[stored]] = visitor.site.execute(f"SELECT content FROM conversations_message WHERE id = ({NEWEST})")
    for tab in (visitor, another_tab):
        assert (await tab.reply()).split() == stored.split()

    visitor.site.engine("options", stop=0.2)
    await another_tab.send("And again")
    await visitor.sees("And again")  # the other tab hears of it
    await visitor.idle()
    assert await visitor.reply() == await another_tab.reply()


async def test_s8_a_dropped_connection_goes_on_where_it_was(visitor: Visitor) -> None:
    page = visitor.page
    await visitor.send("Count the stars")
    seen = await visitor.reply_grows(beyond=20)
    await page.evaluate("document.querySelector('#chat')._htmx.ws.connection.socket.close()")
    await expect(page.locator("#connection")).to_contain_text("reconnecting")
    await visitor.reply_grows(beyond=len(seen) + 60)
    await expect(page.locator("#connection")).to_be_hidden()

    seen = await visitor.reply()
    async with page.expect_websocket():  # one that has died without a word is replaced
        await page.evaluate(
            """() => {
              const now = Date.now;
              Date.now = () => now() + 60_000;
              document.dispatchEvent(new Event("visibilitychange"));
            }"""
        )
    await visitor.reply_grows(beyond=len(seen) + 20)
    await visitor.press("Stop")
    await visitor.idle()
    [[stored]] = visitor.site.execute(f"SELECT content FROM conversations_message WHERE id = ({NEWEST})")
    assert (await visitor.reply()).split() == stored.split()


async def test_s34_nothing_in_a_message_or_reply_runs(visitor: Visitor) -> None:
    page = visitor.page
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    await visitor.send(HOSTILE)
    await page.wait_for_url("**/c/conv_*")
    await visitor.reply_grows()
    await expect(page.locator(".bubble")).to_contain_text("<script>window.ran = 1</script>")

    # While it streams: as if the model had written it.
    await page.evaluate(
        """([selector, text]) => {
          const delta = document.createElement("span");
          delta.dataset.cursor = document.querySelector(selector).dataset.cursor;
          delta.textContent = text;
          document.querySelector(`${selector} > .source`).append(delta);
        }""",
        [LAST_REPLY, f"\n\n{HOSTILE}"],
    )
    await expect(page.locator(f"{LAST_REPLY} .rendered strong")).to_have_text("bold")
    assert await page.locator(f"{LAST_REPLY} {DANGEROUS}").count() == 0
    await visitor.press("Stop")
    await visitor.idle()

    # When it is finished, as the server renders it.
    visitor.site.execute(f"UPDATE conversations_message SET content = %s WHERE id = ({NEWEST})", HOSTILE)
    await page.reload()
    await expect(page.locator(f"{LAST_REPLY} strong")).to_have_text("bold")
    assert await page.locator(f"{LAST_REPLY} {DANGEROUS}").count() == 0
    assert await page.evaluate("window.ran") is None
    assert not [url for url in requests if "example.org" in url]


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


async def test_a_refused_message_is_kept_with_the_reason(visitor: Visitor) -> None:
    await visitor.send("word " * 20_000)
    await expect(visitor.page.get_by_role("alert")).to_contain_text("longer than the 4096 tokens")
    assert (await visitor.page.get_by_label("Message").input_value()).startswith("word word")
    assert not visitor.site.execute("SELECT 1 FROM conversations_conversation WHERE title LIKE 'word%%'")
    visitor.complaints.clear()  # the browser calls any answer of 400 an error


async def test_on_a_phone_the_conversations_are_in_a_drawer(site: LiveSite, browser: Browser) -> None:
    async with await browser.new_context(viewport={"width": 390, "height": 780}, has_touch=True) as context:
        visitor = Visitor(site, await context.new_page())
        await visitor.sign_in()
        page = visitor.page
        await expect(page.get_by_role("link", name="New chat")).to_be_hidden()
        await visitor.press("Conversations")
        await expect(page.get_by_role("link", name="New chat")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("link", name="New chat")).to_be_hidden()
        await page.get_by_label("Message").fill("word " * 30 + "w" * 300)
        await visitor.press("Send")
        await page.wait_for_url("**/c/conv_*")
        await visitor.reply_grows()
        await expect(page.get_by_role("button", name="Stop")).to_be_in_viewport(
            ratio=1
        )  # nothing is wider than the screen
        assert await page.evaluate("document.documentElement.scrollWidth") <= 390
        await visitor.press("Stop")
        await visitor.idle()
        assert visitor.complaints == []


async def test_enter_pressed_twice_sends_once(visitor: Visitor) -> None:
    page = visitor.page
    before = len(visitor.site.execute("SELECT id FROM conversations_message"))
    await page.get_by_label("Message").fill("Once only")
    await page.evaluate("() => { for (let i = 0; i < 3; i += 1) document.getElementById('composer').requestSubmit(); }")
    await page.wait_for_url("**/c/conv_*")
    await visitor.press("Stop")
    await visitor.idle()
    await page.get_by_label("Message").fill("Once more")
    await page.evaluate("() => { for (let i = 0; i < 3; i += 1) document.getElementById('composer').requestSubmit(); }")
    await visitor.sees("Once more")
    await visitor.press("Stop")
    await visitor.idle()
    assert len(visitor.site.execute("SELECT id FROM conversations_message")) == before + 4


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
