"""Every page and state as a named scene, for the accessibility checks and the screenshots.

A scene brings a page to a state by what a person does, what the engine answers, and what is in the database.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from playwright.async_api import Browser

from tests.acceptance.browsing import Theme, Visitor, as_account
from tests.acceptance.live_site import LiveSite

PHONE: Final = {"width": 390, "height": 780}
DESKTOP: Final = {"width": 1280, "height": 800}
VIEWPORTS: Final = {"phone": PHONE, "desktop": DESKTOP}
THEMES: Final[tuple[Theme, ...]] = ("light", "dark")
Bring = Callable[[Visitor], Awaitable[None]]


@dataclass(frozen=True)
class Scene:
    """`account` None: nobody is signed in. `viewports`: where the state exists."""

    name: str
    bring: Bring
    account: str | None
    viewports: tuple[str, ...]


SCENES: list[Scene] = []


def scene(
    *, account: str | None = "Ada", viewports: tuple[str, ...] = tuple(VIEWPORTS), name: str = ""
) -> Callable[[Bring], Bring]:
    """Adds a scene; its name is the function's."""

    def add(bring: Bring) -> Bring:
        SCENES.append(Scene(name or bring.__name__.replace("_", "-"), bring, account, viewports))
        return bring

    return add


@asynccontextmanager
async def stage(
    site: LiveSite, browser: Browser, scene: Scene, viewport: str, theme: str = "light"
) -> AsyncIterator[Visitor]:
    """The scene, in a browser of its own. What the console says is not looked at: some scenes are made of errors."""
    site.forget()
    options = {
        "viewport": VIEWPORTS[viewport],
        "color_scheme": theme,
        "has_touch": viewport == "phone",
        "device_scale_factor": 1,
        "reduced_motion": "reduce",
    }
    async with as_account(site, browser, scene.account, **options) as context:
        visitor = Visitor(site, await context.new_page())
        await scene.bring(visitor)
        yield visitor
