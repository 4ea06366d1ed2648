"""A wait shows its place, can be given up, and can be cut short by taking a smaller model."""

import re

import pytest
from playwright.async_api import expect

from tests.acceptance.browsing import Visitor
from tests.acceptance.live_site import LARGE_MODEL

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]
LAST = "SELECT model_id, status FROM conversations_message WHERE role = 'assistant' ORDER BY id DESC LIMIT 1"
PLACE = re.compile(r"(Next|\d+(st|nd|rd|th)) in line")


async def waits_for_the_large_model(visitor: Visitor) -> None:
    site = visitor.site
    site.engine("options", first_token_seconds=60)
    for text in ("One", "Two", "Three"):
        site.start_reply("Eve", text, model=LARGE_MODEL)
    conversation = site.call("Ada", "POST", "/v1/conversations", {"model": LARGE_MODEL})["id"]
    await visitor.open(f"/c/{conversation}")
    await visitor.send("How long?")
    await expect(visitor.page.locator("#thread")).to_contain_text(PLACE)


async def test_who_waits_sees_the_place_and_may_take_the_smaller_model(visitor: Visitor) -> None:
    site = visitor.site
    await waits_for_the_large_model(visitor)
    offer = visitor.page.get_by_role("button", name="Use SmolLM2 135M instead")
    await expect(offer).to_be_visible(timeout=15_000)
    site.engine("options", first_token_seconds=0.0, script="Here at once.")
    await offer.click()
    await visitor.sees("Here at once.")
    await visitor.idle()
    assert site.execute(LAST) == [("smollm2-135m", "complete")]


async def test_a_wait_is_given_up(visitor: Visitor) -> None:
    await waits_for_the_large_model(visitor)
    await visitor.press("Cancel")
    await visitor.idle()
    assert visitor.site.execute(LAST) == [(LARGE_MODEL, "stopped")]
