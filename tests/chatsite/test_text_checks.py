"""What may stand in one line of text."""

import pytest

from chatsite.text_checks import clean_line, letters, line_problem

FAMILY = "\U0001f469\u200d\U0001f469\u200d\U0001f467"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Ada Lovelace",
        FAMILY,
        f"The {FAMILY} at home",
        "\u2764\ufe0f",
        "\U0001f44d\U0001f3fd",
        "\u0646\u0635 \u200f\u0639\u0631",  # Arabic with a mark of direction
        "\u0645\u06cc\u200c\u062e\u0648",  # Persian with a non-joiner
        "\u0915\u094d\u200d\u0937",  # Hindi with a joiner
        "\uff46\uff55",
        "...",
        "<script>",
        "a\u0300",
        "a\u00adb",
        "x\u200b",
        "\U0001d54f",
        "\U0001fae9",
    ],
)
def test_what_people_write(text: str) -> None:
    assert line_problem(text) == ""
    assert clean_line(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "a\nb", "a\rb", "a\tb", "a\0b", "a\x1bb", "a\x85b", "a\u2028b", "a\u2029b", "a\x7f", "\ud800", "a\ufffeb",
        *(f"a{chr(code)}b" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))),
    ],
)  # fmt: skip
def test_what_breaks_or_turns_a_line(text: str) -> None:
    assert "cannot be shown" in line_problem(text)
    assert line_problem(clean_line(text)) == ""


@pytest.mark.parametrize(
    "text",
    [
        "\u200b", "\u200b\u200b", "\u2060\u00ad", "\ufeff", "\u3164", "\u115f\u1160", "\uffa0", "\u200d", "\ufe0f",
        "\u034f", "\u2800", "\u17b4", "\u180e", "\U000e0041", "\u0301", " \u200b ", "\u3000\u200b",
    ],
)  # fmt: skip
def test_what_shows_nothing(text: str) -> None:
    assert "nothing" in line_problem(text)
    assert clean_line(text) == ""


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("a1 é", 3),
        ("....", 0),
        ("\u3164\u115f\u1160\uffa0\u200b", 0),
        ("\u6587\u5b57", 2),
        ("\u2460", 1),
        ("\U0001f44d", 0),
    ],
)
def test_letters_and_digits(text: str, count: int) -> None:
    assert letters(text) == count
