"""What a page does when the network, the browser or another tab is against it: nothing is lost or sent twice."""

import asyncio
import re

import pytest
from playwright.async_api import Browser, Page, Route, WebSocketRoute, expect

from tests.acceptance.asking import QUICK, asked, opens_conversation
from tests.acceptance.browsing import Visitor, as_account, visit
from tests.acceptance.live_site import LiveSite
from tests.waiting import wait_until

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]
SOCKETS = re.compile("/ws/")
WATCH_DELAYS = """() => {
  window.longest = 0;
  let last = performance.now();
  setInterval(() => {
    const now = performance.now();
    window.longest = Math.max(window.longest, now - last);
    last = now;
  }, 20);
}"""


class Network:
    """Between page and server. `deaf`: what the server answers to a message is lost, and the connection with it.
    `away`: no connection comes about. While it is not `passing` nothing comes through, and no connection opens."""

    def __init__(self) -> None:
        self.deaf = self.away = False
        self.passing = asyncio.Event()
        self.passing.set()
        self.connections = 0
        self._pages: list[WebSocketRoute] = []

    async def stand_between(self, page: Page) -> None:
        await page.route_web_socket(SOCKETS, self._handle)

    async def cut(self) -> None:
        for page in self._pages:
            await page.close(code=1001)
        self._pages.clear()

    async def _handle(self, page: WebSocketRoute) -> None:
        self.connections += 1
        if self.away:
            await page.close(code=1001)
            return
        if not self.passing.is_set():  # it is not open before this returns
            await self.passing.wait()
            await page.close(code=1001)
            return
        self._pages.append(page)
        server = page.connect_to_server()
        lost = False

        async def to_server(frame: str | bytes) -> None:
            nonlocal lost
            server.send(frame)
            if self.deaf and '"type":"send"' in str(frame):
                lost = True
                await self.cut()

        page.on_message(to_server)
        server.on_message(lambda frame: None if lost or not self.passing.is_set() else page.send(frame))


async def test_a_message_over_a_flapping_network_is_never_called_not_sent_and_written_once(visitor: Visitor) -> None:
    network = Network()
    await network.stand_between(visitor.page)
    await opens_conversation(visitor)
    visitor.site.engine("options", **QUICK)
    outgoing = visitor.page.locator("#outgoing")
    network.deaf = True
    before = network.connections
    await visitor.send("Only once")
    await expect(outgoing).to_contain_text("It is not known yet whether this was sent")
    await wait_until(lambda: network.connections >= before + 3, 15)
    await expect(outgoing).not_to_contain_text("Not sent.")
    assert await outgoing.get_by_role("button", name="Edit").count() == 0  # it would be written twice
    network.deaf = False
    await expect(visitor.page.locator("#outgoing .turn")).to_have_count(0)
    await visitor.idle()
    assert asked(visitor.site) == ["Shall we begin?", "Only once"]
    visitor.complaints.clear()


async def test_a_second_message_offline_is_told_of_the_first(visitor: Visitor) -> None:
    network = Network()
    await network.stand_between(visitor.page)
    await opens_conversation(visitor)
    visitor.site.engine("options", **QUICK)
    network.away = True
    await network.cut()
    await visitor.page.locator("#chat:not([data-connected])").wait_for()
    await visitor.send("First")
    await expect(visitor.page.get_by_text("Not sent yet")).to_be_visible()
    await visitor.send("Second")
    await expect(visitor.page.locator("#notice")).to_contain_text("Your last message is not confirmed yet")
    await expect(visitor.draft).to_have_value("Second")
    network.away = False
    await expect(visitor.page.locator("#outgoing .turn")).to_have_count(0, timeout=15_000)
    await expect(visitor.page.locator("#notice")).to_be_empty()
    assert asked(visitor.site) == ["Shall we begin?", "First"]
    visitor.complaints.clear()


async def loses_the_first_answer(page: Page, site: LiveSite, ids: list[str]) -> None:
    """The first new chat reaches the server, and its answer does not come back. `ids`: what was sent as `id`."""

    async def handle(route: Route) -> None:
        if route.request.method != "POST":
            await route.continue_()
            return
        ids.extend(re.findall(r"\bid=([0-9a-f-]{36})", route.request.post_data or ""))
        if len(ids) > 1:
            await route.continue_()
            return
        await route.fetch()
        await route.abort("connectionreset")

    await page.route(f"{site.url}/", handle)


async def test_a_new_chat_whose_answer_is_lost_is_sent_again_with_its_id(visitor: Visitor) -> None:
    page, ids = visitor.page, list[str]()
    visitor.site.engine("options", **QUICK)
    await loses_the_first_answer(page, visitor.site, ids)
    await visitor.send("Begin once")
    await expect(page.locator("#notice")).to_contain_text("It is not known whether this was sent")
    await expect(visitor.draft).to_have_value("Begin once")
    await visitor.open("/")  # also after leaving the page
    await expect(page.locator("#notice")).to_contain_text("Sending again is safe")
    await expect(visitor.draft).to_have_value("Begin once")
    await visitor.draft.press("Enter")
    await page.wait_for_url("**/c/conv_*")
    await visitor.idle()
    assert len(ids) == 2 and ids[0] == ids[1]
    assert asked(visitor.site) == ["Begin once"]
    await visitor.open("/")
    await expect(visitor.draft).to_have_value("")
    await expect(page.locator("#notice")).to_be_empty()
    visitor.complaints.clear()


async def test_a_tab_that_slept_leaves_no_draft_to_the_next_person(site: LiveSite, browser: Browser) -> None:
    async with as_account(site, browser, "Ada") as context:
        asleep = Visitor(site, await context.new_page())
        await asleep.open("/")
        await asleep.draft.fill("A secret of Ada's")
        await wait_until(lambda: asleep.page.evaluate("'chat:draft:new' in localStorage"))
        cookies = [{"name": name, "value": value, "url": site.url} for name, value in site.session("Eve").items()]
        await context.add_cookies(cookies)  # type: ignore[arg-type]
        awake = Visitor(site, await context.new_page())
        await awake.open("/")
        await expect(awake.draft).to_have_value("")
        await asleep.page.evaluate("window.dispatchEvent(new PageTransitionEvent('pagehide'))")
        await asleep.page.close()
        assert await awake.page.evaluate("Object.values(localStorage).filter((kept) => kept.includes('secret'))") == []
        await awake.page.reload()
        await expect(awake.draft).to_have_value("")


BLOCKED = """for (const name of ["localStorage", "sessionStorage"])
  Object.defineProperty(window, name, { get() { throw new DOMException("denied", "SecurityError"); } });"""
MISSING = (
    """for (const name of ["localStorage", "sessionStorage"]) Object.defineProperty(window, name, { value: null });"""
)
FULL = """Storage.prototype.setItem = () => { throw new DOMException("full", "QuotaExceededError"); };"""


@pytest.mark.parametrize("storage", [BLOCKED, MISSING, FULL], ids=["blocked", "missing", "full"])
async def test_without_storage_everything_is_sent(site: LiveSite, browser: Browser, storage: str) -> None:
    async with as_account(site, browser, "Ada") as context:
        await context.add_init_script(storage)
        visitor = Visitor(site, await context.new_page())
        await visitor.open("/")
        site.engine("options", **QUICK)
        await visitor.send("Anything kept?")
        await visitor.page.wait_for_url("**/c/conv_*")
        await visitor.idle()
        await visitor.send("And now?")
        await visitor.idle()
        await expect(visitor.page.locator("#outgoing .turn")).to_have_count(0)
        await visitor.page.locator("#sidebar-button").click()
        assert asked(site) == ["Anything kept?", "And now?"]
        assert visitor.complaints == []


async def test_s8_a_black_hole_is_said_and_left_as_soon_as_it_ends(visitor: Visitor) -> None:
    page, network, bar = visitor.page, Network(), visitor.page.locator("#connection")
    await network.stand_between(page)
    await page.clock.install()
    await opens_conversation(visitor)
    await visitor.send("Count the stars")
    await visitor.reply_grows(beyond=20)
    network.passing.clear()
    before = network.connections
    await page.clock.run_for(40_000)
    await expect(bar).to_contain_text("reconnecting")
    await page.clock.run_for(40_000)
    await wait_until(lambda: network.connections >= before + 3)
    network.passing.set()
    await page.clock.run_for(20_000)
    await page.clock.resume()
    await expect(bar).to_be_hidden()
    seen = await visitor.reply()
    await visitor.reply_grows(beyond=len(seen) + 20)
    await visitor.press("Stop")
    await visitor.idle()


async def test_a_fast_reply_is_followed_with_reduced_motion(site: LiveSite, browser: Browser) -> None:
    conversation = site.say("Ada", "Shall we begin?", "A line.\n\n" * 60)
    site.engine("options", script="A line of text.\n\n" * 200, tokens_per_second=400)
    size = {"width": 900, "height": 600}
    async with visit(site, browser, "Ada", f"/c/{conversation}", reduced_motion="reduce", viewport=size) as visitor:
        page = visitor.page
        await page.evaluate(
            """() => {
              window.lost = 0;
              const look = () => {
                window.lost += !document.getElementById("to-latest").hidden;
                requestAnimationFrame(look);
              };
              look();
            }"""
        )
        await visitor.send("Go on and on")
        await visitor.reply_grows(beyond=1500)
        await visitor.idle()
        assert await page.evaluate("lost") == 0
        box = page.locator("#scroll")
        below = "(box) => box.scrollHeight - box.scrollTop - box.clientHeight"
        await wait_until(lambda: box.evaluate(f"(box) => ({below})(box) < 60"))
        await page.mouse.move(450, 300)
        await page.mouse.wheel(0, -400)
        await expect(page.get_by_role("button", name="Jump to latest")).to_be_visible()


GROW = r"$$\def\a{" + "x" * 900 + r"}\def\b{" + r"\a" * 10 + "}" + r"\b" * 20 + "$$"
HARMLESS = "Euler: $e^{i\\pi}=-1$"


async def test_a_formula_that_grows_without_end_is_shown_as_it_was_written(visitor: Visitor) -> None:
    page = visitor.page
    conversation = visitor.site.say("Ada", "Formulas", f"{GROW}\n\n{HARMLESS}\n\n" + "$x_1$ " * 1_200)
    await visitor.open(f"/c/{conversation}")
    await page.evaluate(WATCH_DELAYS)
    await expect(page.locator(".math .katex").first).to_be_visible()
    await page.wait_for_function("() => document.querySelectorAll('.katex').length >= 1000", timeout=20_000)
    await expect(page.locator(".math.unset").first).to_contain_text(r"\def\a{xxx")
    assert await page.evaluate("longest") < 2_000  # the page went on answering; a machine under load is slow


AS_WRITTEN = "# A heading #\n\nAT&amp;T &lt;b&gt; and a<br>b, `&amp;`\n\nThe end of it.\n"


async def test_a_reply_looks_the_same_while_it_streams(visitor: Visitor) -> None:
    await opens_conversation(visitor)
    visitor.site.engine("options", script=AS_WRITTEN, tokens_per_second=30)
    await visitor.page.evaluate(
        """() => document.addEventListener("htmx:before:swap", () => {
          const streamed = document.querySelector('.turn[aria-busy="true"] .rendered');
          if (streamed?.textContent) window.streamed = streamed.innerText;
        })"""
    )
    await visitor.send("Say it")
    await visitor.sees("The end of it.")
    await visitor.idle()
    assert (await visitor.page.evaluate("streamed")).split() == (await visitor.reply()).split()
