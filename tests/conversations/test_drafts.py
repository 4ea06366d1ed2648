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
    ],
)
def test_a_title_is_the_first_words_of_a_message(content: str, title: str) -> None:
    assert title_from(content) == title
    assert len(title) <= TITLE_CHARACTERS + 1
