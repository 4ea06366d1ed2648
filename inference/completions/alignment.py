"""Where each token's text stands in an answer, so that log probabilities come with the text they are of. Pure."""

from collections import deque
from dataclasses import dataclass

import msgspec

from inference.detokenizer import Detokenizer
from inference.events import unpack_ids
from inference.protocol import TokensEvent
from inference.vllm_wire import TokenLogprob

_decode = msgspec.json.Decoder(list[TokenLogprob | None]).decode


@dataclass(frozen=True, slots=True)
class PlacedToken:
    """`offset`: in characters from the beginning of the answer, where the token's text begins."""

    logprob: TokenLogprob
    offset: int


class Alignment:
    """Of one answer. A token waits until some of its text is shown, and is given once, however often the log has it.

    So the tokens of a stop string, whose text is never shown, are not given. Without a decoder there is nothing to wait
    for: tokens are given as they come, at places reckoned from how the engine spells them.
    """

    def __init__(self, decoder: Detokenizer | None) -> None:
        self._decoder = decoder
        self._waiting: deque[tuple[TokenLogprob | None, int]] = deque()
        self._tokens = 0  # so far
        self._characters = 0  # of all of them, shown or not

    def add(self, entry: TokensEvent) -> None:
        new = entry.tokens - self._tokens
        if new <= 0 or entry.logprobs is None:
            return
        self._tokens = entry.tokens
        for token_id, logprob in zip(unpack_ids(entry.ids)[-new:], _decode(entry.logprobs)[-new:], strict=False):
            self._waiting.append((logprob, self._characters))
            self._characters += self._length(token_id, logprob)

    def shown(self, characters: int) -> list[PlacedToken]:
        """The tokens whose text has begun by then."""
        return self._given(characters)

    def rest(self, characters: int) -> list[PlacedToken]:
        """At the end of the text: also those that have no text, unless what follows was cut off."""
        return self._given(characters if self._characters > characters else characters + 1)

    def _given(self, end: int) -> list[PlacedToken]:
        found = []
        while self._waiting and (self._decoder is None or self._waiting[0][1] < end):
            logprob, offset = self._waiting.popleft()
            if logprob is not None:
                found.append(PlacedToken(logprob, offset))
        return found

    def _length(self, token_id: int, logprob: TokenLogprob | None) -> int:
        if self._decoder is not None:
            return len(self._decoder.feed([token_id]))
        return len(logprob.token) if logprob is not None else 0
