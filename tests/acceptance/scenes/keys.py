"""API keys: the list, a new one, what one may do, replacing and revoking it."""

from playwright.async_api import expect

from tests.acceptance.browsing import Visitor
from tests.acceptance.gallery import scene


async def makes_a_key(visitor: Visitor, name: str) -> None:
    """With limits and an end. The page shows the new key."""
    page = visitor.page
    await visitor.open("/account/keys/new")
    await page.get_by_label("Name", exact=True).fill(name)
    await page.get_by_label("Expires").select_option("90")
    await page.get_by_label("Requests a minute").fill("60")
    await page.get_by_label("Tokens a minute").fill("20000")
    await visitor.press("Create key")
    await expect(page.get_by_role("heading", name="Your new key")).to_be_visible()


async def opens_the_key(visitor: Visitor, name: str) -> None:
    await visitor.open("/account/#keys")
    await visitor.page.get_by_role("link", name=f"Manage {name}", exact=True).first.click()
    await expect(visitor.page.get_by_role("heading", name=name)).to_be_visible()


async def rotates_the_key(visitor: Visitor, name: str, overlap: str = "604800") -> None:
    await opens_the_key(visitor, name)
    await visitor.page.get_by_role("link", name="Rotate…").click()
    await visitor.page.get_by_label("The old key ends").select_option(overlap)
    await visitor.press("Make the new key")
    await expect(visitor.page.get_by_role("heading", name="Your new key")).to_be_visible()


async def covers_the_key(visitor: Visitor) -> None:
    """It is another each time."""
    shown = visitor.page.get_by_label("Key", exact=True)
    await shown.evaluate("(box) => { box.value = `sk-${'0123456789'.repeat(4)}abc`; }")


async def has_keys(visitor: Visitor) -> None:
    """One in use, one that is replaced, one that has ended."""
    await makes_a_key(visitor, "Nightly report")
    await makes_a_key(visitor, "Billing script")
    await rotates_the_key(visitor, "Billing script")
    await makes_a_key(visitor, "Old laptop")
    await opens_the_key(visitor, "Old laptop")
    await visitor.page.get_by_role("link", name="Revoke…").click()
    await visitor.press("Revoke")


@scene()
async def account_keys(visitor: Visitor) -> None:
    await has_keys(visitor)
    await visitor.open("/account/#keys")
    await visitor.page.get_by_text("Keys that have ended").click()
    await visitor.page.locator("#keys").scroll_into_view_if_needed()
    await expect(visitor.page.get_by_role("heading", name="API keys")).to_be_visible()


@scene()
async def key_new(visitor: Visitor) -> None:
    await visitor.open("/account/keys/new")


@scene()
async def key_new_refused(visitor: Visitor) -> None:
    page = visitor.page
    await visitor.open("/account/keys/new")
    for box in await page.get_by_role("checkbox").all():
        await box.uncheck()
    await page.get_by_label("Expires").select_option("date")
    await page.get_by_label("Tokens a minute").fill("0")
    await visitor.press("Create key")
    await expect(page.get_by_text("Choose at least one")).to_be_visible()


@scene()
async def key_created(visitor: Visitor) -> None:
    await makes_a_key(visitor, "Nightly report")
    await covers_the_key(visitor)


@scene()
async def key_manage(visitor: Visitor) -> None:
    await makes_a_key(visitor, "Nightly report")
    await opens_the_key(visitor, "Nightly report")
    await visitor.page.get_by_label("read", exact=False).first.uncheck()
    await visitor.press("Save")
    await expect(visitor.page.get_by_text("The key is saved.")).to_be_visible()


@scene()
async def key_history(visitor: Visitor) -> None:
    await key_manage(visitor)
    await visitor.page.get_by_role("heading", name="History").scroll_into_view_if_needed()
    await visitor.page.evaluate("scrollTo(0, document.body.scrollHeight)")


@scene()
async def key_rotate(visitor: Visitor) -> None:
    await makes_a_key(visitor, "Nightly report")
    await opens_the_key(visitor, "Nightly report")
    await visitor.page.get_by_role("link", name="Rotate…").click()
    await expect(visitor.page.get_by_role("heading", name="Rotate this key")).to_be_visible()


@scene()
async def key_rotated(visitor: Visitor) -> None:
    await makes_a_key(visitor, "Nightly report")
    await rotates_the_key(visitor, "Nightly report")
    await covers_the_key(visitor)


@scene()
async def key_replaced(visitor: Visitor) -> None:
    await makes_a_key(visitor, "Nightly report")
    await rotates_the_key(visitor, "Nightly report")
    await visitor.open("/account/")
    await visitor.page.get_by_role("link", name="Manage Nightly report").last.click()
    await expect(visitor.page.get_by_text("Replaced by another key").first).to_be_visible()


@scene()
async def key_revoke(visitor: Visitor) -> None:
    await visitor.open("/account/")
    await visitor.page.locator("#keys").get_by_role("link", name="Revoke").first.click()
    await expect(visitor.page.get_by_role("heading", name="Revoke this key?")).to_be_visible()
