"""A reply's Markdown as it streams: the page makes the same of it as the server, and takes nothing back."""

from pathlib import Path

import pytest

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
    site.engine("options", script=LONG, tokens_per_second=400)
    await page.evaluate(ENDING)
    await visitor.send("Explain it")
    await visitor.idle()
    looks = await page.evaluate("ending")
    end = next(place for place, look in enumerate(looks) if not look["running"])
    assert looks[end - 1] == {"running": True, "height": looks[end]["height"], "formulas": 3}
    assert looks[end]["formulas"] == 3
    assert await page.locator(f"{LAST_REPLY} .folded").count() == 0
    await page.reload()
    assert await page.locator(f"{LAST_REPLY} .folded").count() == 1
