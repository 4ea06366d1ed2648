"""Script and HTML wherever people and models write: shown as text, and run by nobody."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from tests.acceptance.browsing import LAST_REPLY, Visitor, visit
from tests.acceptance.live_site import NEWEST, LiveSite
from tests.acceptance.scenes.admin import opens

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]
SCRIPT = "<script>window.ran = 1</script><img src=x onerror='window.ran = 1'>"
DANGEROUS = ":is(script, img, iframe, [onerror], [onclick], [href^=javascript], [data-hx-get], [hx-get]:not(button))"
HOSTILE = """<script>window.ran = 1</script><img src=x onerror="window.ran = 1">

[link](javascript:window.ran=1) ![picture](https://example.org/x.png)
[data](data:text/html,<script>window.ran=1</script>)

```html"onmouseover="window.ran=1
<script>window.ran = 1</script>
```

**bold** <div data-hx-get="/" data-hx-trigger="load">x</div> <a href="javascript:window.ran=1">a</a>
$\\href{javascript:window.ran=1}{x}$

<hx-partial hx-target="#title">stolen</hx-partial> <meta http-equiv="refresh" content="0;url=https://example.org/">
"""


@pytest_asyncio.fixture(loop_scope="session")
async def watched(visitor: Visitor) -> AsyncIterator[Visitor]:
    """Nothing may run, and nothing may be fetched from elsewhere."""
    requests: list[str] = []
    visitor.page.on("request", lambda request: requests.append(request.url))
    yield visitor
    assert await visitor.page.evaluate("window.ran") is None
    assert [url for url in requests if not url.startswith((visitor.site.url, "data:", "blob:"))] == []


async def test_s34_nothing_in_a_message_or_reply_runs(watched: Visitor) -> None:
    page = watched.page
    watched.site.engine("options", script=HOSTILE, tokens_per_second=40)
    watched.site.engine("faults", stream="stall", after=len(HOSTILE.split()))
    await watched.send(HOSTILE)
    await page.wait_for_url("**/c/conv_*")
    await expect(page.locator(".bubble")).to_contain_text("<script>window.ran = 1</script>")
    await expect(page.locator(f"{LAST_REPLY} .rendered strong")).to_have_text("bold")  # while it streams
    assert await page.locator(f"{LAST_REPLY} {DANGEROUS}").count() == 0
    await watched.press("Stop")
    await watched.idle()
    await expect(page.locator(f"{LAST_REPLY} strong")).to_have_text("bold")  # when it has ended
    assert await page.locator(f"#thread {DANGEROUS}").count() == 0
    await page.reload()
    await expect(page.locator(f"{LAST_REPLY} strong")).to_have_text("bold")  # when it is opened again
    assert await page.locator(f"#thread {DANGEROUS}").count() == 0
    await expect(page.locator("#title")).not_to_have_text("stolen")


async def test_s34_a_title_is_text_wherever_it_is_shown(watched: Visitor) -> None:
    site, page = watched.site, watched.page
    conversation = site.say("Ada", "What is a title?", "A name.")
    site.call("Ada", "PATCH", f"/v1/conversations/{conversation}", {"title": SCRIPT})
    await watched.open(f"/c/{conversation}")
    await expect(page.locator("#title")).to_have_text(SCRIPT)
    await expect(page).to_have_title(SCRIPT)
    await expect(page.locator("#conversations .name")).to_have_text(SCRIPT)
    await page.locator("#conversations .row").hover()
    await page.locator("#conversations .row-actions").click()
    await watched.press("Delete")
    await expect(page.locator("#delete-title")).to_have_text(SCRIPT)
    await page.keyboard.press("Escape")
    await page.get_by_label("Search conversations").fill("<script>window")
    await expect(page.locator("#found .name")).to_have_text(SCRIPT)
    await page.locator("#share-button").click()
    await watched.press("Create link")
    await page.goto(await page.get_by_role("dialog").get_by_role("textbox").input_value())
    await expect(page.get_by_role("heading", level=1)).to_have_text(SCRIPT)
    assert await page.locator(f"main {DANGEROUS}").count() == 0


async def test_s34_a_name_and_a_keys_name_are_text(watched: Visitor) -> None:
    page = watched.page
    await watched.open("/account/")
    try:
        await page.locator("#profile").get_by_label("Name").fill(SCRIPT)
        await watched.press("Save name")
        await expect(page.locator("#profile").get_by_label("Name")).to_have_value(SCRIPT)
        await watched.open("/account/keys/new")
        await page.get_by_label("Name", exact=True).fill(SCRIPT)
        await watched.press("Create key")
        await expect(page.locator("main strong")).to_have_text(SCRIPT)
        await watched.open("/account/")
        await expect(page.locator("#keys strong").filter(has_text="window.ran")).to_have_text(SCRIPT)
        await watched.open("/")
        await expect(page.locator(".greeting h2")).to_contain_text(SCRIPT[:30])
        await expect(page.locator("#account-button .name")).to_have_text(SCRIPT)
        assert await page.locator("#account-button :is(script, img)").count() == 0
    finally:
        watched.site.execute("UPDATE accounts_user SET name = 'Ada' WHERE name = %s", SCRIPT)
        watched.site.execute("DELETE FROM accounts_apikey WHERE name = %s", SCRIPT)


async def test_s34_the_admin_shows_what_people_wrote_as_text(site: LiveSite, browser: Browser) -> None:
    conversation = site.say("Ada", HOSTILE, HOSTILE)
    site.call("Ada", "PATCH", f"/v1/conversations/{conversation}", {"title": SCRIPT})
    async with visit(site, browser, "demo") as staff:
        await opens(staff, "conversations/conversation/")
        await opens(staff, f"conversations/conversation/{conversation[5:]}/read/")
        await staff.page.get_by_label("Reason").fill(f"Ticket 1: {SCRIPT}")
        await staff.press("Read the text")
        await expect(staff.page.get_by_text("window.ran = 1").first).to_be_visible()
        assert await staff.page.locator(".said :is(script, img, a)").count() == 0
        assert await staff.page.evaluate("window.ran") is None


@pytest.mark.parametrize(
    "path", ["/c/conv_<script>", "/s/<script>alert(1)</script>", "/search?q=<script>", "/c/%00", "/%ff"]
)
async def test_s34_addresses_are_not_echoed_as_html(visitor: Visitor, path: str) -> None:
    answer = await visitor.page.request.get(f"{visitor.site.url}{path}")
    assert answer.status < 500
    assert "<script>" not in (await answer.text()).replace("<script src", "").replace("<script type", "")


async def test_a_message_of_control_characters_and_directions_stays_in_its_bubble(watched: Visitor) -> None:
    text = "a\u202eb\u0000c\r\nd\u200b\ud7ff e"
    await watched.send(text.replace("\u0000", ""))
    await watched.page.wait_for_url("**/c/conv_*")
    await watched.sees("d")
    await watched.press("Stop")
    await watched.idle()
    assert watched.site.execute(f"SELECT status FROM conversations_message WHERE id = ({NEWEST})") == [("stopped",)]
