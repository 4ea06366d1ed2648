"""A message that the server refused is sent again by a person only, and says once when that is possible."""

import json
import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import pytest
from playwright.async_api import Locator, Route, WebSocketRoute, expect

from conversations.frames import refusal
from inference.errors import HighDemand
from inference.models import Model
from tests.acceptance.browsing import Visitor
from tests.acceptance.live_site import LARGE_MODEL, MODEL
from tests.acceptance.test_sending import asked, opens_conversation

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]
SMALLER = {"name": MODEL, "title": "SmolLM2 135M"}
LAST = "SELECT model_id FROM conversations_message WHERE role = 'assistant' ORDER BY id DESC LIMIT 1"
AGAIN = re.compile(r"Try again in \d+ s\.")


def refusing(frames: list[Any], refuses: Callable[[], bool], **about: Any) -> Callable[[WebSocketRoute], None]:
    """Stands between page and server, and refuses messages; `frames`: those that were sent."""

    def handle(page: WebSocketRoute) -> None:
        server = page.connect_to_server()

        def pass_on(frame: str | bytes) -> None:
            if '"type":"send"' not in str(frame):
                server.send(frame)
                return
            frames.append(json.loads(frame))
            if refuses():
                told = {"type": "refused", "id": frames[-1]["id"], "code": "high_demand"}
                page.send(json.dumps(told | {"message": "High demand on the free plan."} | about))
            else:
                server.send(frame)

        page.on_message(pass_on)

    return handle


async def is_refused_once(visitor: Visitor) -> Locator:
    outgoing = visitor.page.locator("#outgoing")
    await expect(outgoing).to_contain_text(AGAIN)
    assert len(AGAIN.findall(await outgoing.inner_text())) == 1
    await expect(outgoing.get_by_role("button", name="Retry")).to_be_disabled()
    return outgoing


async def test_a_refused_message_is_not_sent_by_itself(visitor: Visitor) -> None:
    frames: list[Any] = []
    refused = True
    handle = refusing(frames, lambda: refused, retry_after=5)
    await visitor.page.route_web_socket(re.compile("/ws/"), handle)
    await opens_conversation(visitor)
    address = visitor.page.url.removeprefix(visitor.site.url)
    await visitor.send("Too many of us")
    await is_refused_once(visitor)
    for path in (address, "/", address):  # loaded anew while it waits, and from another page
        await visitor.open(path)
    outgoing = await is_refused_once(visitor)
    await expect(outgoing).to_contain_text("Not sent. High demand on the free plan.")
    retry = outgoing.get_by_role("button", name="Retry")
    await expect(retry).to_be_enabled(timeout=10_000)
    await expect(outgoing).not_to_contain_text("Try again in")
    await visitor.open(address)
    await expect(retry).to_be_enabled()
    assert len(frames) == 1
    assert asked(visitor.site) == ["Shall we begin?"]
    refused = False
    await retry.click()
    await expect(visitor.page.locator("#outgoing .turn")).to_have_count(0)
    await visitor.idle()
    assert asked(visitor.site) == ["Shall we begin?", "Too many of us"]


async def test_a_refused_message_goes_to_the_smaller_model(visitor: Visitor) -> None:
    site, frames = visitor.site, list[Any]()
    handle = refusing(frames, lambda: len(frames) == 1, retry_after=60, smaller=SMALLER)
    await visitor.page.route_web_socket(re.compile("/ws/"), handle)
    conversation = site.call("Ada", "POST", "/v1/conversations", {"model": LARGE_MODEL})["id"]
    site.engine("options", script="Here at once.", tokens_per_second=0)
    await visitor.open(f"/c/{conversation}")
    await visitor.send("Too many of us")
    await is_refused_once(visitor)
    await visitor.press("Use SmolLM2 135M instead")
    await visitor.sees("Here at once.")
    await visitor.idle()
    assert [frame["model"] for frame in frames] == [LARGE_MODEL, MODEL]
    assert site.execute(LAST) == [(MODEL,)]


async def test_a_first_message_goes_to_the_smaller_model(visitor: Visitor) -> None:
    site, page, asked_of = visitor.site, visitor.page, list[str]()
    error = HighDemand("High demand on the free plan. Try again in 60 s.", retry_after=60)
    body = f'<p class="detail">{refusal(error, Model(**SMALLER))}</p>'

    async def refuse(route: Route) -> None:
        form = route.request.post_data or ""
        if route.request.method != "POST":
            await route.continue_()
            return
        asked_of.extend(name for name in (LARGE_MODEL, MODEL) if name in form)
        if len(asked_of) > 1:
            await route.continue_()
        else:
            headers = {"Retry-After": "60", "Content-Type": "text/html"}
            await route.fulfill(status=HTTPStatus.TOO_MANY_REQUESTS, headers=headers, body=body)

    await page.route(f"{site.url}/", refuse)
    site.engine("options", script="Here at once.", tokens_per_second=0)
    await visitor.open()
    await page.locator("#model-button").click()
    await page.locator("#model-list label", has_text="SmolLM2 1.7B").click()
    await page.keyboard.press("Escape")
    await visitor.send("Too many of us")
    notice = page.locator("#notice")
    await expect(notice).to_contain_text(AGAIN)
    assert len(AGAIN.findall(await notice.inner_text())) == 1
    await visitor.press("Use SmolLM2 135M instead")
    await visitor.sees("Here at once.")
    await visitor.idle()
    assert asked_of == [LARGE_MODEL, MODEL]
    assert site.execute(LAST) == [(MODEL,)]
    visitor.complaints.clear()  # the browser calls any answer of 429 an error
