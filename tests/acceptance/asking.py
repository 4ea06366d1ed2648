"""Conversations that a visitor opens and writes into."""

from tests.acceptance.browsing import Visitor
from tests.acceptance.live_site import PACE, LiveSite

OWN = "SELECT content FROM conversations_message WHERE role = 'user' ORDER BY id"
QUICK = {"script": "Certainly.", "tokens_per_second": 0}


def asked(site: LiveSite) -> list[str]:
    return [content for (content,) in site.execute(OWN)]


async def opens_conversation(visitor: Visitor) -> str:
    """Its next reply goes on until it is stopped."""
    conversation = visitor.site.say("Ada", "Shall we begin?", "Certainly.")
    visitor.site.engine("options", **PACE)
    await visitor.open(f"/c/{conversation}")
    return conversation


async def edit(visitor: Visitor, number: int, text: str) -> None:
    """Opens the editor of a message and writes into it."""
    await visitor.page.bring_to_front()
    turn = visitor.page.locator(".turn.user").nth(number)
    await turn.hover()
    await turn.get_by_role("button", name="Edit", exact=True).click()
    await turn.locator("textarea").fill(text)
