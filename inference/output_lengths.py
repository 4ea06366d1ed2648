"""How long answers become: learned for each organization and model, from its latest hundred.

Fed when a request is settled (`settle.lua`), kept in the model's slot. A process reads a list when it first needs it,
and anew by the way, with what it sends to that slot for a request, so that a request costs no round trip of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import structlog
from redis.exceptions import RedisError

from chatsite.caching import ShortCache
from chatsite.redis import Call, Script, async_client
from inference.models import Request, RequestStatus
from inference.protocol import FinishReason
from inference.redis import keys

FEWEST = 20  # answers that are needed to go by
USED_SECONDS, FRESH_SECONDS = (
    600.0,
    5.0,
)  # what was learned is used for, and read anew after

log = structlog.get_logger(__name__)
_READ = Script.load(Path(__file__).parent / "redis" / "outputs.lua")


@dataclass(frozen=True)
class OutputLengths:
    """Tokens that half of the answers, and nine in ten of them, do not exceed, where nothing cuts them short."""

    q50: int
    q90: int


DEFAULT = OutputLengths(512, 1024)  # until there are enough answers
_known: ShortCache[tuple[UUID, str], OutputLengths] = ShortCache(USED_SECONDS)
_fresh: ShortCache[tuple[UUID, str], bool] = ShortCache(FRESH_SECONDS)


async def expected(organization_id: UUID, model: str) -> OutputLengths:
    """What the organization's next answer of that model may be: minutes old at most, the default seconds.

    Who is refused for the default sends nothing with which it would be read anew. The default also without Redis.
    """
    known = _known.get((organization_id, model))
    if known is not None and (known != DEFAULT or _fresh.get((organization_id, model))):
        return known
    call = _call(organization_id, model)
    try:
        return note(organization_id, model, await call.script(async_client(), call.prefix, *call.args))
    except (RedisError, OSError) as error:
        log.warning("lengths of answers unknown", error=str(error))
        return DEFAULT


def reading(organization_id: UUID, model: str) -> list[Call]:
    """To be sent along with calls to the model's slot, its answer for `note`. Empty while what is known is fresh."""
    return [] if _fresh.get((organization_id, model)) else [_call(organization_id, model)]


def note(organization_id: UUID, model: str, answer: Sequence[bytes]) -> OutputLengths:
    """Takes up what `reading` has brought."""
    lengths = learned([int(each) for each in answer])
    _known.put((organization_id, model), lengths)
    _fresh.put((organization_id, model), True)
    return lengths


def forget() -> None:
    """What was read: for tests."""
    _known.clear()
    _fresh.clear()


def observed(request: Request) -> int | None:
    """Of a terminal request, for the list: its tokens, negative where a limit cut it short. None says nothing."""
    if request.status != RequestStatus.SUCCEEDED or not request.output_tokens:
        return None
    ended = request.finish_reason == FinishReason.STOP
    return request.output_tokens if ended else -request.output_tokens


def learned(lengths: Sequence[int]) -> OutputLengths:
    """From `observed` ones. Of an answer that was cut, only that it would have been longer is known (Kaplan-Meier)."""
    if len(lengths) < FEWEST:
        return DEFAULT
    left, share = len(lengths), 1.0  # answers that are at least as long; the share of all that would be longer
    q50 = q90 = 0
    for length in sorted(lengths, key=lambda each: (abs(each), each < 0)):
        if length > 0:
            share *= 1 - 1 / left
        left -= 1
        if not q50 and share <= 0.5 + 1e-9:
            q50 = length
        if not q90 and share <= 0.1 + 1e-9:
            q90 = length
    longest = max(abs(each) for each in lengths)
    q50 = q50 or max(longest, DEFAULT.q50)  # most were cut: how long they would be was never seen
    return OutputLengths(q50, q90 or max(longest, q50, DEFAULT.q90))


def _call(organization_id: UUID, model: str) -> Call:
    return Call(_READ, keys.scheduler(model), (str(organization_id),))
