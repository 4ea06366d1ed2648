"""One site and one browser for all tests here; each test finds them as if it were the first."""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from tests.acceptance.browsing import Visitor, chromium, visit
from tests.acceptance.live_site import LiveSite, live_site


@pytest.fixture(scope="session")
def shared_site() -> Iterator[LiveSite]:
    with live_site() as site:
        yield site


@pytest.fixture
def site(shared_site: LiveSite) -> LiveSite:
    shared_site.forget()
    return shared_site


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="session")
async def visitor(site: LiveSite, browser: Browser) -> AsyncIterator[Visitor]:
    """Ada, signed in, who looks at an empty chat."""
    async with visit(site, browser, "Ada") as visitor:
        yield visitor


@pytest_asyncio.fixture(loop_scope="session")
async def another_tab(visitor: Visitor) -> AsyncIterator[Visitor]:
    """Of the same person, still empty."""
    tab = Visitor(visitor.site, await visitor.page.context.new_page())
    yield tab
    assert tab.complaints == []
