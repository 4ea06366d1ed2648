"""A reply's life, state by state."""

import json
import re

from playwright.async_api import WebSocketRoute, expect

from chatsite.ids import new_id
from tests.acceptance.browsing import LAST_REPLY, Visitor
from tests.acceptance.gallery import scene
from tests.acceptance.live_site import LARGE_MODEL, LOADING_MODEL, MODEL, NEWEST
from tests.acceptance.scenes.texts import ANSWER, CODE, QUESTION
from tests.waiting import wait_until


async def asks(visitor: Visitor, text: str = QUESTION) -> None:
    await visitor.open()
    await visitor.send(text)
    await visitor.page.wait_for_url("**/c/conv_*")


async def fails(visitor: Visitor, fault: str) -> None:
    """A reply that was cut after some text, for good."""
    visitor.site.engine("options", script=ANSWER, tokens_per_second=0)
    visitor.site.engine("faults", stream=fault, after=30)  # in each of three attempts
    await asks(visitor)
    await expect(visitor.page.locator(f"{LAST_REPLY} .why")).to_be_visible(timeout=40_000)


@scene()
async def streaming(visitor: Visitor) -> None:
    visitor.site.engine("options", script=CODE, tokens_per_second=0)
    visitor.site.engine("faults", stream="stall", after=90)
    await asks(visitor)
    await visitor.reply_grows(beyond=400)


@scene()
async def prefill(visitor: Visitor) -> None:
    visitor.site.engine("options", first_token_seconds=60)
    await asks(visitor)
    await expect(visitor.page.locator(".dots")).to_be_visible()


@scene()
async def queued(visitor: Visitor) -> None:
    visitor.site.engine("options", first_token_seconds=60)
    for text in ("One", "Two", "Three"):
        visitor.site.start_reply("Eve", text)
    await asks(visitor)
    await visitor.sees("in line")


@scene()
async def smaller_offered(visitor: Visitor) -> None:
    """Who has waited for a while may take the model that is free."""
    site = visitor.site
    site.engine("options", first_token_seconds=60)
    for text in ("One", "Two", "Three"):
        site.start_reply("Eve", text, model=LARGE_MODEL)
    conversation = site.call("Ada", "POST", "/v1/conversations", {"model": LARGE_MODEL})["id"]
    await visitor.open(f"/c/{conversation}")
    await visitor.send(QUESTION)
    await expect(visitor.page.get_by_role("button", name="instead")).to_be_visible(timeout=15_000)


@scene()
async def model_loading(visitor: Visitor) -> None:
    """A replica that is new, and has not answered yet. After a minute it counts as down."""
    site = visitor.site
    site.execute("UPDATE inference_replica SET id = %s WHERE model_id = %s", new_id(), LOADING_MODEL)
    await wait_until(lambda: site.readiness()["models"][LOADING_MODEL] == "loading", 15)
    conversation = site.call("Ada", "POST", "/v1/conversations", {"model": LOADING_MODEL})["id"]
    await visitor.open(f"/c/{conversation}")
    await visitor.send(QUESTION)
    await visitor.sees("is loading")


@scene()
async def retrying(visitor: Visitor) -> None:
    """The engine's connection is cut after some text, and the next attempt waits for its first token."""
    visitor.site.engine("options", script=ANSWER, tokens_per_second=60)
    visitor.site.engine("faults", stream="reset", after=60, times=1)
    await asks(visitor)
    await visitor.reply_grows(beyond=20)
    visitor.site.engine("options", first_token_seconds=60)
    await visitor.sees("Reconnecting")


@scene()
async def offline(visitor: Visitor) -> None:
    await streaming(visitor)
    await visitor.page.context.set_offline(True)
    await visitor.page.evaluate("document.querySelector('#chat')._htmx.ws.connection.socket.close()")
    await expect(visitor.page.get_by_text("You are offline")).to_be_visible()


@scene()
async def stopped(visitor: Visitor) -> None:
    visitor.site.engine("options", script=ANSWER, tokens_per_second=0)
    visitor.site.engine("faults", stream="stall", after=40)
    await asks(visitor)
    await visitor.reply_grows(beyond=100)
    await visitor.press("Stop")
    await visitor.sees("Stopped")
    await visitor.idle()


@scene()
async def length_limit(visitor: Visitor) -> None:
    conversation = visitor.site.say("Ada", QUESTION, ANSWER)
    visitor.site.execute(
        f"UPDATE conversations_message SET finish_reason = 'length', content = left(content, 430) WHERE id = ({NEWEST})"
    )
    await visitor.open(f"/c/{conversation}")
    await visitor.sees("Reached the length limit")


@scene()
async def failed(visitor: Visitor) -> None:
    await fails(visitor, "error")


@scene()
async def failed_with_details(visitor: Visitor) -> None:
    await fails(visitor, "error")
    await visitor.page.get_by_text("Details", exact=True).last.click()
    await visitor.sees("req_")


@scene(account="Finn")
async def high_demand(visitor: Visitor) -> None:
    """As many replies run as the free plan allows."""
    visitor.site.engine("options", first_token_seconds=60)
    for text in ("One", "Two", "Three"):
        visitor.site.start_reply("Finn", text)
    await visitor.open()
    await visitor.send(QUESTION)
    await expect(visitor.page.get_by_role("alert")).to_contain_text("free")


@scene(account="Finn")
async def over_quota(visitor: Visitor) -> None:
    """The tokens of the free plan's minute are reserved by two long replies."""
    visitor.site.engine("options", first_token_seconds=60)
    await visitor.open()
    for _ in range(2):
        visitor.site.start_reply("Finn", "A long one", model=LARGE_MODEL, max_tokens=8000)
    visitor.site.start_reply("Finn", "A long one", max_tokens=3900)
    await visitor.send(QUESTION)
    await expect(visitor.page.get_by_role("alert").first).to_contain_text("Try again in")


async def follows_up(visitor: Visitor) -> None:
    await visitor.open(f"/c/{visitor.site.say('Ada', QUESTION, ANSWER)}")


@scene()
async def not_sent_yet(visitor: Visitor) -> None:
    """Written while the connection is away."""
    await follows_up(visitor)
    await visitor.page.context.set_offline(True)
    await visitor.page.evaluate("document.querySelector('#chat')._htmx.ws.connection.socket.close()")
    await visitor.send("And why are there two of them in a day?")
    await visitor.page.get_by_text("Not sent yet").wait_for()


@scene()
async def not_sent(visitor: Visitor) -> None:
    """Refused."""
    await visitor.page.route_web_socket(re.compile("/ws/"), refuse_messages)
    await follows_up(visitor)
    await visitor.send("And why are there two of them in a day?")
    await visitor.page.get_by_role("button", name="Retry").wait_for()


@scene()
async def not_sent_in_a_crowd(visitor: Visitor) -> None:
    """Refused, with a smaller model that would reply."""
    await visitor.page.route_web_socket(re.compile("/ws/"), refuse_in_a_crowd)
    await follows_up(visitor)
    await visitor.send("And why are there two of them in a day?")
    await visitor.page.get_by_role("button", name="instead").wait_for()


@scene()
async def unconfirmed(visitor: Visitor) -> None:
    """The connection is cut under the message, again and again."""
    await visitor.page.route_web_socket(re.compile("/ws/"), cut_under_messages)
    await follows_up(visitor)
    await visitor.send("And why are there two of them in a day?")
    await visitor.page.get_by_text("It is not known yet whether this was sent").wait_for()


def refuse_messages(page: WebSocketRoute) -> None:
    refuse(page, code="unavailable", retry_after=None, message="The database does not answer. Try again shortly.")


def refuse_in_a_crowd(page: WebSocketRoute) -> None:
    smaller = {"name": MODEL, "title": "SmolLM2 135M"}
    refuse(page, code="high_demand", retry_after=24, message="High demand on the free plan.", smaller=smaller)


def refuse(page: WebSocketRoute, **about: object) -> None:
    server = page.connect_to_server()

    def pass_on(frame: str | bytes) -> None:
        if '"type":"send"' in str(frame):
            page.send(json.dumps({"type": "refused", "id": json.loads(frame)["id"], **about}))
        else:
            server.send(frame)

    page.on_message(pass_on)


def cut_under_messages(page: WebSocketRoute) -> None:
    server = page.connect_to_server()

    async def pass_on(frame: str | bytes) -> None:
        if '"type":"send"' in str(frame):
            await page.close(code=1011)
        else:
            server.send(frame)

    page.on_message(pass_on)


@scene()
async def too_long(visitor: Visitor) -> None:
    await visitor.open()
    await visitor.send("word " * 20_000)
    await expect(visitor.page.get_by_role("alert")).to_contain_text("longer than")
