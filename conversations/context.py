"""What of the history fits into the model's context. Pure: token counts in, a cut and turns out.

The cut is a fold over the whole branch, so it depends on nothing but the branch and the limit: once the prompt
overflows, history is dropped down to a low watermark, and the cut stays there for many turns. The prompt's prefix, and
the engine's cache of it, stays the same meanwhile.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from inference.protocol import Role

LOW_WATERMARK = 0.6  # of the limit: how much of the prompt is left after something had to be dropped
TURN_OVERHEAD = 8  # tokens that a chat template puts around a turn; the true number shows when the prompt is encoded
PROMPT_OVERHEAD = 64  # what a template says by itself, such as a default system prompt
DEFAULT_REPLY = 1024


@dataclass(frozen=True, slots=True)
class Entry:
    """A message of the branch. A reply without text is not `usable`: it would poison what follows."""

    role: Role
    tokens: int
    usable: bool = True


def reply_room(context_length: int, max_tokens: int | None) -> int:
    """Tokens kept free for the reply. Does not follow a small `max_tokens`: the cut would move with it."""
    return max(min(DEFAULT_REPLY, context_length // 4), max_tokens or 0)


def first_kept(branch: Sequence[Entry], fixed: int, limit: int) -> int:
    """Index of the first entry that the model sees: always a user's turn, at the latest the last one.

    `branch`: oldest first, the last user's turn included. `fixed`: tokens that stay (system prompts, a reply to
    continue).
    `limit`: tokens of the whole prompt. When even the last turn does not fit, its index all the same.
    """
    costs = [entry.tokens + TURN_OVERHEAD if entry.usable else 0 for entry in branch]
    before = [0, *accumulate(costs)]  # before[i]: cost of all entries ahead of i
    users = [index for index, entry in enumerate(branch) if entry.role is Role.USER]
    fixed += PROMPT_OVERHEAD
    start, low = 0, int(limit * LOW_WATERMARK)
    candidates = iter(users)
    for turn in users:
        end = before[turn + 1]
        if fixed + end - before[start] > limit:
            while start < turn and fixed + end - before[start] > low:
                start = next(candidate for candidate in candidates if candidate > start)
    return start


def join_turns(turns: Sequence[tuple[Role, str]]) -> list[tuple[Role, str]]:
    """Neighbours of one role become one turn, with a blank line between: many templates insist on alternation.

    Two turns of the user meet where a reply without text was left out.
    """
    joined: list[tuple[Role, str]] = []
    for role, text in turns:
        if joined and joined[-1][0] is role:
            joined[-1] = (role, f"{joined[-1][1]}\n\n{text}")
        else:
            joined.append((role, text))
    return joined
