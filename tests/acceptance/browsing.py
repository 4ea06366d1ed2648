"""A person in a real Chromium, who looks at the page and not at the DOM where that can be avoided."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Locator, Page, async_playwright, expect

from tests.acceptance.live_site import LiveSite

Theme = Literal["light", "dark"]
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
CLOSE_SECONDS = 30
LAST_REPLY = "#thread .turn.assistant:last-child"
# Of a hidden element, innerText gives what is not shown.
SHOWN = """(reply) => [...document.querySelectorAll(`${reply} > .prose, ${reply} > .source`)]
  .filter((part) => part.checkVisibility()).map((part) => part.innerText).join("").trim()"""


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """The system's own where there is one, else the one that Playwright has installed."""
    async with async_playwright() as playwright:
        path = shutil.which("chromium")
        browser = await playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        await browser.close()


async def wear(page: Page, theme: Theme) -> None:
    """The page in light or dark, without movement. The admin's decides when it is loaded: it is told by its class."""
    await page.emulate_media(color_scheme=theme, reduced_motion="reduce")
    if "/admin/" in page.url:
        await page.evaluate("dark => document.documentElement.classList.toggle('dark', dark)", theme == "dark")


class Visitor:
    """One tab. Whatever the console calls an error is an error of the test."""

    def __init__(self, site: LiveSite, page: Page) -> None:
        self.site = site
        self.page = page
        self.complaints: list[str] = []
        page.set_default_timeout(15_000)  # a busy machine is no fault of the page
        page.on("console", self._listen)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _listen(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.complaints.append(message.text)

    async def open(self, path: str = "/") -> None:
        """Opens a page of the site and waits for its scripts, and its connection where it has one."""
        await self.page.goto(f"{self.site.url}{path}")
        await self.page.wait_for_load_state()
        if await self.page.locator("#chat").count():
            await self.page.locator("#chat[data-connected]").wait_for()

    async def sign_in(self, account: str) -> None:
        """As a person does, on the sign-in page."""
        who = self.site.accounts[account]
        await self.open("/accounts/login/")
        await self.page.get_by_label("Email").fill(who.email)
        await self.page.get_by_label("Password", exact=True).fill(who.password)
        await self.page.get_by_role("button", name="Sign in", exact=True).click()
        await expect(self.page.get_by_label("Message", exact=True)).to_be_visible()
        await self.page.wait_for_load_state()

    async def send(self, text: str) -> None:
        """With Enter; on a phone, where that breaks the line, with the button."""
        await self.draft.fill(text)
        if await self.page.evaluate("matchMedia('(pointer: coarse)').matches"):
            await self.press("Send")
        else:
            await self.page.keyboard.press("Enter")

    @property
    def draft(self) -> Locator:
        """The message box."""
        return self.page.get_by_label("Message", exact=True)

    async def press(self, name: str) -> None:
        await self.page.get_by_role("button", name=name, exact=True).click()

    async def sees(self, text: str) -> None:
        await expect(self.page.locator("#thread")).to_contain_text(text)

    async def reply(self) -> str:
        """The last reply's text as it is shown, without the line below it."""
        return str(await self.page.evaluate(f"() => ({SHOWN})({LAST_REPLY!r})"))

    async def reply_grows(self, beyond: int = 0) -> str:
        """Waits until the last reply, still running, has more than `beyond` characters."""
        running = f"{LAST_REPLY}[aria-busy=true]"
        await self.page.wait_for_function(f"(beyond) => ({SHOWN})({running!r}).length > beyond", arg=beyond)
        return await self.reply()

    async def idle(self) -> None:
        """Waits until no reply runs."""
        await expect(self.page.get_by_role("button", name="Send")).to_be_visible(timeout=20_000)
        await expect(self.page.locator("[aria-busy=true]")).to_have_count(0)


@asynccontextmanager
async def as_account(
    site: LiveSite, browser: Browser, account: str | None, **options: Any
) -> AsyncIterator[BrowserContext]:
    """A browser of its own, signed in already. `options`: those of Playwright's contexts."""
    context = await browser.new_context(**options)
    try:
        if account is not None:
            cookies = site.session(account).items()
            await context.add_cookies([{"name": name, "value": value, "url": site.url} for name, value in cookies])
        yield context
    finally:
        async with asyncio.timeout(CLOSE_SECONDS):  # a browser that hangs fails one test, and does not stop them all
            await context.close()


@asynccontextmanager
async def visit(
    site: LiveSite, browser: Browser, account: str | None, path: str = "/", **options: Any
) -> AsyncIterator[Visitor]:
    """Somebody with that page open; nobody signed in without an account. Fails if the console has an error."""
    async with as_account(site, browser, account, **options) as context:
        visitor = Visitor(site, await context.new_page())
        await visitor.open(path)
        yield visitor
        assert visitor.complaints == []
