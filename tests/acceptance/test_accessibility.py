"""Every scene through axe, light and dark; and what a screen reader finds in a reply that streams."""

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, expect

from tests.acceptance.browsing import LAST_REPLY, Visitor, wear
from tests.acceptance.gallery import THEMES, Scene, stage
from tests.acceptance.live_site import LiveSite
from tests.acceptance.scenes import SCENES

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]
OPTIONS = {
    "resultTypes": ["violations"],
    "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
}
# What the admin's theme draws by itself, and no setting changes: a rule, and how axe names the element.
FOREIGN = {
    "admin": [
        ("landmark-unique", ".simplebar-content-wrapper"),  # every scroll area has the same label
        ("target-size", ".sortremove"),  # links in the headings of lists
        ("target-size", ".hover\\:text-base-500"),
        ("target-size", ".text > a[href"),
        ("aria-input-field-name", "select2"),  # boxes that search in a list
        ("empty-table-header", ".lg\\:w-px"),  # above the buttons that delete a row
    ],
}
SWAGGER = {"exclude": [["#swagger-ui"]]}  # a library's own page; only what is around it is ours


# Between them these have every element that is ours; the others are looked at by `make test-long`.
OFTEN = """
    new-chat sidebar row-menu rename-dialog delete-dialog title-edited search model-menu account-menu share-link
    shared-page not-found streaming queued model-loading stopped failed-with-details high-demand not-sent code-folded
    table-and-math editing versions context-full sign-in-wrong sign-up-refused locked-out account
    budget-refused budgets statement webhook key-paused
    key-new-refused key-manage organization-invitations organization-invite-refused member-refused invitation
    usage usage-in-tokens
""".split()  # noqa: SIM905


def foreign(scene: Scene, rule: str, target: str) -> bool:
    known = [pair for name, pairs in FOREIGN.items() if scene.name.startswith(name) for pair in pairs]
    return any(rule.startswith(known_rule) and part in target for known_rule, part in known)


async def violations(visitor: Visitor, scene: Scene) -> list[str]:
    """One text for each fault: the rule, where, and what axe says of it."""
    found = await Axe().run(visitor.page, SWAGGER if scene.name == "api-reference" else None, OPTIONS)
    places = [
        (rule["id"], " ".join(map(str, node["target"])), node["failureSummary"])
        for rule in found.response["violations"]
        for node in rule["nodes"]
    ]
    return [f"{rule} at {at}: {why}" for rule, at, why in places if not foreign(scene, rule, at)]


@pytest.mark.parametrize(
    "scene",
    [pytest.param(each, id=each.name, marks=[] if each.name in OFTEN else pytest.mark.long) for each in SCENES],
)
async def test_axe_finds_nothing(site: LiveSite, browser: Browser, scene: Scene) -> None:
    for viewport in scene.viewports[-1:]:
        async with stage(site, browser, scene, viewport) as visitor:
            for theme in THEMES:
                await wear(visitor.page, theme)
                found = await violations(visitor, scene)
                assert not found, "\n".join([theme, *found])


@pytest.mark.parametrize("name", ["sidebar", "code", "account", "sign-in"])
async def test_axe_finds_nothing_on_a_phone(site: LiveSite, browser: Browser, name: str) -> None:
    [scene] = [scene for scene in SCENES if scene.name == name]
    async with stage(site, browser, scene, "phone") as visitor:
        found = await violations(visitor, scene)
        assert not found, "\n".join(found)


async def test_s36_a_streaming_turn_in_the_accessibility_tree(visitor: Visitor) -> None:
    page = visitor.page
    visitor.site.engine("options", script="A **river** runs to the sea.\n" * 40, tokens_per_second=20)
    await visitor.send("Where does a river run?")
    await visitor.reply_grows(beyond=10)
    turn = page.locator(LAST_REPLY)
    await expect(turn).to_have_attribute("aria-busy", "true")
    assert await page.locator("[aria-live]:has(.turn), [role=log], [role=status]:has(.turn)").count() == 0
    await expect(turn).to_match_aria_snapshot("- article:\n  - heading /SmolLM2/ [level=2]\n  - paragraph")
    await expect(page.get_by_role("main")).to_match_aria_snapshot('- textbox "Message"\n- button "Stop"')
    await visitor.press("Stop")
    await visitor.idle()
    await expect(turn).not_to_have_attribute("aria-busy", "true")
    await expect(turn).to_match_aria_snapshot(
        """
        - article:
          - heading /SmolLM2/ [level=2]
          - paragraph
          - text: Stopped
          - button "Continue"
          - button "Copy"
          - group "Feedback":
            - button "Good reply"
            - button "Bad reply"
          - button "Regenerate"
        """
    )
    await expect(page.get_by_role("main")).to_match_aria_snapshot('- textbox "Message"\n- button "Send"')
