"""Budgets, the emergency stop, statements and webhooks, on their pages and in the admin."""

from datetime import UTC, datetime
from typing import Final

from playwright.async_api import expect

from tests.acceptance.browsing import Visitor
from tests.acceptance.gallery import scene
from tests.acceptance.scenes.admin import STAFF, opens
from tests.acceptance.scenes.keys import makes_a_key, opens_the_key
from tests.acceptance.scenes.organizations import ACME, has_an_organization
from tests.acceptance.scenes.usage import BUDGET, has_used

IN_ACME: Final = f"?organization=org_{ACME}"
SOFT: Final = """
    INSERT INTO quotas_budget (id, organization_id, scope, subject_id, period, days, limit_tokens, hard, created_at,
                               changed_at)
    SELECT '0197d000-0000-7000-8000-0000000000b2', %s, 'member', id, 'rolling', 7, 90000, false, now(), now()
    FROM accounts_user WHERE email = 'eve@example.com' ON CONFLICT DO NOTHING
"""
HOOK: Final = "0197d000-0000-7000-8000-0000000000c1"
HOOKS: Final = """
    INSERT INTO webhooks_endpoint (id, organization_id, url, events, active, salt, created_at)
    VALUES (%s, %s, 'https://hooks.example.org/chat/budgets', ARRAY['budget.threshold', 'spending.unusual'], true, %s,
            now()) ON CONFLICT DO NOTHING
"""
SENT: Final = """
    INSERT INTO webhooks_delivery (id, endpoint_id, event, body, state, attempts, due_at, status, outcome, took_ms,
                                   created_at)
    VALUES (%s, %s, 'budget.threshold', '{}', %s, %s, now() + interval '5 minutes', %s, %s, %s,
            now() - interval '1 hour')
    ON CONFLICT DO NOTHING
"""
DELIVERIES: Final = (
    ("d1", "delivered", 1, 200, "Taken.", 132),
    ("d2", "waiting", 3, 503, "It answered 503: try later", 51),
    ("d3", "failed", 8, None, "No answer within 10 s.", 10_000),
)


def has_money(visitor: Visitor) -> None:
    has_an_organization(visitor)
    has_used(visitor.site)
    for statement in (BUDGET, SOFT):
        visitor.site.execute(statement, ACME)
    visitor.site.execute("DELETE FROM quotas_stop WHERE organization_id = %s", ACME)


async def opens_money(visitor: Visitor, page: str, heading: str) -> None:
    has_money(visitor)
    await visitor.open(f"/usage/{page}{IN_ACME}")
    await expect(visitor.page.get_by_role("heading", name=heading, exact=True)).to_be_visible()


@scene()
async def budgets(visitor: Visitor) -> None:
    await opens_money(visitor, "budgets/", "Budgets")


@scene()
async def budget_refused(visitor: Visitor) -> None:
    await opens_money(visitor, "budgets/new", "Add a budget")
    await visitor.page.get_by_label("Limit").fill("-5")
    await visitor.page.get_by_label("In", exact=True).select_option("rolling")
    await visitor.press("Save")
    await expect(visitor.page.get_by_text("More than 0.")).to_be_visible()


@scene()
async def organization_stop(visitor: Visitor) -> None:
    await opens_money(visitor, "budgets/stop", "Stop everything?")


@scene()
async def organization_stopped(visitor: Visitor) -> None:
    await organization_stop(visitor)
    await visitor.press("Stop everything")
    await expect(visitor.page.get_by_role("button", name="Let it work again")).to_be_visible()


@scene()
async def organization_history_of_money(visitor: Visitor) -> None:
    await organization_stopped(visitor)
    await visitor.press("Let it work again")
    visitor.site.execute("DELETE FROM quotas_budget WHERE organization_id = %s", ACME)
    await visitor.open(f"/usage/budgets/new{IN_ACME}")
    await visitor.page.get_by_label("Limit").fill("25")
    await visitor.press("Save")
    await expect(visitor.page.get_by_text("The budget holds now.")).to_be_visible()
    await visitor.open(f"/organization/org_{ACME}/")
    await visitor.page.locator("#history").scroll_into_view_if_needed()


@scene()
async def statements(visitor: Visitor) -> None:
    await opens_money(visitor, "statements/", "Statements")


@scene()
async def statement(visitor: Visitor) -> None:
    has_money(visitor)
    await visitor.open(f"/usage/statements/{datetime.now(UTC):%Y-%m}{IN_ACME}")
    await expect(visitor.page.get_by_role("heading", name="Total")).to_be_visible()


@scene()
async def statement_lines(visitor: Visitor) -> None:
    await statement(visitor)
    await visitor.page.get_by_role("heading", name="Lines").scroll_into_view_if_needed()
    await visitor.page.evaluate("scrollBy(0, 500)")


@scene()
async def webhooks(visitor: Visitor) -> None:
    await has_webhook(visitor)
    await opens_money(visitor, "webhooks/", "Webhooks")


@scene()
async def webhook_refused(visitor: Visitor) -> None:
    await opens_money(visitor, "webhooks/", "Webhooks")
    await visitor.page.get_by_label("Address", exact=True).fill("https://10.0.0.1/hook")
    await visitor.press("Add")
    await expect(visitor.page.get_by_text("not on the public internet")).to_be_visible()


async def has_webhook(visitor: Visitor) -> None:
    has_money(visitor)
    visitor.site.execute(HOOKS, HOOK, ACME, HOOK)
    for end, *row in DELIVERIES:
        visitor.site.execute(SENT, f"0197d000-0000-7000-8000-0000000000{end}", HOOK, *row)


@scene()
async def webhook(visitor: Visitor) -> None:
    await has_webhook(visitor)
    await opens_money(visitor, f"webhooks/hook_{HOOK}", "What was sent")


@scene()
async def webhook_secret(visitor: Visitor) -> None:
    await webhook(visitor)
    await visitor.press("Make another secret")
    shown = visitor.page.get_by_label("Secret", exact=True)
    await shown.evaluate("(box) => { box.value = `whsec_${'0123456789'.repeat(4)}abc=`; }")


@scene()
async def key_paused(visitor: Visitor) -> None:
    await makes_a_key(visitor, "Runaway job")
    visitor.site.execute("UPDATE accounts_apikey SET paused_at = now() WHERE name = 'Runaway job'")
    await opens_the_key(visitor, "Runaway job")
    await expect(visitor.page.get_by_role("button", name="Resume")).to_be_visible()


@scene(account=STAFF)
async def admin_statement(visitor: Visitor) -> None:
    has_money(visitor)
    await opens(visitor, f"billing/statement/{ACME}/months/{datetime.now(UTC):%Y-%m}/")


@scene(account=STAFF)
async def admin_grant(visitor: Visitor) -> None:
    await opens(visitor, "billing/grant/add/")


@scene(account=STAFF)
async def admin_refund(visitor: Visitor) -> None:
    has_money(visitor)
    [[entry]] = visitor.site.execute(
        "SELECT id FROM quotas_ledgerentry WHERE organization_id = %s ORDER BY cost DESC LIMIT 1", ACME
    )
    await opens(visitor, f"quotas/ledgerentry/{entry}/refund/")
