"""Why somebody of the staff looks at what others wrote: a sentence that is kept for ever."""

from typing import Final

from chatsite.errors import InvalidInput
from chatsite.text_checks import letters, line_problem

LEAST_REASON: Final = 10  # letters and digits: a word is no reason
MOST_REASON: Final = 500  # characters


def stated(reason: str) -> str:
    """The reason in one line. Raises InvalidInput for one that is none."""
    found = " ".join(reason.split())
    if problem := line_problem(found):
        raise InvalidInput(problem, param="reason")
    if letters(found) < LEAST_REASON or len(found) > MOST_REASON:
        message = f"Say why in {MOST_REASON} characters or less, at least {LEAST_REASON} of them letters or digits."
        raise InvalidInput(message, param="reason")
    return found
