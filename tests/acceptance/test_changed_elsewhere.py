"""What a page does where another tab, or a second press, has changed what it shows."""

import json
import re

import pytest
from playwright.async_api import WebSocketRoute, expect

from tests.acceptance.asking import QUICK, edit, opens_conversation
from tests.acceptance.browsing import Visitor
from tests.waiting import wait_until

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]
SOCKETS = re.compile("/ws/")


async def test_text_of_an_edit_that_failed_comes_back_where_its_message_is_gone(
    visitor: Visitor, another_tab: Visitor
) -> None:
    site, page = visitor.site, visitor.page

    def refuse(socket: WebSocketRoute) -> None:
        server = socket.connect_to_server()

        def judge(frame: str | bytes) -> None:
            sent = json.loads(frame)
            if sent["type"] == "send":
                about = {"id": sent["id"], "code": "no_capacity", "message": "No.", "retry_after": None}
                socket.send(json.dumps({"type": "refused", **about}))
            else:
                server.send(frame)

        socket.on_message(judge)

    await page.route_web_socket(SOCKETS, refuse)
    conversation = site.say("Ada", "Shall we begin?", "Certainly.")
    site.say("Ada", "And then?", "Then we end.", conversation)
    await visitor.open(f"/c/{conversation}")
    await another_tab.open(f"/c/{conversation}")
    await edit(visitor, 1, "A long text that must not be lost")
    await page.keyboard.press("Enter")
    await expect(page.locator("#outgoing")).to_contain_text("Not sent.")
    await edit(another_tab, 0, "Another beginning")
    await another_tab.page.keyboard.press("Enter")
    await visitor.sees("Another beginning")
    await page.locator("#outgoing").get_by_role("button", name="Edit", exact=True).click()
    await expect(visitor.draft).to_have_value("A long text that must not be lost")
    await another_tab.idle()


async def test_an_editor_whose_message_is_changed_in_another_tab_hands_over_its_text(
    visitor: Visitor, another_tab: Visitor
) -> None:
    conversation = await opens_conversation(visitor)
    await another_tab.open(f"/c/{conversation}")
    visitor.site.engine("options", **QUICK)
    await edit(visitor, 0, "A careful text")
    await edit(another_tab, 0, "A quick one")
    await another_tab.page.keyboard.press("Enter")
    await visitor.sees("A quick one")
    await expect(visitor.draft).to_have_value("A careful text")
    await expect(visitor.page.locator("#notice")).to_contain_text("was changed elsewhere")
    await another_tab.idle()


async def test_a_double_click_on_regenerate_leaves_no_alert(visitor: Visitor) -> None:
    await opens_conversation(visitor)
    page = visitor.page
    heard: list[str] = []
    page.on("websocket", lambda socket: socket.on("framesent", lambda frame: heard.append(str(frame))))
    await page.reload()
    await page.locator("#chat[data-connected]").wait_for()
    visitor.site.engine("options", script="Short and sweet", tokens_per_second=20)
    again = page.locator(".turn.assistant").last.get_by_role("button", name="Regenerate")
    await again.dblclick()
    await visitor.sees("2/2")
    await visitor.idle()
    await expect(page.locator("#notice")).to_be_empty()
    assert len([frame for frame in heard if '"regenerate"' in frame]) == 1
    # Nor does one that comes while a reply runs.
    visitor.site.engine("options", script="", tokens_per_second=40)
    await visitor.send("Go on")
    await visitor.reply_grows()
    message = await page.locator(".turn.assistant").last.get_attribute("id")
    await page.evaluate(
        "(message) => document.querySelector('#chat')._htmx.ws.connection.socket.send("
        "JSON.stringify({ type: 'regenerate', message }))",
        message,
    )
    await visitor.reply_grows(beyond=len(await visitor.reply()))
    await visitor.press("Stop")
    await visitor.idle()
    await expect(page.locator("#notice")).to_be_empty()


async def test_a_conversation_that_is_deleted_while_it_replies_leaves_nothing_running(visitor: Visitor) -> None:
    conversation = await opens_conversation(visitor)
    await visitor.send("Go on")
    await visitor.reply_grows()
    visitor.site.call("Ada", "DELETE", f"/v1/conversations/{conversation}")
    await expect(visitor.page.locator("#connection")).to_contain_text("was deleted")
    await expect(visitor.page.locator("#thread [aria-busy]")).to_have_count(0)
    await expect(visitor.page.get_by_role("button", name="Stop")).to_have_count(0)
    visitor.complaints.clear()


async def test_a_new_conversation_elsewhere_takes_none_from_a_long_list(visitor: Visitor) -> None:
    site, page = visitor.site, visitor.page
    conversation = await opens_conversation(visitor)
    site.execute(
        "INSERT INTO conversations_conversation"
        " (id, organization_id, user_id, model_id, title, system_prompt, created_at, updated_at)"
        " SELECT gen_random_uuid(), organization_id, user_id, model_id, 'Number ' || n, '', now(),"
        " now() - n * interval '1 hour'"
        " FROM conversations_conversation, generate_series(1, 250) n"
    )
    await visitor.open(f"/c/{conversation}")
    lists = page.locator("#lists")
    names = """(lists) => [...lists.querySelectorAll(".row .name")]
      .map((name) => name.textContent).filter((name) => name.startsWith("Number"))"""

    async def to_the_end() -> bool:
        await lists.evaluate("(lists) => { lists.scrollTop = 1e9; }")
        return len(await lists.evaluate(names)) == 250

    await wait_until(to_the_end, 15)  # type: ignore[arg-type]
    site.say("Ada", "A new one elsewhere", "Certainly.")
    await expect(lists).to_contain_text("A new one elsewhere")
    assert await lists.evaluate(names) == [f"Number {n}" for n in range(1, 251)]
    site.call("Ada", "DELETE", f"/v1/conversations/{conversation}")  # one from below takes its place
    await expect(lists).not_to_contain_text("Shall we begin?")
    assert await lists.evaluate(names) == [f"Number {n}" for n in range(1, 251)]
    visitor.complaints.clear()
