"""What is around the conversation: the sidebar, menus and dialogs, sharing, errors, the API reference."""

from datetime import UTC, datetime, timedelta

from playwright.async_api import Locator, expect

from chatsite.ids import new_id
from tests.acceptance.browsing import Visitor
from tests.acceptance.gallery import scene
from tests.acceptance.live_site import LiveSite
from tests.acceptance.scenes.texts import ANSWER, QUESTION, TITLES

AGES = [0, 0, 1, 1, 3, 5, 20, 45]  # days
ROW = """
    INSERT INTO conversations_conversation
        (id, organization_id, user_id, model_id, title, system_prompt, created_at, updated_at)
    SELECT %s, organization_id, user_id, 'smollm2-135m', %s, '', %s, %s FROM accounts_membership
    JOIN accounts_user ON accounts_user.id = user_id WHERE email = %s
"""


def fill_sidebar(site: LiveSite, account: str = "Ada", marks: bool = True) -> None:
    """Conversations of several ages; one is unread, and one is being answered."""
    for title, days in zip(TITLES, AGES, strict=True):
        moment = datetime.now(UTC) - timedelta(days=days, minutes=5)
        site.execute(ROW, new_id(), title, moment, moment, site.accounts[account].email)
    if marks:
        site.say(account, "Summarise the meeting notes", "There were three decisions.")
        site.engine("options", first_token_seconds=60)
        site.start_reply(account, "Translate the menu into French")


async def list_of(visitor: Visitor) -> Locator:
    """The sidebar; on a phone its drawer is opened."""
    drawer = visitor.page.get_by_role("button", name="Conversations", exact=True)
    if await drawer.is_visible():
        await drawer.click()
    sidebar = visitor.page.get_by_role("complementary", name="Sidebar")
    await expect(sidebar.get_by_role("link", name="New chat")).to_be_visible()
    return sidebar


async def opens_menu_of(visitor: Visitor, title: str) -> None:
    sidebar = await list_of(visitor)
    await sidebar.get_by_role("link", name=title).hover()
    await sidebar.get_by_role("button", name=f"Actions for {title}").click()


@scene()
async def new_chat(visitor: Visitor) -> None:
    fill_sidebar(visitor.site, marks=False)
    await visitor.open()


@scene(account="Eve")
async def first_visit(visitor: Visitor) -> None:
    await visitor.open()


@scene()
async def sidebar(visitor: Visitor) -> None:
    conversation = visitor.site.say("Ada", QUESTION, ANSWER)
    fill_sidebar(visitor.site)
    await visitor.open(f"/c/{conversation}")
    await list_of(visitor)


@scene()
async def row_menu(visitor: Visitor) -> None:
    fill_sidebar(visitor.site, marks=False)
    await visitor.open()
    await opens_menu_of(visitor, TITLES[2])


@scene()
async def rename_dialog(visitor: Visitor) -> None:
    await row_menu(visitor)
    await visitor.press("Rename")
    await expect(visitor.page.get_by_role("dialog")).to_be_visible()


@scene()
async def delete_dialog(visitor: Visitor) -> None:
    await row_menu(visitor)
    await visitor.press("Delete")
    await expect(visitor.page.get_by_role("dialog")).to_be_visible()


@scene()
async def title_edited(visitor: Visitor) -> None:
    await visitor.open(f"/c/{visitor.site.say('Ada', QUESTION, ANSWER)}")
    await visitor.page.locator("#title").click()
    await expect(visitor.page.locator("#title-input")).to_be_focused()


@scene()
async def search(visitor: Visitor) -> None:
    visitor.site.say("Ada", QUESTION, ANSWER)
    fill_sidebar(visitor.site, marks=False)
    await visitor.open()
    sidebar = await list_of(visitor)
    await sidebar.get_by_label("Search conversations").fill("tide")
    await expect(sidebar.get_by_text("found")).to_be_visible()


@scene()
async def search_without_result(visitor: Visitor) -> None:
    fill_sidebar(visitor.site, marks=False)
    await visitor.open()
    sidebar = await list_of(visitor)
    await sidebar.get_by_label("Search conversations").fill("zebra")
    await expect(sidebar.get_by_text("Nothing found")).to_be_visible()


@scene(viewports=("desktop",))
async def sidebar_closed(visitor: Visitor) -> None:
    await visitor.open(f"/c/{visitor.site.say('Ada', QUESTION, ANSWER)}")
    await visitor.page.locator("#sidebar-button").click()


@scene()
async def model_menu(visitor: Visitor) -> None:
    await visitor.open()
    await visitor.page.locator("#model-button").click()
    await expect(visitor.page.locator("#model-menu")).to_be_visible()


@scene(account="demo")
async def account_menu(visitor: Visitor) -> None:
    await visitor.open()
    sidebar = await list_of(visitor)
    await sidebar.get_by_role("button", name="Account").click()
    await expect(visitor.page.get_by_role("link", name="API reference")).to_be_visible()


@scene()
async def keyboard_dialog(visitor: Visitor) -> None:
    await visitor.open()
    sidebar = await list_of(visitor)
    await sidebar.get_by_role("button", name="Account").click()
    await visitor.press("Keyboard shortcuts")
    await expect(visitor.page.get_by_role("dialog")).to_be_visible()


async def opens_share(visitor: Visitor) -> None:
    await visitor.open(f"/c/{visitor.site.say('Ada', QUESTION, ANSWER)}")
    await visitor.page.locator("#share-button").click()
    await expect(visitor.page.get_by_role("button", name="Create link")).to_be_visible()


@scene()
async def share_dialog(visitor: Visitor) -> None:
    await opens_share(visitor)


@scene()
async def share_link(visitor: Visitor) -> None:
    await opens_share(visitor)
    await visitor.press("Create link")
    await expect(visitor.page.get_by_role("button", name="Stop sharing")).to_be_visible()


@scene()
async def shared_page(visitor: Visitor) -> None:
    await share_link(visitor)
    await visitor.page.goto(await visitor.page.get_by_role("dialog").get_by_role("textbox").input_value())
    await expect(visitor.page.get_by_text("Shared conversation")).to_be_visible()


@scene()
async def not_found(visitor: Visitor) -> None:
    await visitor.page.goto(f"{visitor.site.url}/c/conv_nothing")
    await expect(visitor.page.get_by_role("heading", level=1)).to_be_visible()


@scene()
async def forbidden(visitor: Visitor) -> None:
    """A form without its token."""
    await visitor.open()
    await visitor.page.context.clear_cookies(name="csrftoken")
    await visitor.page.evaluate("document.querySelector('form[action$=\"/logout/\"]').submit()")
    await expect(visitor.page.locator("main.card")).to_be_visible()


@scene()
async def server_error(visitor: Visitor) -> None:
    """A table of the database is gone for a moment."""
    site = visitor.site
    site.execute("ALTER TABLE conversations_share RENAME TO away")
    try:
        await visitor.page.goto(f"{site.url}/s/anything")
        await expect(visitor.page.locator("main.card")).to_be_visible()
    finally:
        site.execute("ALTER TABLE away RENAME TO conversations_share")


@scene()
async def api_reference(visitor: Visitor) -> None:
    await visitor.page.goto(f"{visitor.site.url}/docs/")
    await expect(visitor.page.get_by_text("/v1/conversations", exact=True).first).to_be_visible()
