"""A finished reply's Markdown as HTML that is safe to show.

Three lines of defence, each enough on its own: raw HTML in the text is escaped, the result is cleaned by an allow-list,
and the page's Content-Security-Policy runs no inline script. Images become links: a fetched image would tell its host
who reads. `static/js/markdown.js` renders the same while a reply streams, so nothing jumps when it ends: what changes
here changes there.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

import nh3
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from pygments import highlight  # type: ignore[import-untyped]
from pygments.formatters import HtmlFormatter  # type: ignore[import-untyped]
from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]
from pygments.token import STANDARD_TYPES  # type: ignore[import-untyped]

from conversations.markdown_math import math_plugin

FOLD_LINES = 40  # longer code is folded
# Lexers take time with the square of some texts, a few without end. So code is coloured only in languages that were
# measured, each a quarter of a second at worst for a block of this length, and only so much of it in one text.
LANGUAGES = (
    "bash", "c", "cpp", "csharp", "css", "diff", "docker", "go", "html", "ini", "java", "javascript", "json", "kotlin",
    "lua", "markdown", "php", "python", "ruby", "rust", "scss", "sql", "swift", "toml", "typescript", "xml", "yaml",
)  # fmt: skip
HIGHLIGHT_CHARS = 3_000  # of a block; a longer one stays plain
SLOWEST = {"csharp": 1_000}  # the same for languages that take longer
HIGHLIGHT_BUDGET = 24_000  # characters of all blocks of a text; what comes after them stays plain
_LONG_RUN = re.compile(r"(.)\1{99}", re.DOTALL)  # one character again and again: what lexers bear least
_BREAK = re.compile(r"<br {0,9}/?>(?: {0,9}\n {0,99})?", re.IGNORECASE)  # and the end of a line right behind it
_SPENT = "highlighted"  # characters so far, in the renderer's environment
CLASS_PREFIX = "hl-"
_FORMATTER = HtmlFormatter(nowrap=True, classprefix=CLASS_PREFIX)
_CACHED_CHARS = 32_000  # longer texts are rendered each time, so that the cache stays within some MB

# What a block says it is -> its lexer, and how many characters it may have
_LEXERS = {
    alias.lower(): (type(lexer), SLOWEST.get(language, HIGHLIGHT_CHARS))
    for language, lexer in zip(LANGUAGES, map(get_lexer_by_name, LANGUAGES), strict=True)
    for alias in lexer.aliases
}

ALLOWED_TAGS = {
    "a", "blockquote", "br", "button", "code", "del", "div", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol",
    "p", "pre", "s", "span", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
}  # fmt: skip
ALLOWED_ATTRIBUTES = {"a": {"href", "title"}, "button": {"data-copy", "data-unfold"}, "ol": {"start"}}
ALLOWED_VALUES = {
    "button": {"type": {"button"}, "aria-expanded": {"false"}},
    "blockquote": {"dir": {"auto"}},
    "div": {"tabindex": {"0"}, "role": {"group"}, "aria-label": {"Table"}},
    "ol": {"dir": {"auto"}},
    "pre": {"tabindex": {"0"}, "role": {"group"}, "aria-label": {"Code"}},
    "table": {"dir": {"auto"}},
    "ul": {"dir": {"auto"}},
}
ALLOWED_CLASSES = {
    "button": {"quiet", "unfold"},
    "div": {"code", "code-head", "folded", "math", "scroll-x"},
    "span": {"display", "math", *(CLASS_PREFIX + name for name in STANDARD_TYPES.values() if name)},
}
ALLOWED_SCHEMES = {"http", "https", "mailto"}


def render_markdown(text: str) -> SafeString:
    """HTML of `text`; what an author or a model writes in it can neither run nor load anything."""
    return _render_cached(text) if len(text) <= _CACHED_CHARS else _render(text)


def _render(text: str) -> SafeString:
    html = nh3.clean(
        _MARKDOWN.render(text),
        tags=ALLOWED_TAGS,
        attributes=ALLOWED_ATTRIBUTES,
        tag_attribute_values=ALLOWED_VALUES,
        allowed_classes=ALLOWED_CLASSES,
        url_schemes=ALLOWED_SCHEMES,
        link_rel="noopener noreferrer nofollow",
        set_tag_attribute_values={"a": {"target": "_blank"}},
    )
    return mark_safe(html)


_render_cached = lru_cache(maxsize=256)(_render)


def _code_block(code: str, language: str, shown: str) -> str:
    """`shown`: the code as HTML."""
    copy = '<button type="button" class="quiet" data-copy>Copy</button>'
    head = f'<div class="code-head"><span>{escape(language)}</span>{copy}</div>'
    body = f'<pre tabindex="0" role="group" aria-label="Code"><code>{shown}</code></pre>'
    lines = code.count("\n")
    if lines <= FOLD_LINES:
        return f'<div class="code">{head}{body}</div>\n'
    more = f"Show all {lines} lines"
    unfold = f'<button type="button" class="quiet unfold" data-unfold aria-expanded="false">{more}</button>'
    return f'<div class="code folded">{head}{body}{unfold}</div>\n'


def _highlighted(code: str, language: str, env: EnvType) -> str:
    lexer, limit = _LEXERS.get(language.lower(), (None, 0))
    spent = env.get(_SPENT, 0) + len(code)
    if lexer is None or len(code) > limit or spent > HIGHLIGHT_BUDGET or _LONG_RUN.search(code):
        return escape(code)
    env[_SPENT] = spent
    options = {"stripnl": False, "ensurenl": False, "handlecodeblocks": False}  # the last: no lexer of its own choice
    shown = str(highlight(code, lexer(**options), _FORMATTER))
    return shown if code.endswith("\n") else shown.removesuffix("\n")  # the formatter ends each line


class _Renderer(RendererHTML):
    def fence(self, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
        code, info = tokens[index].content, tokens[index].info.split()
        language = info[0] if info else ""
        return _code_block(code, language, _highlighted(code, language, env))

    def code_block(self, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
        return _code_block(tokens[index].content, "", escape(tokens[index].content))

    def image(self, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
        token = tokens[index]
        alt = self.renderInlineAsText(token.children or [], options, env) or "Image"
        return f'<a href="{escape(token.attrs.get("src", ""))}">{escape(alt)}</a>'

    def table_open(self, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
        return '<div class="scroll-x" tabindex="0" role="group" aria-label="Table"><table dir="auto">'

    def table_close(self, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
        return "</table></div>"

    def math_inline(self, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
        display = " display" if tokens[index].meta.get("display") else ""
        return f'<span class="math{display}">{escape(tokens[index].content)}</span>'

    def math_block(self, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
        return f'<div class="math">{escape(tokens[index].content)}</div>\n'


def _break_plugin(parser: MarkdownIt) -> None:
    """The one tag that is no text: models write it to break a line, above all in the cell of a table."""
    parser.inline.ruler.before("autolink", "break_tag", _break_tag)


def _break_tag(state: StateInline, silent: bool) -> bool:
    found = _BREAK.match(state.src, state.pos, state.posMax)
    if found is None:
        return False
    if not silent:
        state.push("hardbreak", "br", 0)
    state.pos = found.end()
    return True


def _direction_plugin(parser: MarkdownIt) -> None:
    """Lists and quotes begin at the side where their language does, markers and bars too."""
    parser.core.ruler.push("direction", _set_direction)


def _set_direction(state: StateCore) -> None:
    for token in state.tokens:
        if token.type in ("blockquote_open", "bullet_list_open", "ordered_list_open"):
            token.attrSet("dir", "auto")


_OPTIONS = {"html": False, "breaks": True}
_MARKDOWN = (
    MarkdownIt("commonmark", _OPTIONS, renderer_cls=_Renderer)
    .enable(["table", "strikethrough"])
    .use(math_plugin)
    .use(_break_plugin)
    .use(_direction_plugin)
)
_MARKDOWN.render("x")  # what it compiles at first use is made here, not by several threads at once
