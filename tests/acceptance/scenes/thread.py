"""A conversation that is finished, and what can be done in it."""

from playwright.async_api import expect

from chatsite.ids import new_id
from tests.acceptance.browsing import Visitor
from tests.acceptance.gallery import scene
from tests.acceptance.live_site import NEWEST
from tests.acceptance.scenes.texts import ANSWER, CODE, CODE_QUESTION, LONG_CODE, QUESTION, RICH, RICH_QUESTION


async def shows(visitor: Visitor, question: str, answer: str) -> None:
    await visitor.open(f"/c/{visitor.site.say('Ada', question, answer)}")


async def to_top(visitor: Visitor) -> None:
    await visitor.page.locator("#scroll").evaluate("(box) => { box.scrollTop = 0; }")


@scene()
async def finished(visitor: Visitor) -> None:
    await shows(visitor, QUESTION, ANSWER)


@scene()
async def code(visitor: Visitor) -> None:
    await shows(visitor, CODE_QUESTION, CODE)


@scene()
async def code_folded(visitor: Visitor) -> None:
    await shows(visitor, "List the squares up to 59 as a Python dictionary.", LONG_CODE)


@scene()
async def table_and_math(visitor: Visitor) -> None:
    await shows(visitor, RICH_QUESTION, RICH)
    await visitor.page.locator(".katex").first.wait_for()
    await to_top(visitor)


@scene()
async def list_and_links(visitor: Visitor) -> None:
    await shows(visitor, RICH_QUESTION, RICH)
    await visitor.page.locator(".katex").first.wait_for()


@scene()
async def editing(visitor: Visitor) -> None:
    await shows(visitor, QUESTION, ANSWER)
    await visitor.page.locator(".turn.user").hover()
    await visitor.page.get_by_role("button", name="Edit", exact=True).click()
    await expect(visitor.page.get_by_role("button", name="Cancel", exact=True)).to_be_visible()
    await to_top(visitor)


@scene()
async def versions(visitor: Visitor) -> None:
    conversation = visitor.site.say("Ada", QUESTION, "Because of the Moon, mostly.")
    message = visitor.site.execute(NEWEST)[0][0]
    for text in ("Because of gravity.", ANSWER):
        visitor.site.engine("options", script=text, tokens_per_second=0)
        visitor.site.call("Ada", "POST", f"/v1/messages/msg_{message}/regenerate", {"stream": False})
    await visitor.open(f"/c/{conversation}")
    await visitor.page.get_by_role("button", name="Previous version").click()
    await visitor.sees("2/3")


@scene()
async def context_full(visitor: Visitor) -> None:
    conversation = visitor.site.say("Ada", QUESTION, ANSWER)
    visitor.site.execute(f"UPDATE conversations_message SET left_out = 14 WHERE id = ({NEWEST})")
    await visitor.open(f"/c/{conversation}")
    await visitor.sees("left out")


@scene()
async def several_turns(visitor: Visitor) -> None:
    conversation = visitor.site.say("Ada", QUESTION, ANSWER)
    visitor.site.say("Ada", "And on a lake?", "Hardly any: a lake is too small to be stretched.", conversation)
    visitor.site.say("Ada", "Thank you", "You are welcome.", conversation)
    await visitor.open(f"/c/{conversation}")


@scene()
async def not_loaded(visitor: Visitor) -> None:
    """A reply that is fetched for its size, which fails; its reader has tried again."""
    conversation = visitor.site.say("Ada", QUESTION, ANSWER)
    await visitor.page.route("**/turns/*", lambda route: route.fulfill(status=503, body="Away"))
    await visitor.open(f"/c/{conversation}")
    [[leaf]] = visitor.site.execute("SELECT active_leaf_id FROM conversations_conversation")
    visitor.site.execute(f"UPDATE conversations_message SET request_id = %s, content = %s WHERE id = ({NEWEST})",
                         new_id(), ANSWER * 400)  # fmt: skip
    visitor.site.call("Ada", "PATCH", f"/v1/conversations/{conversation}", {"title": "Tides"})
    await visitor.page.locator(f"#msg_{leaf}").get_by_role("button", name="Show this message").click()
    await expect(visitor.page.locator("#notice")).to_contain_text("could not be loaded")
