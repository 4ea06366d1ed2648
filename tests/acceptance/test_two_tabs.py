"""Two tabs of one person see the same conversation live."""

import asyncio

import pytest
from playwright.async_api import Locator, expect

from tests.acceptance.browsing import Visitor
from tests.acceptance.live_site import NEWEST
from tests.waiting import wait_until

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]
STORED = f"SELECT content FROM conversations_message WHERE id = ({NEWEST})"
ENDED = "SELECT count(*) FROM conversations_message WHERE status = 'complete' AND role = 'assistant'"
OWN = "SELECT content FROM conversations_message WHERE role = 'user' ORDER BY id"


async def both_open(visitor: Visitor, another: Visitor) -> str:
    """Both tabs on a conversation with one short turn: its public id."""
    conversation = visitor.site.say("Ada", "What is a tab?", "A page beside others.")
    visitor.site.engine("options", script="", tokens_per_second=40)
    for tab in (visitor, another):
        await tab.open(f"/c/{conversation}")
    return conversation


def row(visitor: Visitor, title: str) -> Locator:
    return visitor.page.locator("#conversations").get_by_role("listitem").filter(has_text=title)


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
    [[stored]] = visitor.site.execute(STORED)
    for tab in (visitor, another_tab):
        assert (await tab.reply()).split() == stored.split()

    visitor.site.engine("options", script="And so they came again.")
    await another_tab.send("And again")
    await visitor.sees("And again")  # the other tab hears of it
    await visitor.idle()
    await another_tab.idle()
    assert await visitor.reply() == await another_tab.reply()


async def test_s13_a_reply_that_another_tab_began_is_stopped_before_its_first_token(
    visitor: Visitor, another_tab: Visitor
) -> None:
    await both_open(visitor, another_tab)
    visitor.site.engine("options", first_token_seconds=60)
    await visitor.send("Think long")
    await another_tab.sees("Think long")
    await another_tab.press("Stop")
    for tab in (visitor, another_tab):
        await tab.sees("Stopped")
        await tab.idle()
    assert visitor.site.engine("state")["running"] == 0


async def with_retry(*tabs: Visitor) -> Visitor | None:
    for tab in tabs:
        if await tab.page.get_by_role("button", name="Retry", exact=True).count():
            return tab
    return None


async def test_s3_what_two_tabs_send_at_once_survives(visitor: Visitor, another_tab: Visitor) -> None:
    await both_open(visitor, another_tab)
    visitor.site.engine("options", first_token_seconds=1.0, script="Here you are.")
    await asyncio.gather(visitor.send("From the left"), another_tab.send("From the right"))
    refused = await wait_until(lambda: with_retry(visitor, another_tab), 10)  # told to wait, its message kept
    await wait_until(lambda: visitor.site.execute(ENDED) == [(2,)], 15)
    for tab in (visitor, another_tab):
        await tab.idle()
    await refused.press("Retry")
    for tab in (visitor, another_tab):
        await tab.sees("From the left")
        await tab.sees("From the right")
        await tab.idle()
    assert sorted(content for (content,) in visitor.site.execute(OWN)) == [
        "From the left",
        "From the right",
        "What is a tab?",
    ]
    assert await visitor.page.locator("#thread").inner_text() == await another_tab.page.locator("#thread").inner_text()


async def test_a_new_title_is_seen_in_the_other_tab(visitor: Visitor, another_tab: Visitor) -> None:
    await both_open(visitor, another_tab)
    await row(visitor, "What is a tab?").hover()
    await visitor.page.get_by_role("button", name="Actions for What is a tab?").click()
    await visitor.press("Rename")
    await visitor.page.get_by_role("dialog").get_by_label("Title").fill("On tabs")
    await visitor.press("Save")
    for tab in (visitor, another_tab):
        await expect(tab.page.locator("#title")).to_have_text("On tabs")
        await expect(row(tab, "On tabs")).to_be_visible()
        await expect(tab.page).to_have_title("On tabs")


async def test_a_deleted_conversation_is_gone_from_the_other_tab(visitor: Visitor, another_tab: Visitor) -> None:
    await both_open(visitor, another_tab)
    await row(visitor, "What is a tab?").hover()
    await visitor.page.get_by_role("button", name="Actions for What is a tab?").click()
    await visitor.press("Delete")
    await visitor.page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(another_tab.page.get_by_text("This conversation was deleted")).to_be_visible()
    assert visitor.site.execute("SELECT 1 FROM conversations_message") == []


async def test_a_reply_elsewhere_pulses_and_is_unread_until_it_is_seen(visitor: Visitor, another_tab: Visitor) -> None:
    await both_open(visitor, another_tab)
    await another_tab.open("/")
    visitor.site.engine("options", first_token_seconds=0.5, stop=0.3)
    await visitor.send("Go on")
    here = row(another_tab, "What is a tab?")
    await expect(here).to_contain_text("replying")
    await visitor.open("/")  # nobody looks at it when it ends
    await expect(here).to_contain_text("unread")
    await row(visitor, "What is a tab?").get_by_role("link").click()
    await visitor.sees("Go on")
    await expect(here).not_to_contain_text("unread")
    await expect(here).not_to_contain_text("replying")
