"""What may stand in one line of text that other people read: names, titles, reasons."""

import unicodedata
from typing import Final

from django.core.exceptions import ValidationError

NOT_SHOWN: Final = "This has characters that cannot be shown, such as line breaks or control characters."
NOTHING_SHOWN: Final = "This shows nothing: it has only characters that cannot be seen."
# They turn around how the rest of a line reads.
BIDI_CONTROLS: Final = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
BREAKING: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})
UNSEEN: Final = frozenset({*BREAKING, "Cf", "Zs", "Mn", "Me"})  # by themselves
# Letters and a symbol by their category, yet drawn as nothing: the fillers of Hangul, and the empty Braille pattern.
BLANKS: Final = frozenset("\u115f\u1160\u3164\uffa0\u2800")
LAST_OF_PLANE: Final = 0xFFFE  # U+FFFE, U+FFFF and their like in each plane are no characters


def line_problem(text: str) -> str:
    """Why this is no line of text, in a sentence; empty when it is one. Empty text is.

    Joiners and variation selectors are fine inside of a text: emoji and several scripts are written with them.
    """
    if any(_breaks(each) for each in text):
        return NOT_SHOWN
    return "" if not text or _shows(text) else NOTHING_SHOWN


def check_line(text: str) -> None:
    """`line_problem` as a validator of forms. Raises ValidationError."""
    if problem := line_problem(text):
        raise ValidationError(problem, code="line")


def clean_line(text: str) -> str:
    """`text` without what `line_problem` objects to; empty where nothing to see is left."""
    kept = "".join(each for each in text if not _breaks(each))
    return kept if _shows(kept) else ""


def letters(text: str) -> int:
    """How many letters and digits it has that can be seen."""
    return sum(unicodedata.category(each)[0] in "LN" and each not in BLANKS for each in text)


def _breaks(character: str) -> bool:
    is_none = ord(character) & LAST_OF_PLANE == LAST_OF_PLANE
    return is_none or character in BIDI_CONTROLS or unicodedata.category(character) in BREAKING


def _shows(text: str) -> bool:
    return any(unicodedata.category(each) not in UNSEEN and each not in BLANKS for each in text)
