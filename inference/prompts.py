"""Turns to token ids: the model's chat template, in which nobody can type a role.

A tokenizer turns the spelling of an added token (`<|im_start|>`, but `<think>` as well) into that token's id, whoever
wrote it. So, before the template is rendered, each such spelling in a caller's string is replaced by a nonce: a few
private-use characters, drawn at start, that the tokenizer knows as one token of our own. After encoding, each nonce's
id gives way to the ids of the spelling as plain text, from a second tokenizer without added tokens. Everything else
is encoded in one piece, as the engine would, so ordinary text has exactly the engine's ids.

As a check, the added tokens of the result must be those of the same conversation with the spellings blanked.

Raises, all from `PromptError` (400 `invalid_input`): `InvalidText`, `EmptyPrompt`, `TemplateRefused`,
`PromptTooCostly`, `PromptTooLong`, and `ControlTokenInText` (`control_token`). Loading raises `UnusableModel`.
"""

import json
import re
import secrets
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tokenizers import AddedToken, Tokenizer

from inference.chat_template import ChatTemplate, PromptError, UnusableModel
from inference.detokenizer import Detokenizer
from inference.protocol import Turn

_PRIVATE_USE = 0xF0000  # supplementary private use: 65,534 characters without case, width or meaning
_BLANKS = "xo_-"  # what a spelling is blanked with: the first that is in no added token
GENEROUS = 6  # characters for each token that a prompt may have: texts of fewer are encoded without a look ahead
LEAST_PIECE = 2048  # characters
# Tokens that a piece may have more than its part of the whole: where it is cut, a word or a nonce is cut in two.
CUT_TOKENS = 64
_CONTROL_SPELLING = re.compile(r"<[|\uff5c][^\s<>]{1,128}?[|\uff5c]>")


class InvalidText(PromptError):
    """The text holds characters that are not valid."""


class EmptyPrompt(PromptError):
    """There is no message to answer."""


class ControlTokenInText(PromptError):
    """The text spells a control token of the model in a way that cannot be told from a real one."""

    code = "control_token"


class PromptTooLong(PromptError):
    """The text has more tokens than may be asked for."""

    least = 0  # tokens that it has at least


def clean_text(text: str) -> str:
    """`text`, if a prompt and a database can hold it. Raises InvalidText for NUL and for half a surrogate pair."""
    if "\0" in text:
        raise InvalidText("The text holds a NUL character (U+0000). Remove it.")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        found = f"U+{ord(text[error.start]):04X}"
        raise InvalidText(f"The text holds half a surrogate pair ({found} at character {error.start}).") from error
    return text


def contains_control_spelling(text: str) -> bool:
    """Whether `text` spells something like `<|im_start|>`. For models whose tokenizer we do not have."""
    return _CONTROL_SPELLING.search(text) is not None


class ChatTokenizer:
    """A model's tokenizer and chat template. Immutable, safe to share between threads.

    `encode_chat` and `encode_texts` let go of the GIL while they encode; call them in a thread, after a byte limit.
    """

    vocab_size: int  # ids are below it
    eos_ids: frozenset[int]  # ids that end a reply

    def __init__(self, definition: Mapping[str, Any], template: ChatTemplate, eos_ids: frozenset[int] = frozenset()):
        """`definition` is tokenizer.json as an object."""
        try:
            self._tokenizer = Tokenizer.from_str(json.dumps(definition))
            plain = Tokenizer.from_str(json.dumps(_without_added_tokens(definition)))
        except Exception as error:  # the library raises this very class
            raise UnusableModel(f"tokenizer.json is not valid: {error}") from error
        self._template = template
        self.eos_ids = eos_ids
        self.vocab_size = 1 + max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
        # A run of white space is text, even where a tokenizer keeps it as an added token.
        added = {id_: t for id_, t in self._tokenizer.get_added_tokens_decoder().items() if t.content.strip()}
        spellings = sorted({token.content for token in added.values()})
        self._control_ids = frozenset(added)
        self._spelling = _any_of(spellings)
        self._normalizer = self._tokenizer.normalizer
        normalized = {token.content for token in added.values() if token.normalized} if self._normalizer else set()
        self._hidden_spelling = _any_of(normalized | {self._normalizer.normalize_str(s) for s in normalized})
        self._blank = next((blank for blank in _BLANKS if not any(blank in s for s in spellings)), "\N{MIDDLE DOT}")
        stem = "".join(chr(_PRIVATE_USE + secrets.randbelow(0xFFFD)) for _ in range(8))
        self._nonces = {spelling: stem + chr(_PRIVATE_USE + number) for number, spelling in enumerate(spellings)}
        nonces = [AddedToken(nonce, special=True, normalized=False) for nonce in self._nonces.values()]
        self._tokenizer.add_special_tokens(nonces)
        self._spelled = {
            self._tokenizer.token_to_id(self._nonces[spelling]): encoding.ids
            for spelling, encoding in zip(spellings, _encode(plain, spellings), strict=True)
        }

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read tokenizer.json, tokenizer_config.json, the chat template and generation_config.json from `folder`."""
        definition = _read_json(folder / "tokenizer.json")
        config = _read_json(folder / "tokenizer_config.json")
        variables = _special_tokens(config)
        template = ChatTemplate(_template_source(folder, config), variables)
        eos = _read_json(folder / "generation_config.json", {}).get("eos_token_id")
        if eos is None:
            eos = _read_json(folder / "config.json", {}).get("eos_token_id")
        eos_ids = {eos} if isinstance(eos, int) else set(eos or ())
        eos_ids |= {t["id"] for t in definition.get("added_tokens", ()) if t["content"] == variables.get("eos_token")}
        return cls(definition, template, frozenset(eos_ids))

    def encode_chat(
        self, turns: Sequence[Turn], *, add_generation_prompt: bool = True, at_most: int | None = None
    ) -> list[int]:
        """The prompt's ids. No added token's id in it comes from a turn's content. Raises PromptError.

        Of a prompt that is far longer than `at_most` tokens, no more is encoded than shows it: PromptTooLong. One that
        is a little longer is encoded.
        """
        if not turns:
            raise EmptyPrompt
        contents = [clean_text(turn.content) for turn in turns]
        masked = [self._mask(content) for content in contents]
        prompt = self._render(turns, masked, add_generation_prompt)
        self._refuse_longer(prompt, at_most)
        if masked == contents:
            return self._encode_masked([prompt])[0]
        blanked = [self._spelling.sub(self._blank, content) for content in contents]
        ids, expected = self._encode_masked([prompt, self._render(turns, blanked, add_generation_prompt)])
        if self._control_tokens(ids) != self._control_tokens(expected):
            raise ControlTokenInText
        return ids

    def encode_texts(self, texts: Sequence[str], *, at_most: int | None = None) -> list[list[int]]:
        """The ids of each text by itself, without special tokens. Raises InvalidText, ControlTokenInText.

        `at_most`: tokens of each, as in `encode_chat`.
        """
        masked = [self._mask(clean_text(text)) for text in texts]
        for text in masked:
            self._refuse_longer(text, at_most)
        return self._encode_masked(masked)

    def render(self, turns: Sequence[Turn], *, add_generation_prompt: bool = True) -> str:
        """The chat template's text with the contents as they are: to look at, never to encode."""
        return self._render(turns, [turn.content for turn in turns], add_generation_prompt)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of a whole reply: what a `decoder` gives for it, `flush` included."""
        detokenizer = self.decoder()
        return detokenizer.feed(ids) + detokenizer.flush()

    def decoder(self, emitted_ids: Sequence[int] = ()) -> Detokenizer:
        """A detokenizer for one reply, which goes on after `emitted_ids` (their text is out already)."""
        return Detokenizer.resume(self._tokenizer, emitted_ids)

    def _refuse_longer(self, text: str, at_most: int | None) -> None:
        """Encodes piece by piece what may be too long, up to where that is sure. Raises PromptTooLong."""
        if at_most is None or len(text) <= GENEROUS * at_most:
            return
        found, start, size = 0, 0, max(LEAST_PIECE, at_most)
        while start < len(text):
            found += len(_encode(self._tokenizer, [text[start : start + size]])[0]) - CUT_TOKENS
            refuse_more(found, at_most)
            start, size = start + size, size + size // 2  # growing, so that cuts stay few where tokens are long

    def _mask(self, text: str) -> str:
        masked = self._spelling.sub(lambda match: self._nonces[match[0]], text)
        # A normalizer may make a spelling of what is none yet (full-width brackets): those we cannot point at.
        if self._normalizer and self._hidden_spelling.search(self._normalizer.normalize_str(masked)):
            raise ControlTokenInText
        return masked

    def _render(self, turns: Sequence[Turn], contents: Sequence[str], add_generation_prompt: bool) -> str:
        messages = [
            {"role": turn.role.value, "content": content} for turn, content in zip(turns, contents, strict=True)
        ]
        return self._template.render(messages, add_generation_prompt=add_generation_prompt)

    def _encode_masked(self, texts: Sequence[str]) -> list[list[int]]:
        return [self._unmask(encoding.ids) for encoding in _encode(self._tokenizer, texts)]

    def _unmask(self, ids: list[int]) -> list[int]:
        if self._spelled.keys().isdisjoint(ids):
            return ids
        unmasked: list[int] = []
        for token_id in ids:
            unmasked.extend(self._spelled.get(token_id, (token_id,)))
        return unmasked

    def _control_tokens(self, ids: Sequence[int]) -> list[int]:
        return [token_id for token_id in ids if token_id in self._control_ids]


def refuse_more(tokens: int, at_most: int) -> None:
    """Raises PromptTooLong, which says how many there are at least."""
    if tokens > at_most:
        error = PromptTooLong()
        error.least = tokens
        raise error


def _any_of(spellings: Collection[str]) -> re.Pattern[str]:
    """Finds the longest of `spellings` at the leftmost place, as tokenizers do; with none, nothing."""
    longest_first = sorted(filter(None, spellings), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")


def _encode(tokenizer: Tokenizer, texts: Sequence[str]) -> list[Any]:
    """`encode` would hold the GIL (1.5 s for 1 MB); the batch does not, and the fast one skips the offsets."""
    return list(tokenizer.encode_batch_fast(list(texts), add_special_tokens=False))


def _without_added_tokens(definition: Mapping[str, Any]) -> dict[str, Any]:
    """The definition of a tokenizer to which the spelling of an added token is text like any other.

    Some models find a whole word in their vocabulary, so the spellings are taken out of that, too: renamed, because
    ids must stay where they are. No space is put in front, for a spelling stands in the middle of a text.
    """
    spellings = {token["content"] for token in definition.get("added_tokens", ())}
    model = dict(definition["model"])
    hidden = spellings - {model.get("unk_token")}
    vocab = model.get("vocab")
    if isinstance(vocab, dict):
        model["vocab"] = {_renamed(piece, hidden): token_id for piece, token_id in vocab.items()}
    elif isinstance(vocab, list):
        model["vocab"] = [[_renamed(piece, hidden), *score] for piece, *score in vocab]
    if "merges" in model:
        model["merges"] = [merge for merge in model["merges"] if hidden.isdisjoint(_merge_names(merge))]
    return {
        **_without_prefix_space(definition),
        "model": model,
        "added_tokens": [],
        "post_processor": None,
        "truncation": None,
        "padding": None,
    }


def _renamed(piece: str, hidden: set[str]) -> str:
    return f"{chr(_PRIVATE_USE)}{piece}" if piece in hidden else piece


def _merge_names(merge: str | Sequence[str]) -> tuple[str, str, str]:
    left, right = merge.split(" ", 1) if isinstance(merge, str) else merge
    return left, right, left + right


def _without_prefix_space(part: Any) -> Any:
    """The same part of a definition, where no space is put in front of a text."""
    if isinstance(part, list):
        return [_without_prefix_space(item) for item in part]
    if not isinstance(part, dict) or part.get("vocab"):
        return part
    changed = {key: _without_prefix_space(value) for key, value in part.items()}
    kind = part.get("type")
    if kind == "Prepend":
        return {"type": "Sequence", "normalizers": []}
    if kind == "Metaspace":
        changed |= {"prepend_scheme": "never"} if "prepend_scheme" in part else {"add_prefix_space": False}
    if kind == "ByteLevel":
        changed |= {"add_prefix_space": False}
    return changed


_MISSING: Any = object()


def _read_json(path: Path, default: Any = _MISSING) -> Any:
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError as error:
        if default is not _MISSING:
            return default
        raise UnusableModel(f"{path} is missing.") from error
    except (OSError, ValueError) as error:
        raise UnusableModel(f"{path} cannot be read: {error}") from error


def _template_source(folder: Path, config: Mapping[str, Any]) -> str:
    """The template's own file goes before the one in tokenizer_config.json, as in the transformers library."""
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    source = config.get("chat_template")
    if isinstance(source, list):  # named templates
        source = next((item["template"] for item in source if item.get("name") == "default"), None)
    if not isinstance(source, str):
        raise UnusableModel(f"{folder} has no chat template, neither chat_template.jinja nor in tokenizer_config.json.")
    return source


def _special_tokens(config: Mapping[str, Any]) -> dict[str, Any]:
    """The special tokens that templates know by name, as strings."""
    named = {key: value for key, value in config.items() if key.endswith("_token")}
    strings = {key: value["content"] if isinstance(value, dict) else value for key, value in named.items()}
    return {key: value for key, value in strings.items() if isinstance(value, str)}
