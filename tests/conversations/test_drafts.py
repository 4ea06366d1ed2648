"""Titles: pure."""

import pytest

from conversations.drafts import TITLE_CHARACTERS, title_from


@pytest.mark.parametrize(
    ("content", "title"),
    [
        ("Hello", "Hello"),
        ("  two\n\nlines \t here ", "two lines here"),
        ("x" * 60, "x" * 60),
        ("x" * 61, "x" * 60 + "…"),
        ("word " * 20, "word " * 11 + "word…"),
        (
            "Tell me about whales, their songs, and how they sleep; I mean all of it",
            "Tell me about whales, their songs, and how they sleep; I…",
        ),
        ("\N{WHALE}" * 70, "\N{WHALE}" * 60 + "…"),
        ("pay \u202e001\u202c \x1b[31meuros\x7f", "pay 001 [31meuros"),  # nothing that turns a line around, or controls
        ("\u200b\u3164 \u2066", ""),
    ],
)
def test_a_title_is_the_first_words_of_a_message(content: str, title: str) -> None:
    assert title_from(content) == title
    assert len(title) <= TITLE_CHARACTERS + 1
