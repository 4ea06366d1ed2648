"""A reply's Markdown as it streams: the page makes the same of it as the server, and takes nothing back."""

from itertools import pairwise
from pathlib import Path

import pytest
from playwright.async_api import expect

from conversations.markdown import render_markdown
from tests.acceptance.browsing import LAST_REPLY, Visitor
from tests.acceptance.markdown_texts import TAKEN_BACK, TEXTS

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]
CHECK = (Path(__file__).parent / "markdown_check.mjs").read_text()


async def test_s34_page_and_server_agree_and_nothing_is_taken_back(visitor: Visitor) -> None:
    cases = [{"name": name, "text": text, "html": render_markdown(text)} for name, text in TEXTS.items()]
    faults = await visitor.page.evaluate(CHECK[CHECK.index("async (") :], cases)
    assert [fault for fault in faults if fault["what"] == "differs"] == []
    assert {fault["name"] for fault in faults} <= TAKEN_BACK, faults


TOUCHED = """async () => {
  const { MarkdownStream } = await import("/static/js/markdown_stream.js");
  const root = document.querySelector("main").appendChild(document.createElement("div"));
  root.className = "prose";
  const stream = new MarkdownStream(root);
  const write = (text) => { stream.push(text); stream.paint(); };
  write("- Let $x^2$ be\\n\\n  ```\\n  " + "wide ".repeat(400) + "\\n  ne");
  while (!root.querySelector(".katex")) await new Promise(requestAnimationFrame);
  const [formula, block] = [root.querySelector(".katex"), root.querySelector("pre")];
  block.scrollLeft = 70;
  const code = block.firstChild.firstChild;
  getSelection().setBaseAndExtent(code, 0, code, 4);
  write("xt\\n  ```\\n- and $y^");
  const result = {
    formula: formula === root.querySelector(".katex"),
    scrolled: root.querySelector("pre").scrollLeft,
    selected: getSelection().toString(),
    last: root.querySelector("li:last-child").innerText,
  };
  root.remove();
  return result;
}"""


async def test_what_a_reader_has_touched_stays_while_the_block_grows(visitor: Visitor) -> None:
    touched = await visitor.page.evaluate(TOUCHED)
    assert touched == {"formula": True, "scrolled": 70, "selected": "wide", "last": "and $y^"}


ENDING = """() => {
  window.ending = [];
  const look = () => {
    const prose = document.querySelector("#thread .turn.assistant:last-child > .prose");
    if (prose) ending.push({
      running: prose.classList.contains("rendered"),
      height: prose.offsetHeight,
      formulas: prose.querySelectorAll(".katex").length,
    });
  };
  document.addEventListener("htmx:before:swap", look);
  document.addEventListener("htmx:after:swap", look);
}"""
LONG = (
    "Let \\(a_1\\) be:\n\n$$\nx^2\n$$\n\n```python\n" + "print(1)\n" * 60 + "```\n\n"
    "| a | b |\n|---|---|\n| 1<br>2 | $y^2$ |\n\n1. one\n\n   - two\n2. three"
)


async def test_nothing_moves_when_a_reply_ends(visitor: Visitor) -> None:
    """Its long code is folded when it is shown the next time."""
    page, site = visitor.page, visitor.site
    conversation = site.say("Ada", "First", "Let \\(z\\) be.")
    await visitor.open(f"/c/{conversation}")
    await page.locator(".math .katex").wait_for()  # what typesets is loaded
    site.engine("options", script=LONG, tokens_per_second=400)
    await page.evaluate(ENDING)
    await visitor.send("Explain it")
    await visitor.reply_grows()
    await visitor.idle()
    looks = await page.evaluate("ending")
    pairs = enumerate(pairwise(looks), 1)
    end = next(place for place, (before, look) in pairs if before["running"] and not look["running"])
    assert looks[end - 1] == {"running": True, "height": looks[end]["height"], "formulas": 3}
    assert looks[end]["formulas"] == 3
    assert await page.locator(f"{LAST_REPLY} .folded").count() == 0
    await page.reload()
    assert await page.locator(f"{LAST_REPLY} .folded").count() == 1


SELECT = """() => {
  const text = document.querySelector("#thread [aria-busy=true] .prose p").firstChild;
  getSelection().setBaseAndExtent(text, 0, text, 11);
}"""


async def test_what_is_selected_while_a_reply_streams_stays_selected_when_it_ends(visitor: Visitor) -> None:
    page = visitor.page
    visitor.site.engine("options", script="First words here.\n\n" + "and more of it " * 40, tokens_per_second=60)
    await visitor.send("Go on")
    await visitor.reply_grows(beyond=30)
    await page.evaluate(SELECT)
    await visitor.idle()
    assert await page.evaluate("getSelection().toString()") == "First words"


HUGE = """async ([text, parts]) => {
  const { MarkdownStream } = await import("/static/js/markdown_stream.js");
  const root = document.querySelector("main").appendChild(document.createElement("div"));
  root.className = "prose";
  const stream = new MarkdownStream(root);
  const size = Math.ceil(text.length / parts);
  let worst = 0;
  const timed = (work) => {
    const start = performance.now();
    work();
    worst = Math.max(worst, performance.now() - start);
  };
  for (let at = 0; at < text.length; at += size) {
    stream.push(text.slice(at, at + size));
    timed(() => stream.paint());
  }
  timed(() => stream.end());
  const result = {
    worst,
    words: root.textContent.replaceAll("\\n", "").match(/word\\d+/g).length,
    last: root.lastElementChild.outerHTML,
    plain: root.querySelectorAll(".plain").length,
  };
  root.remove();
  return result;
}"""
ENDS = "\n\nAnd *then*.\n"
HUGE_TEXTS = {
    "nested": ("*".join(f"word{at} " for at in range(9_000)) + "b*" * 9_000, 9_000, True),
    "list": ("".join(f"- word{at} *x*\n" for at in range(14_000)), 14_000, True),
    "table": ("| a | b |\n|---|---|\n" + "".join(f"| word{at} | `2` |\n" for at in range(11_000)), 11_000, True),
    "code": ("```\n" + "".join(f"word{at} = 1\n\nx\n" for at in range(11_000)) + "```", 11_000, False),
}


@pytest.mark.parametrize("name", HUGE_TEXTS)
@pytest.mark.parametrize("parts", [1, 24])
async def test_s34_a_huge_block_does_not_stop_the_page(visitor: Visitor, name: str, parts: int) -> None:
    """What comes behind it is rendered again."""
    text, words, plain = HUGE_TEXTS[name]
    found = await visitor.page.evaluate(HUGE, [text + ENDS, parts])
    assert found["worst"] < 1_500, "ms"  # it was 47 s
    assert (found["words"], found["last"]) == (words, "<p>And <em>then</em>.</p>")
    assert plain or not found["plain"], "code is never too slow"


OVERLAY = r"Look \(\rlap{\smash{\raisebox{-20em}{\rule{50em}{50em}}}}\) here, \(\smash{\raisebox{7em}{x}}\), \(x_1\)."
HIT = """() => [...Array(800).keys()].map((at) => [Math.floor(at / 20), at % 20]).filter(([row, column]) => {
  const [x, y] = [(column + 0.5) * innerWidth / 20, (row + 0.5) * innerHeight / 40];
  const math = document.elementFromPoint(x, y)?.closest(".math");
  if (!math) return false;
  const turn = math.closest(".turn").getBoundingClientRect();
  return x < turn.left || x > turn.right || y < turn.top || y > turn.bottom;
})"""
# How far the formula's base line is from that of the word before it
BASE_LINES = """() => [...document.querySelectorAll(".math")].map((math) => {
  const mark = () => Object.assign(document.createElement("span"), { style: "display:inline-block" });
  const [inner, outer] = [mark(), mark()];
  math.querySelector(".katex-html").append(inner);
  math.before(outer);
  const far = inner.getBoundingClientRect().bottom - outer.getBoundingClientRect().bottom;
  inner.remove();
  outer.remove();
  return Math.round(far);
})"""


async def test_s34_a_formula_draws_and_takes_clicks_in_its_own_place_alone(visitor: Visitor) -> None:
    page, site = visitor.page, visitor.site
    conversation = site.say("Ada", "First", "An answer.")
    site.say("Ada", "Second", OVERLAY, conversation)
    await visitor.open(f"/c/{conversation}")
    await page.locator(".math .katex").nth(2).wait_for()
    assert await page.evaluate(HIT) == []
    assert await page.evaluate(BASE_LINES) == [0, 0, 0]


WIDE = r"\left(" + "+".join(f"a_{{{at}}}" for at in range(12)) + r"\right)"


async def test_a_long_formula_in_a_line_scrolls_in_its_own_box(visitor: Visitor) -> None:
    page, site = visitor.page, visitor.site
    conversation = site.say("Ada", "On a phone", f"Here \\({WIDE}\\) it is.")
    await page.set_viewport_size({"width": 390, "height": 780})
    await visitor.open(f"/c/{conversation}")
    await page.locator(".math .katex").wait_for()
    widths = "(e => [e.scrollWidth, e.clientWidth])"
    scroll = await page.evaluate(f"{widths}(document.getElementById('scroll'))")
    formula = await page.evaluate(f"{widths}(document.querySelector('.math'))")
    assert scroll[0] == scroll[1] and formula[0] > formula[1]
    await page.locator(".math[tabindex]").focus()
    await page.keyboard.press("ArrowRight")
    await page.wait_for_function("() => document.querySelector('.math').scrollLeft > 0")
    await page.set_viewport_size({"width": 1_400, "height": 780})
    await expect(page.locator(".math[tabindex]")).to_have_count(0)  # nothing to scroll


async def test_formulas_are_typeset_when_what_does_it_could_not_be_loaded_at_first(visitor: Visitor) -> None:
    page, site = visitor.page, visitor.site
    conversation = site.say("Ada", "One", "Let \\(x^2\\) be")
    await page.route("**/katex/**", lambda route: route.abort())
    await visitor.open(f"/c/{conversation}")
    await page.locator(".math.unset").wait_for()
    assert "until the site can be reached" in str(await page.locator(".math").get_attribute("title"))
    await page.unroute("**/katex/**")
    site.say("Ada", "Two", "And \\(y^3\\) too", conversation)
    await page.locator(".math .katex").nth(1).wait_for()
    assert await page.locator(".math[title]").count() == 0
    visitor.complaints.clear()  # the browser calls what was not loaded an error
