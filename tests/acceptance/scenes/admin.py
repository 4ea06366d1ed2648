"""The admin, as staff see it."""

from playwright.async_api import expect

from tests.acceptance.browsing import Visitor
from tests.acceptance.gallery import scene
from tests.acceptance.scenes.texts import ANSWER, CODE, QUESTION

STAFF = "demo"


async def opens(visitor: Visitor, path: str = "") -> None:
    await visitor.page.goto(f"{visitor.site.url}/admin/{path}")
    await visitor.page.wait_for_load_state()
    await expect(visitor.page.locator("#main, #content-main, main").first).to_be_visible()


def some_use(visitor: Visitor) -> str:
    """A conversation of Ada's that is answered, and a reply that failed."""
    site = visitor.site
    conversation = site.say("Ada", QUESTION, ANSWER)
    site.say("Ada", "Show me code", CODE, conversation)
    return conversation


@scene(account=STAFF)
async def admin(visitor: Visitor) -> None:
    some_use(visitor)
    await opens(visitor)


@scene(account=STAFF)
async def admin_users(visitor: Visitor) -> None:
    await opens(visitor, "accounts/user/")


@scene(account=STAFF)
async def admin_user(visitor: Visitor) -> None:
    user = visitor.site.execute("SELECT id FROM accounts_user WHERE email = 'ada@example.com'")[0][0]
    await opens(visitor, f"accounts/user/{user}/change/")


@scene(account=STAFF)
async def admin_keys(visitor: Visitor) -> None:
    await opens(visitor, "accounts/apikey/")


@scene(account=STAFF)
async def admin_plans(visitor: Visitor) -> None:
    await opens(visitor, "quotas/plan/")


@scene(account=STAFF)
async def admin_plan(visitor: Visitor) -> None:
    plan = visitor.site.execute("SELECT id FROM quotas_plan WHERE name = 'free'")[0][0]
    await opens(visitor, f"quotas/plan/{plan}/change/")


@scene(account=STAFF)
async def admin_ledger(visitor: Visitor) -> None:
    some_use(visitor)
    await opens(visitor, "quotas/ledgerentry/")


@scene(account=STAFF)
async def admin_models(visitor: Visitor) -> None:
    await opens(visitor, "inference/model/")


@scene(account=STAFF)
async def admin_replicas(visitor: Visitor) -> None:
    await opens(visitor, "inference/replica/")


@scene(account=STAFF)
async def admin_requests(visitor: Visitor) -> None:
    some_use(visitor)
    await opens(visitor, "inference/request/")


@scene(account=STAFF)
async def admin_request(visitor: Visitor) -> None:
    some_use(visitor)
    request = visitor.site.execute("SELECT id FROM inference_request ORDER BY id DESC LIMIT 1")[0][0]
    await opens(visitor, f"inference/request/{request}/change/")


@scene(account=STAFF)
async def admin_conversations(visitor: Visitor) -> None:
    some_use(visitor)
    await opens(visitor, "conversations/conversation/")


async def asks_to_read(visitor: Visitor) -> None:
    conversation = some_use(visitor).removeprefix("conv_")
    await opens(visitor, f"conversations/conversation/{conversation}/read/")


@scene(account=STAFF)
async def admin_read(visitor: Visitor) -> None:
    await asks_to_read(visitor)


@scene(account=STAFF)
async def admin_text(visitor: Visitor) -> None:
    await asks_to_read(visitor)
    await visitor.page.get_by_label("Reason").fill("Ticket 4711: the reply is said to be cut off.")
    await visitor.press("Read the text")
    await expect(visitor.page.get_by_text("Ticket 4711")).to_be_visible()


@scene(account=STAFF)
async def admin_search(visitor: Visitor) -> None:
    await opens(visitor, "search/?q=req_nothing")


@scene(account=STAFF)
async def admin_scheduler(visitor: Visitor) -> None:
    await opens(visitor, "inference/schedulertuning/")


@scene(account=STAFF)
async def admin_scheduler_refused(visitor: Visitor) -> None:
    """One number out of its range, one that is none, and two that contradict a third."""
    await opens(visitor, "inference/schedulertuning/")
    for field, text in (("Enterprise: weight", "0"), ("Free: ceiling", "most of it"), ("Abort seconds", "20")):
        await visitor.page.get_by_label(field).fill(text)
    await visitor.press("Save")
    await expect(visitor.page.get_by_role("heading", name="Nothing was saved")).to_be_visible()
