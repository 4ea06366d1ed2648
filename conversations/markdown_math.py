r"""Formulas in Markdown, for markdown-it: `$$..$$`, `\[..\]`, `\(..\)`, and `$..$` where it cannot be a price.

They are kept as they are written; `static/js/math.js` typesets them in the browser.
"""

import re
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline

MAX_INLINE: Final = 2_000  # characters; also bounds what is searched for an end that is not there
MAX_LINES: Final = 40  # of a block
CLOSINGS: Final = {"$$": "$$", "\\[": "\\]", "\\(": "\\)"}
_FORMULA: Final = re.compile(r"[\\^_={}+*<>|]")  # what a price, or an escaped bracket, does not have


def math_plugin(parser: MarkdownIt) -> None:
    """Adds tokens `math_inline` (`meta["display"]`: on a line of its own) and `math_block`; `content` is TeX."""
    parser.inline.ruler.before("escape", "math_inline", math_inline)
    parser.block.ruler.before(
        "fence", "math_block", math_block, {"alt": ["paragraph", "reference", "blockquote", "list"]}
    )


def math_inline(state: StateInline, silent: bool) -> bool:
    opening = state.src[state.pos : state.pos + 2]
    if opening in CLOSINGS:
        found = _delimited(state.src, state.pos, state.posMax, opening)
    elif opening.startswith("$"):
        found = _dollars(state.src, state.pos, state.posMax)
    else:
        return False
    if found is None:
        return False
    content, end = found
    if not silent:
        token = state.push("math_inline", "span", 0)
        token.content = content
        token.meta = {"display": opening in ("$$", "\\[")}
    state.pos = end
    return True


def _delimited(text: str, start: int, limit: int, opening: str) -> tuple[str, int] | None:
    """The formula that begins at `start`, and where the text goes on."""
    end = text.find(CLOSINGS[opening], start + 2, min(limit, start + MAX_INLINE))
    content = text[start + 2 : end].strip() if end > 0 else ""
    if not content or (opening == "\\[" and not _FORMULA.search(content)):
        return None
    return content, end + 2


def _dollars(text: str, start: int, limit: int) -> tuple[str, int] | None:
    """As `_delimited`, for single dollars: no blank inside of them, nothing that may be a word or a price behind."""
    first = text[start + 1 : start + 2]
    if not first or first.isspace() or text[start - 1 : start].isalnum():
        return None
    end = text.find("$", start + 1, min(limit, start + MAX_INLINE))
    content = text[start + 1 : end] if end > 0 else ""
    if not content or content[-1].isspace() or content[-1] == "\\" or text[end + 1 : end + 2].isalnum():
        return None
    if first.isdigit() and not _FORMULA.search(content):
        return None
    return content, end + 1


def math_block(state: StateBlock, first: int, last: int, silent: bool) -> bool:
    if state.is_code_block(first):
        return False
    line = _line(state, first)
    opening = line[:2]
    if opening not in ("$$", "\\["):
        return False
    closing = CLOSINGS[opening]
    lines = [line[2:]]
    row = first
    while not lines[-1].endswith(closing):
        row += 1
        if row >= min(last, first + MAX_LINES) or state.sCount[row] < state.blkIndent:
            return False
        lines.append(_line(state, row))
        if lines[-1].startswith(opening) and not lines[-1].endswith(closing):
            return False  # another begins: this one has no end
    content = "\n".join(lines).removesuffix(closing).strip()
    if not content or closing in content or (opening == "\\[" and not _FORMULA.search(content)):
        return False
    if not silent:
        token = state.push("math_block", "div", 0)
        token.content = content
        token.block = True
        token.map = [first, row + 1]
        state.line = row + 1
    return True


def _line(state: StateBlock, row: int) -> str:
    return state.src[state.bMarks[row] + state.tShift[row] : state.eMarks[row]].rstrip()
