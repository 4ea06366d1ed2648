"""Ways in, and the account page."""

from playwright.async_api import expect

from tests.acceptance.browsing import Visitor
from tests.acceptance.gallery import scene

NEW_PASSWORD = "seven green bottles hanging"


async def tries_to_sign_in(visitor: Visitor, email: str, password: str) -> None:
    await visitor.open("/accounts/login/")
    await visitor.page.get_by_label("Email").fill(email)
    await visitor.page.get_by_label("Password", exact=True).fill(password)
    await visitor.press("Sign in")


async def signs_up(visitor: Visitor, email: str, password: str = NEW_PASSWORD) -> None:
    await visitor.open("/accounts/signup/")
    await visitor.page.get_by_label("Email").fill(email)
    await visitor.page.get_by_label("Password", exact=True).fill(password)
    await visitor.press("Create account")


@scene(account=None)
async def sign_in(visitor: Visitor) -> None:
    await visitor.open("/accounts/login/")


@scene(account=None)
async def sign_in_wrong(visitor: Visitor) -> None:
    await tries_to_sign_in(visitor, "ada@example.com", "not her password")
    await expect(visitor.page.get_by_role("alert")).to_be_visible()


@scene(account=None)
async def locked_out(visitor: Visitor) -> None:
    for _ in range(6):
        await tries_to_sign_in(visitor, "nobody@example.com", "a guess")
    await expect(visitor.page.get_by_role("heading", name="Too many attempts")).to_be_visible()


@scene(account=None)
async def sign_up(visitor: Visitor) -> None:
    await visitor.open("/accounts/signup/")


@scene(account=None)
async def sign_up_refused(visitor: Visitor) -> None:
    await signs_up(visitor, "grace@example.com", "12345678")
    await expect(visitor.page.get_by_text("too common")).to_be_visible()


@scene(account=None)
async def check_your_mail(visitor: Visitor) -> None:
    number = len(visitor.site.execute("SELECT 1 FROM accounts_user"))
    await signs_up(visitor, f"grace{number}@example.com")
    await expect(visitor.page.get_by_role("heading", name="Check your mail")).to_be_visible()


@scene(account=None)
async def address_link(visitor: Visitor) -> None:
    email = f"grace{len(visitor.site.execute('SELECT 1 FROM accounts_user'))}@example.com"
    await signs_up(visitor, email)
    await visitor.page.goto(visitor.site.link_in_mail(email))
    await expect(visitor.page.get_by_role("button", name="Confirm")).to_be_visible()


@scene(account=None)
async def address_link_used(visitor: Visitor) -> None:
    await visitor.open("/accounts/confirm-email/nonsense/")
    await expect(visitor.page.get_by_role("heading", name="no longer works")).to_be_visible()


@scene(account=None)
async def password_reset(visitor: Visitor) -> None:
    await visitor.open("/accounts/password/reset/")


@scene(account=None)
async def password_reset_sent(visitor: Visitor) -> None:
    await visitor.open("/accounts/password/reset/")
    await visitor.page.get_by_label("Email").fill("finn@example.com")
    await visitor.press("Send the link")
    await expect(visitor.page.get_by_role("heading")).to_be_visible()


@scene(account=None)
async def password_reset_link(visitor: Visitor) -> None:
    await password_reset_sent(visitor)
    await visitor.page.goto(visitor.site.link_in_mail("finn@example.com"))
    await expect(visitor.page.get_by_role("heading", name="Choose a new password")).to_be_visible()


@scene(account=None)
async def password_reset_link_used(visitor: Visitor) -> None:
    await visitor.open("/accounts/password/reset/key/1-nonsense/")
    await expect(visitor.page.get_by_role("heading", name="no longer works")).to_be_visible()


@scene()
async def account(visitor: Visitor) -> None:
    await visitor.open("/account/")
    await expect(visitor.page.get_by_role("heading", name="Your account")).to_be_visible()


@scene()
async def password_change(visitor: Visitor) -> None:
    await visitor.open("/accounts/password/change/")


@scene()
async def email_change(visitor: Visitor) -> None:
    await visitor.open("/accounts/email/")


@scene()
async def sign_out(visitor: Visitor) -> None:
    await visitor.open("/accounts/logout/")
