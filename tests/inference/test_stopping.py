"""Stop strings, however the text is cut into pieces."""

from hypothesis import given
from hypothesis import strategies as st

from inference.stopping import StopMatcher

LETTERS = st.text(alphabet="ab🌊", max_size=40)
STOPS = st.lists(st.text(alphabet="ab🌊", min_size=1, max_size=4), min_size=1, max_size=4)


def expected(text: str, stops: list[str]) -> tuple[str, bool]:
    places = [place for stop in stops if (place := text.find(stop)) >= 0]
    return (text[: min(places)], True) if places else (text, False)


def ends_first(text: str, stops: list[str]) -> tuple[str, bool]:
    """Character by character, as a reader would: the first stop string that is complete decides."""
    for end in range(1, len(text) + 1):
        shown, matched = expected(text[:end], stops)
        if matched:
            return shown, True
    return text, False


@given(LETTERS, STOPS)
def test_one_character_at_a_time(text: str, stops: list[str]) -> None:
    matcher = StopMatcher(stops)
    shown = "".join(matcher.feed(character) for character in text)
    if not matcher.matched:
        shown += matcher.flush()
    assert (shown, matcher.matched) == ends_first(text, stops)


@given(st.lists(st.text(alphabet="ab🌊", max_size=5), max_size=10), STOPS)
def test_nothing_that_was_shown_is_taken_back(pieces: list[str], stops: list[str]) -> None:
    matcher = StopMatcher(stops)
    shown = ""
    for piece in pieces:
        shown += matcher.feed(piece)
        assert not any(stop in shown for stop in stops)
    text = "".join(pieces)
    assert text.startswith(shown + matcher.held)
    if not matcher.matched:
        assert shown + matcher.flush() == text


@given(LETTERS, STOPS, st.integers(0, 40))
def test_one_that_is_complete_too_early_does_not_count(text: str, stops: list[str], early: int) -> None:
    matcher = StopMatcher(stops)
    shown = "".join(matcher.feed(character, deaf=number < early) for number, character in enumerate(text))
    if not matcher.matched:
        shown += matcher.flush()
    ends = [end for end in range(early + 1, len(text) + 1) if any(text[:end].endswith(stop) for stop in stops)]
    if not ends:
        assert (shown, matcher.matched) == (text, False)
        return
    longest = max(len(stop) for stop in stops if text[: ends[0]].endswith(stop))
    assert (shown, matcher.matched) == (text[: ends[0] - longest], True)


def test_what_may_begin_a_stop_string_waits() -> None:
    matcher = StopMatcher(["\n\nUser:"])
    assert matcher.feed("Fine.\n") == "Fine."
    assert matcher.held == "\n"
    assert matcher.feed("\nUse") == ""
    assert matcher.feed("less") == "\n\nUseless"
    assert matcher.feed("\n\nUser: more") == ""
    assert matcher.matched
    assert matcher.feed("again") == ""
