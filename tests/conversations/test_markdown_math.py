"""Formulas are found, and what only looks like one is left alone."""

import pytest

from conversations.markdown import render_markdown


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("let $x^2$ be", '<p>let <span class="math">x^2</span> be</p>'),
        ("$2x + 3$", '<p><span class="math">2x + 3</span></p>'),
        (r"\(a+b\)", '<p><span class="math">a+b</span></p>'),
        ("a $$b$$ c", '<p>a <span class="math display">b</span> c</p>'),
        (r"so \[x=1\] is", '<p>so <span class="math display">x=1</span> is</p>'),
        ("$$\nx^2\n\ny\n$$", '<div class="math">x^2\n\ny</div>'),
        ("$$x$$", '<div class="math">x</div>'),
        ("\\[\nx = 1\n\\]", '<div class="math">x = 1</div>'),
        ("text\n$$\nx\n$$\nmore", '<p>text</p>\n<div class="math">x</div>\n<p>more</p>'),
        ("> $$\n> x_1\n> $$", '<blockquote dir="auto">\n<div class="math">x_1</div>\n</blockquote>'),
        ("$a < b$", '<p><span class="math">a &lt; b</span></p>'),
        ("$a*b*c$ and *d*", '<p><span class="math">a*b*c</span> and <em>d</em></p>'),
    ],
)
def test_a_formula_is_kept_as_it_is_written(text: str, html: str) -> None:
    assert render_markdown(text).strip() == html


@pytest.mark.parametrize(
    "text",
    [
        "$5 and $10",
        "it costs $5/month or US$6",
        "$HOME:$PATH",
        "a $ b $ c",
        "$a",
        "$$",
        "$$a",
        r"\(a",
        r"\[TODO\]",
        "\\[\nTODO\n\\]",
        "`$x$`",
        "```\n$x$\n```",
        r"\$5 and \$6",
        "    $$\n    x\n    $$",
    ],
)
def test_prices_paths_and_code_are_not_formulas(text: str) -> None:
    assert "math" not in render_markdown(text)


def test_s34_markup_in_a_formula_is_text() -> None:
    html = render_markdown("$<img src=x onerror=alert(1)>$ \\(<script>x</script>\\)\n\n$$\n<svg onload=x>\n$$")
    assert "<img" not in html
    assert "<script" not in html
    assert "<svg" not in html
