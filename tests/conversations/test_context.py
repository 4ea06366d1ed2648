"""What of the history fits: pure."""

from hypothesis import given
from hypothesis import strategies as st

from conversations.context import (
    LOW_WATERMARK,
    PROMPT_OVERHEAD,
    TURN_OVERHEAD,
    Entry,
    first_kept,
    join_turns,
    reply_room,
)
from inference.protocol import Role

LIMIT = 1000
SIZES = st.lists(st.tuples(st.integers(1, 300), st.integers(0, 300)), max_size=60)


def branch(sizes: list[tuple[int, int]], last: int = 10) -> list[Entry]:
    """Turns of the user and the replies to them, then the turn to be answered. A reply of 0 tokens has no text."""
    entries = []
    for user, reply in sizes:
        entries += [Entry(Role.USER, user), Entry(Role.ASSISTANT, reply, usable=reply > 0)]
    return [*entries, Entry(Role.USER, last)]


def cost(entries: list[Entry]) -> int:
    return PROMPT_OVERHEAD + sum(entry.tokens + TURN_OVERHEAD for entry in entries if entry.usable)


@given(SIZES, st.integers(1, 600))
def test_s17_what_is_kept_fits_and_begins_with_the_user(sizes: list[tuple[int, int]], last: int) -> None:
    entries = branch(sizes, last)
    start = first_kept(entries, 0, LIMIT)
    assert entries[start].role is Role.USER
    assert cost(entries[start:]) <= LIMIT


@given(SIZES)
def test_nothing_is_left_out_while_all_fits(sizes: list[tuple[int, int]]) -> None:
    entries = branch(sizes)
    assert first_kept(entries, 0, max(LIMIT, cost(entries))) == 0


@given(SIZES)
def test_s17_the_cut_moves_rarely_and_far(sizes: list[tuple[int, int]]) -> None:
    """Turn by turn: the cut stays until the prompt overflows, then drops to the low watermark at once."""
    entries = branch(sizes)
    turns = [index for index, entry in enumerate(entries) if entry.role is Role.USER]
    before = 0
    for turn in turns:
        kept = entries[: turn + 1]
        start = first_kept(kept, 0, LIMIT)
        assert start >= before
        if cost(kept[before:]) <= LIMIT:
            assert start == before
        elif start != turn:
            assert cost(kept[start:]) <= LIMIT * LOW_WATERMARK
        before = start


def test_s17_a_long_chat_keeps_its_prefix_for_many_turns() -> None:
    sizes = [(20, 60)] * 200
    cuts = {first_kept(branch(sizes[:length]), 0, LIMIT) for length in range(len(sizes))}
    assert len(cuts) < 200 * 96 / (LIMIT * (1 - LOW_WATERMARK)) + 2


def test_the_last_turn_is_kept_even_when_it_is_too_long() -> None:
    entries = branch([(10, 10), (10, 10)], last=5000)
    assert first_kept(entries, 0, LIMIT) == 4


def test_what_is_fixed_counts() -> None:
    entries = branch([(100, 100), (100, 100)])
    assert first_kept(entries, 0, LIMIT) == 0
    assert first_kept(entries, 700, LIMIT) > 0


def test_room_is_kept_for_the_reply() -> None:
    assert reply_room(8192, None) == 1024
    assert reply_room(8192, 16) == 1024  # else the cut would move with it
    assert reply_room(8192, 4000) == 4000
    assert reply_room(1000, None) == 250


def test_s5_neighbours_of_one_role_become_one_turn() -> None:
    turns = [(Role.SYSTEM, "Be brief."), (Role.USER, "a"), (Role.USER, "b"), (Role.ASSISTANT, "c"), (Role.USER, "d")]
    assert join_turns(turns) == [
        (Role.SYSTEM, "Be brief."),
        (Role.USER, "a\n\nb"),
        (Role.ASSISTANT, "c"),
        (Role.USER, "d"),
    ]
