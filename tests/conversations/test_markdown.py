"""S34: what is written in a reply cannot run, load or navigate."""

import time

import pytest

from conversations.markdown import HIGHLIGHT_BUDGET, HIGHLIGHT_CHARS, LANGUAGES, SLOWEST, render_markdown

LEXERS_DREAD = [
    "a", " ", "\n", "\t", "<", '"', "\\", "a\n", " \n", "\n ", "a ", "a.", "a-", "a=", '\\"', "'\\", "<?", "$(", "> ",
    "![", "/*",
]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        '<a href="javascript:alert(1)">x</a>',
        "[x](javascript:alert(1))",
        "[x](JaVaScRiPt:alert(1))",
        "[x](&#106;avascript:alert(1))",
        "[x](java\tscript:alert(1))",
        "[x](vbscript:x)",
        "[x](data:text/html;base64,PHNjcmlwdD4=)",
        "![x](javascript:alert(1))",
        "![x](data:image/svg+xml;base64,PHN2Zz4=)",
        "<svg/onload=alert(1)>",
        '<div hx-get="/x" hx-trigger="load" data-hx-get="/x">x</div>',
        "<style>*{display:none}</style>",
        "<iframe src=//x></iframe>",
        '```"><script>alert(1)</script>\nx\n```',
        "```html\n<script>alert(1)</script>\n```",
        '[x](http://x "onmouseover=alert(1)")',
        '[x](http://x" onmouseover="alert(1))',
        "<hx-partial hx-target='body'>x</hx-partial>",
    ],
)
def test_s34_nothing_in_a_text_runs(text: str) -> None:
    html = render_markdown(text)
    tags = [part.split(">", 1)[0].lower() for part in html.split("<")[1:]]
    assert not any(
        tag.startswith(("script", "img", "svg", "iframe", "style", "hx-", "object", "embed", "form")) for tag in tags
    )
    assert not any(
        word in tag for tag in tags for word in ("javascript:", "vbscript:", "data:", " on", "hx-", "style=")
    )


def test_s34_an_image_becomes_a_link_so_that_no_host_learns_who_reads() -> None:
    html = render_markdown("![a *cat*](https://example.org/cat.png)")
    assert "<img" not in html
    assert '<a href="https://example.org/cat.png"' in html
    assert ">a cat</a>" in html


def test_links_open_apart_and_tell_nothing() -> None:
    html = render_markdown("[docs](https://example.org/a?b=1&c=2)")
    assert 'href="https://example.org/a?b=1&amp;c=2"' in html
    assert 'rel="noopener noreferrer nofollow"' in html
    assert 'target="_blank"' in html


def test_ordinary_markdown() -> None:
    html = render_markdown("# T\n\nOne **two** ~~three~~ `four`\nfive\n\n1. a\n2. b\n\n> q")
    for part in (
        "<h1>T</h1>",
        "<strong>two</strong>",
        "<s>three</s>",
        "<code>four</code><br>",
        '<ol dir="auto">',
        "<li>a</li>",
        '<blockquote dir="auto">',
    ):
        assert part in html


def test_the_tag_that_breaks_a_line_is_no_text() -> None:
    assert render_markdown("a<br>b<br/>c<BR />d") == "<p>a<br>\nb<br>\nc<br>\nd</p>\n"
    assert render_markdown("a<br>\nb") == "<p>a<br>\nb</p>\n"  # once
    assert "<td>x<br>\ny</td>" in render_markdown("|a|b|\n|-|-|\n|x<br>y|z|")
    assert render_markdown("`<br>` \\<br> <br x>") == "<p><code>&lt;br&gt;</code> &lt;br&gt; &lt;br x&gt;</p>\n"


def test_code_without_an_end_gets_no_line_more_by_its_colours() -> None:
    assert render_markdown("```js\nx").endswith("</code></pre></div>\n")
    assert ">x</span></code>" in render_markdown("```js\nx")


def test_code_is_highlighted_by_classes_and_has_a_head() -> None:
    html = render_markdown("```python\ndef f(): return '<b>'\n```")
    assert '<div class="code"><div class="code-head"><span>python</span>' in html
    assert '<span class="hl-k">def</span>' in html
    assert "data-copy" in html
    assert "&lt;b&gt;" in html


@pytest.mark.parametrize("language", ["", "no-such-language", "python {3}"])
def test_code_of_any_language_keeps_its_text(language: str) -> None:
    assert "a &lt; b" in render_markdown(f"```{language}\na < b\n```").replace(
        '<span class="hl-o">&lt;</span>', "&lt;"
    ).replace('<span class="hl-n">', "").replace("</span>", "").replace('<span class="hl-w">', "")


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_code_block_holds_the_process(language: str) -> None:
    size = SLOWEST.get(language, HIGHLIGHT_CHARS)
    took = {}
    for unit in LEXERS_DREAD:
        for begin in ("", "{", '"'):
            code = (begin + unit * size)[: size - 1] + "\n"
            started = time.process_time()
            render_markdown(f"```{language}\n{code}```")
            took[begin + unit] = time.process_time() - started
    assert max(took.values()) < 1.2, max(took, key=lambda shape: took[shape])  # a quarter of that on a free machine


def test_code_that_a_lexer_takes_long_for_stays_plain() -> None:
    lines = "x = 1\n" * (HIGHLIGHT_CHARS // 6)
    assert "hl-" in render_markdown(f"```python\n{lines}```")
    for code in (lines + "x = 1\n", "x = 1" + " " * 100 + "\n"):
        assert "hl-" not in render_markdown(f"```python\n{code}```")
    assert "hl-" not in render_markdown("```autoit\nx = 1\n```")  # no language that was measured


def test_a_text_has_only_so_much_colour() -> None:
    block = "```python\n" + "x = 1\n" * (HIGHLIGHT_CHARS // 6) + "```\n\n"
    html = render_markdown(block * 30)
    coloured = [part for part in html.split('<div class="code folded">') if "hl-" in part]
    assert len(coloured) == HIGHLIGHT_BUDGET // HIGHLIGHT_CHARS


def test_a_language_may_be_written_in_capitals() -> None:
    assert "hl-" in render_markdown("```Python\nx = 1\n```")


@pytest.mark.parametrize(("lines", "folded"), [(40, False), (41, True)])
def test_long_code_is_folded(lines: int, folded: bool) -> None:
    html = render_markdown("```\n" + "x\n" * lines + "```")
    assert ('<div class="code folded">' in html) is folded
    assert ("Show all 41 lines" in html) is folded


def test_tables_scroll_in_their_own_box() -> None:
    html = render_markdown("|a|b|\n|-|-|\n|1|2|")
    assert '<div class="scroll-x" tabindex="0" role="group" aria-label="Table"><table dir="auto">' in html
    assert "<td>1</td>" in html


@pytest.mark.parametrize(
    "text",
    [
        "a" * 300_000,
        "*" * 30_000,
        "[" * 30_000,
        "`" * 30_000,
        "> " * 5_000 + "x",
        "```python\n" + "x = 1\n" * 20_000,
        "|a" * 20_000,
        "$a " * 20_000,
        "\\(" * 20_000,
        "\\[\n" * 10_000,
        "$$a\n" * 10_000,
    ],
    ids=["long word", "stars", "brackets", "ticks", "quotes", "code", "pipes", "dollars", "math", "blocks", "double"],
)
def test_hostile_and_long_texts_take_bounded_time(text: str) -> None:
    started = time.process_time()
    render_markdown(text)
    assert time.process_time() - started < 5  # a third of that on a free machine
