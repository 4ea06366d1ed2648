"""Token ids to text, a piece at a time, and exactly the same text after a cut at any place."""

from collections.abc import Iterable, Sequence
from typing import Self

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

# A character has at most 4 bytes, so 4 tokens. More than this in waiting are bytes that will never make one, and each
# further step would decode all of them again.
MAX_PENDING = 8


class Detokenizer:
    """Decodes one reply. Special tokens and NUL characters are left out of the text.

    The text depends on the ids alone, not on how they were grouped: each id is one step, so a detokenizer that was
    rebuilt by `resume` goes on with the very text that an uninterrupted one would give.

    A sentencepiece tokenizer's decoder drops the space of a reply's first token, and of no later one: there too a
    rebuilt detokenizer knows that it is not at the beginning.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._stream = DecodeStream(skip_special_tokens=True)
        self._pending: list[int] = []  # ids whose text is held back: they end inside a character
        self._last: list[int] = []  # the id before those, in whose company they are decoded

    @classmethod
    def resume(cls, tokenizer: Tokenizer, emitted_ids: Sequence[int]) -> Self:
        """The state after `emitted_ids`, whose text is out already, but for a character that they leave open.

        The ids are replayed (1.3 us each). Handing them to DecodeStream as its context is not enough: where they end
        inside a character it takes all of them for new, and their text comes a second time.
        """
        detokenizer = cls(tokenizer)
        detokenizer.feed(emitted_ids)
        return detokenizer

    def feed(self, ids: Iterable[int]) -> str:
        """The text that `ids` complete: whole characters, possibly none. An id that the tokenizer lacks has no text."""
        pieces = []
        for token_id in ids:
            piece = self._step(token_id)
            if piece is not None:
                pieces.append(piece)
        return "".join(pieces).replace("\0", "")

    def flush(self) -> str:
        """What is still held back when the reply ends: U+FFFD for each piece of a broken character."""
        text = self._text(self._pending)
        self._restart()
        return text.replace("\0", "")

    def _step(self, token_id: int) -> str | None:
        try:
            piece: str | None = self._stream.step(self._tokenizer, token_id)
        except Exception as error:  # the library raises this very class
            if "Invalid prefix" not in str(error):
                raise
            # Bytes that are no UTF-8 may decode differently once another follows: start anew with this token.
            text = self._text(self._pending)
            self._restart()
            return text + (self._step(token_id) or "")
        if piece is None:
            self._pending.append(token_id)
            return self._release() if len(self._pending) > MAX_PENDING else None
        self._pending.clear()
        self._last = [token_id]
        return piece

    def _release(self) -> str:
        """The text of what is held back, but for what may be the beginning of a character: at most 3 tokens."""
        whole = self._text(self._pending)
        for kept in (3, 2, 1, 0):
            cut = len(self._pending) - kept
            text, rest = self._text(self._pending[:cut]), self._pending[cut:]
            if text + self._decode(rest) == whole:  # else the cut goes through a character
                break
        self._restart()
        return text + "".join(self._step(token_id) or "" for token_id in rest)

    def _restart(self) -> None:
        """A new stream with nothing held back, which knows whether it stands at the beginning of the text."""
        if self._last or self._pending:
            self._last = self._tokenizer.encode("a", add_special_tokens=False).ids
        self._stream = DecodeStream(skip_special_tokens=True)
        self._pending = []
        for token_id in self._last:
            self._stream.step(self._tokenizer, token_id)

    def _text(self, ids: list[int]) -> str:
        """The text of `ids` behind those that are out."""
        before, both = self._decode(self._last), self._decode(self._last + ids)
        return both.removeprefix(before) if both.startswith(before) else self._decode(ids)

    def _decode(self, ids: list[int]) -> str:
        text: str = self._tokenizer.decode(ids, skip_special_tokens=True)
        return text
