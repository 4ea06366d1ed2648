"""What the fake engine says: words with one "w" each, drawn by a hash of the whole sequence so far.

So a prompt that goes on with what was generated continues exactly as if it had not been cut, and one missing, doubled
or foreign token changes everything after it.
"""

import re
import zlib
from array import array
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from tokenizers import Tokenizer

from inference.prompts import ChatTokenizer, Turn
from inference.protocol import Role

BUNDLED_MODEL = Path(__file__).parents[2] / "var" / "models" / "smollm2-135m"
_WORD = re.compile(r"Ġ(?=..)[a-vx-z]*w[a-vx-z]*")  # as byte-level tokenizers write a word and the space before it
_EMOJI = "🌊💧🚀👩🐋🌈🎈🍀"
_MANY = 2**32


class Vocabulary:
    """The tokens of a model that the fake uses, and their texts.

    `emoji`, here and below, is the share (0..1) of places where an emoji of several tokens begins.
    """

    def __init__(
        self, words: dict[int, str], emoji: dict[tuple[int, ...], str] | None = None, eos_id: int = 2, size: int = 49152
    ) -> None:
        self.texts = words
        self.emoji = emoji or {}
        self.eos_id = eos_id
        self.size = size
        self._words = sorted(words)
        self._emoji = sorted(self.emoji)
        self._inside: dict[tuple[int, ...], list[int]] = {}  # the beginning of an emoji -> how it may go on
        for ids in self._emoji:
            for cut in range(1, len(ids)):
                self._inside.setdefault(ids[:cut], []).append(ids[cut])
        self._longest = max(map(len, self._inside), default=0)

    @classmethod
    def of(cls, tokenizer: Tokenizer, eos_id: int) -> "Vocabulary":
        """Those of a byte-level tokenizer."""
        found = sorted((id_, token) for token, id_ in tokenizer.get_vocab().items() if _WORD.fullmatch(token))
        emoji = {tuple(tokenizer.encode(sign, add_special_tokens=False).ids): sign for sign in _EMOJI}
        words = {id_: token.replace("Ġ", " ") for id_, token in found[:256]}
        return cls(
            words, {ids: sign for ids, sign in emoji.items() if len(ids) > 1}, eos_id, tokenizer.get_vocab_size()
        )

    @classmethod
    def made_up(cls) -> "Vocabulary":
        """Without a model."""
        syllables = [f"{a}{b}" for a in "bcdfglmnprst" for b in ("a", "e", "i", "o", "u")]
        return cls({1000 + number: f" w{syllable}" for number, syllable in enumerate(syllables)})

    def start(self, ids: Iterable[int], emoji: float = 0.0) -> "Continuation":
        """What follows `ids`."""
        return Continuation(self, ids, emoji)

    def open_end(self, tail: tuple[int, ...]) -> tuple[int, ...]:
        """The beginning of an emoji with which `tail` ends."""
        for length in range(min(self._longest, len(tail)), 0, -1):
            if tail[-length:] in self._inside:
                return tail[-length:]
        return ()

    def after(self, tail: tuple[int, ...], dice: int, emoji: float) -> int:
        """The token that follows `tail`, by `dice`."""
        if begun := self.open_end(tail):
            ways = self._inside[begun]
            return ways[dice % len(ways)]
        if emoji and (dice >> 8) % 1000 < emoji * 1000:
            return self._emoji[dice % len(self._emoji)][0]
        return self._words[dice % len(self._words)]

    def expect(self, prompt: Sequence[int], count: int, emoji: float = 0.0) -> list[int]:
        """The reply's ids to a prompt: for assertions."""
        continuation = self.start(prompt, emoji)
        return [continuation.next()[0] for _ in range(count)]

    def text(self, ids: Iterable[int]) -> str:
        """The text of generated ids."""
        continuation = self.start(())
        return "".join(continuation.piece(token_id) for token_id in ids)


class Continuation:
    """One sequence as it grows."""

    def __init__(self, vocabulary: Vocabulary, ids: Iterable[int], emoji: float) -> None:
        packed = array("I", ids)
        self._vocabulary = vocabulary
        self._emoji = emoji
        self._sum = zlib.crc32(packed.tobytes())
        self._tail = tuple(packed[-4:])
        self._open = vocabulary.open_end(self._tail)  # the beginning of an emoji whose text is still to come
        # vLLM 0.32, given a prompt that ends inside a character, repeats a piece of the prompt's text with it.
        before = self._tail[: -len(self._open)] if self._open else ()
        self._echo = "".join(vocabulary.texts.get(token_id, "") for token_id in before)

    def next(self, stop: float = 0.0) -> tuple[int, str]:
        """The next token and the text that it completes. `stop` is the chance that it ends the reply."""
        dice = (self._sum * 2654435761) % _MANY >> 4  # a CRC alone is linear, and falls into short cycles
        if stop and (dice >> 4) % 10_000 < stop * 10_000:
            return self._vocabulary.eos_id, ""
        token_id = self._vocabulary.after(self._tail, dice, self._emoji)
        self._sum = zlib.crc32(token_id.to_bytes(4, "little"), self._sum)
        self._tail = (*self._tail[-3:], token_id)
        return token_id, self.piece(token_id)

    def piece(self, token_id: int) -> str:
        """The text that `token_id` completes; none inside an emoji."""
        text = self._vocabulary.texts.get(token_id)
        if text is not None:
            return text
        self._open = (*self._open, token_id)
        text = self._vocabulary.emoji.get(self._open)
        if text is None:
            return ""
        text, self._echo, self._open = self._echo + text, "", ()
        return text


class Script:
    """A given text, word by word, then the end. Tokens are numbered, so that a cut text goes on where it was.

    For an engine without a model, whose prompts have no ids of `FIRST` and above.
    """

    FIRST = 40_000

    def __init__(self, text: str, ids: Sequence[int], eos_id: int) -> None:
        self._pieces = re.findall(r"\s*\S+|\s+", text)
        self._eos_id = eos_id
        last = ids[-1] if ids else 0
        self._next = last - self.FIRST + 1 if last >= self.FIRST else 0

    def next(self, stop: float = 0.0) -> tuple[int, str]:
        """As that of a Continuation; it ends where the text does."""
        if self._next >= len(self._pieces):
            return self._eos_id, ""
        self._next += 1
        return self.FIRST + self._next - 1, self._pieces[self._next - 1]


class FakeModel:
    """A vocabulary with the ids of prompts: those of the model in `folder`, else made up."""

    def __init__(self, folder: Path | None = None) -> None:
        self.vocabulary = Vocabulary.made_up()
        self._chat: ChatTokenizer | None = None
        self._tokenizer: Tokenizer | None = None
        if folder is not None:
            self._chat = ChatTokenizer.load(folder)
            # As the engine's: it takes a control token that a user spelled for a real one.
            self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
            self.vocabulary = Vocabulary.of(self._tokenizer, min(self._chat.eos_ids))

    def chat_ids(self, messages: Sequence[dict[str, str]], add_generation_prompt: bool = True) -> list[int]:
        """The prompt of a chat."""
        turns = [Turn(Role(message["role"]), message["content"]) for message in messages]
        if self._chat is not None:
            return self.text_ids(self._chat.render(turns, add_generation_prompt=add_generation_prompt))
        return self.text_ids("".join(f"<{turn.role.value}> {turn.content} " for turn in turns))

    def text_ids(self, text: str) -> list[int]:
        """A text by itself."""
        if self._tokenizer is not None:
            return list(self._tokenizer.encode(text, add_special_tokens=False).ids)
        return [10_000 + zlib.crc32(word.encode()) % 30_000 for word in text.split()]


@cache
def bundled_model() -> FakeModel:
    """The bundled model's tokens, read once a process."""
    return FakeModel(BUNDLED_MODEL)
