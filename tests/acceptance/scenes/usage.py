"""The usage page, with some weeks of use, and the ways to it."""

import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

from playwright.async_api import expect

from tests.acceptance.browsing import Visitor
from tests.acceptance.gallery import scene
from tests.acceptance.live_site import LARGE_MODEL, MODEL, LiveSite
from tests.acceptance.scenes.admin import STAFF, opens
from tests.acceptance.scenes.organizations import ACME, has_an_organization
from tests.quotas.moments import made

DAYS: Final = 40
ROW: Final = """
    INSERT INTO quotas_ledgerentry (request_id, kind, seq, organization_id, user_id, api_key_id, model, lane, input,
                                    cached, output, cost, outcome, source, created_at)
    SELECT %s, 'usage', 0, %s, id, %s, %s, 'paid', %s, %s, %s, %s, 'succeeded', 'engine', now()
    FROM accounts_user WHERE email = %s
"""
KEYS: Final = {
    "ada@example.com": ("0197d000-0000-7000-8000-0000000000a1", "Nightly report"),
    "eve@example.com": ("0197d000-0000-7000-8000-0000000000a2", "A script with quite a long name"),
}
KEY: Final = """
    INSERT INTO accounts_apikey
    SELECT copied.* FROM accounts_apikey own JOIN accounts_user person ON person.id = own.user_id,
        jsonb_populate_record(own, jsonb_build_object(
            'id', %s::text, 'organization_id', %s::text, 'name', %s::text, 'digest', %s::text, 'chain_id', %s::text
        )) copied
    WHERE own.name = 'script' AND person.email = %s ON CONFLICT DO NOTHING
"""
BUDGET: Final = """
    INSERT INTO quotas_budget (id, organization_id, scope, period, limit_cost, hard, created_at, changed_at)
    VALUES ('0197d000-0000-7000-8000-0000000000b1', %s, 'organization', 'month', 150, true, now(), now())
    ON CONFLICT DO NOTHING
"""
PEOPLE: Final = ("ada@example.com", "eve@example.com", "finn@example.com")


def has_used(site: LiveSite, organization: str = ACME) -> None:
    """The three of them, on most days, more and more of it."""
    for email, (key, name) in KEYS.items():
        site.execute(KEY, key, organization, name, key, key, email)
    if site.execute("SELECT 1 FROM quotas_ledgerentry WHERE organization_id = %s LIMIT 1", organization):
        return
    now = datetime.now(UTC)
    for day in range(DAYS):
        for number, email in enumerate(PEOPLE):
            if (day + 2 * number) % 7 == 5:
                continue
            output = int(20_000 * (1.2 + math.sin(day / 3 + number)) * (DAYS - day) / (number + 1))
            cost = Decimal(output) * 3 / 1_000_000
            model = LARGE_MODEL if (day + number) % 3 else MODEL
            key = KEYS.get(email, ("",))[0] or None if day % 2 else None
            row = (made(now - timedelta(days=day)), organization, key, model)
            site.execute(ROW, *row, 2 * output, output // 2, output, cost, email)


async def opens_usage(visitor: Visitor, query: str = "") -> None:
    has_an_organization(visitor)
    has_used(visitor.site)
    visitor.site.execute(BUDGET, ACME)
    await visitor.open(f"/usage/?organization=org_{ACME}&range=30{query}")
    await expect(visitor.page.get_by_role("heading", name="Usage", exact=True)).to_be_visible()


@scene()
async def usage(visitor: Visitor) -> None:
    await opens_usage(visitor)


@scene()
async def usage_in_tokens(visitor: Visitor) -> None:
    await opens_usage(visitor, "&show=tokens")
    await visitor.page.get_by_text("The days as a table").click()


@scene()
async def usage_by_member(visitor: Visitor) -> None:
    await opens_usage(visitor)
    await visitor.page.evaluate("scrollTo(0, document.body.scrollHeight)")


@scene()
async def usage_limits(visitor: Visitor) -> None:
    await opens_usage(visitor)
    await visitor.page.locator("#limits").scroll_into_view_if_needed()


@scene(account="Finn")
async def usage_as_member(visitor: Visitor) -> None:
    await opens_usage(visitor, "&show=tokens")
    await expect(visitor.page.get_by_role("heading", name="Your own use")).to_be_visible()


@scene(account="Eve")
async def usage_none(visitor: Visitor) -> None:
    await visitor.open("/usage/?range=last-month")  # whatever other scenes have used today
    await expect(visitor.page.get_by_text("Nothing was used.")).to_be_visible()


# In the admin

ROLLED: Final = """
    INSERT INTO quotas_usageday (organization_id, day, user_id, model, requests, input, cached, output, cost)
    SELECT organization_id, current_date, user_id, 'smollm2-135m', 3, 1000, 10, 500, 0.7 * membership.id
    FROM accounts_membership membership ON CONFLICT DO NOTHING
"""
CHECKED: Final = """
    WITH made AS (
        INSERT INTO quotas_usagecheck (began_at, ended_at, since, organizations, counters, findings)
        VALUES (now(), now(), current_date, 12, 30, 1) RETURNING id
    )
    INSERT INTO quotas_usagefinding (of_check_id, organization_id, what, subject, unit, in_ledger, found, found_at)
    SELECT id, %s, 'counter', 'org', 'tokens', 81200, 81250, now() FROM made
"""


@scene(account=STAFF)
async def admin_spenders(visitor: Visitor) -> None:
    visitor.site.execute(ROLLED)
    await opens(visitor, "quotas/topspender/")


@scene(account=STAFF)
async def admin_findings(visitor: Visitor) -> None:
    visitor.site.execute(CHECKED, ACME)
    await opens(visitor, "quotas/usagefinding/")
