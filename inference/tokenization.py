"""Messages to token ids: by the model's tokenizer where models.toml gives a path, else by its engine's /tokenize."""

import asyncio
import contextlib
import threading
from collections.abc import Sequence
from pathlib import Path

from django.conf import settings

from chatsite.errors import InvalidInput
from inference.detokenizer import Detokenizer
from inference.errors import ControlToken, EngineUnavailable, ModelLoading
from inference.models import Model
from inference.prompts import (
    CUT_TOKENS,
    GENEROUS,
    ChatTokenizer,
    clean_text,
    contains_control_spelling,
    refuse_more,
)
from inference.protocol import Role, Turn
from inference.replicas import any_engine
from inference.vllm import Engine, EngineError

_tokenizers: dict[str, ChatTokenizer] = {}  # by folder: a process loads each once
_loading = threading.Lock()
SMALL_CHARACTERS = 4096  # below, encoding takes less than handing it to a thread
SMALL_TOKENS = 1024  # as many as those have, about
TURN_CHARACTERS = 64  # what rendering one turn costs, as characters to be encoded


async def encode(model: Model, turns: Sequence[Turn], at_most: int | None = None) -> list[int]:
    """The prompt's token ids. Raises PromptError kinds, ControlToken, ModelLoading, EngineUnavailable.

    `at_most`: tokens that it may have. One that has far more is refused early, with PromptTooLong.
    """
    if not model.path:
        return await _encode_by_engine(model, turns, at_most)
    tokenizer = await load_tokenizer(model)
    if sum(TURN_CHARACTERS + len(turn.content) for turn in turns) <= SMALL_CHARACTERS:
        return tokenizer.encode_chat(turns, at_most=at_most)
    return await asyncio.to_thread(tokenizer.encode_chat, turns, at_most=at_most)


async def count(model: Model, texts: Sequence[str]) -> list[int]:
    """Tokens of each text. Without a tokenizer an estimate on the safe side: one token for two characters."""
    if not model.path:
        return [len(text) // 2 + 1 for text in texts]
    tokenizer = await load_tokenizer(model)
    if sum(map(len, texts)) <= SMALL_CHARACTERS:
        return [len(ids) for ids in tokenizer.encode_texts(texts)]
    return [len(ids) for ids in await asyncio.to_thread(tokenizer.encode_texts, texts)]


async def encode_text(model: Model, text: str, at_most: int | None = None) -> list[int]:
    """A bare text's ids, in which no spelling of a control token becomes one. `at_most`, and what it raises: as
    `encode`."""
    if not model.path:
        return await _encode_text_by_engine(model, text, at_most)
    tokenizer = await load_tokenizer(model)
    if len(text) <= SMALL_CHARACTERS:
        return tokenizer.encode_texts([text], at_most=at_most)[0]
    return (await asyncio.to_thread(tokenizer.encode_texts, [text], at_most=at_most))[0]


async def check_ids(model: Model, ids: list[int]) -> list[int]:
    """The same ids. Raises InvalidInput for one that the model does not have."""
    if model.path and max(ids) >= (size := (await load_tokenizer(model)).vocab_size):
        raise InvalidInput(f"The token ids of this model are 0 to {size - 1}.", param="prompt")
    return ids


async def decode_ids(model: Model, ids: Sequence[int]) -> str:
    """The text of a prompt; empty for a model without a tokenizer."""
    if not model.path:
        return ""
    tokenizer = await load_tokenizer(model)
    return tokenizer.decode(ids) if len(ids) <= SMALL_TOKENS else await asyncio.to_thread(tokenizer.decode, ids)


async def decoder(model: Model, emitted_ids: Sequence[int]) -> Detokenizer | None:
    """A decoder that stands behind `emitted_ids`; None when the engine's text is taken as it comes."""
    return (await load_tokenizer(model)).decoder(emitted_ids) if model.path else None


async def end_tokens(model: Model) -> frozenset[int]:
    """Ids after which the model has nothing more to say; empty where they are not known."""
    return (await load_tokenizer(model)).eos_ids if model.path else frozenset()


async def preload(model: Model) -> None:
    """Loads the tokenizer before the first stream needs it: loading holds the interpreter for a second or more."""
    if model.path:
        with contextlib.suppress(ModelLoading):  # its folder is still being made
            await load_tokenizer(model)


async def load_tokenizer(model: Model) -> ChatTokenizer:
    """Raises ModelLoading while its folder is not there yet (the first start converts the bundled model)."""
    folder = settings.BASE_DIR / model.path
    key = str(folder)
    if key not in _tokenizers:
        if not (folder / "tokenizer.json").is_file():
            raise ModelLoading(
                "The model is being prepared, which takes some minutes on the first start.", retry_after=10
            )
        await asyncio.to_thread(_load, key, folder)
    return _tokenizers[key]


def _load(key: str, folder: Path) -> None:
    with _loading:  # the first callers come together: one loads, and the others find it loaded
        if key not in _tokenizers:
            _tokenizers[key] = ChatTokenizer.load(folder)


async def _encode_text_by_engine(model: Model, text: str, at_most: int | None) -> list[int]:
    _refuse_control(text)
    engine, name = await any_engine(model)
    try:
        await _refuse_longer(engine, name, text, at_most)
        return await engine.tokenize_text(name, text)
    except EngineError as error:
        raise EngineUnavailable("The engine of this model does not answer.", retry_after=5) from error


def _refuse_control(text: str) -> None:
    if contains_control_spelling(clean_text(text)):
        raise ControlToken


async def _refuse_longer(engine: Engine, name: str, text: str, at_most: int | None) -> None:
    """Has the beginning of a long text encoded, where that shows that it is too long. Raises PromptTooLong."""
    if at_most is not None and len(text) > (enough := GENEROUS * at_most):
        refuse_more(len(await engine.tokenize_text(name, text[:enough])) - CUT_TOKENS, at_most)


async def _encode_by_engine(model: Model, turns: Sequence[Turn], at_most: int | None) -> list[int]:
    for turn in turns:
        _refuse_control(turn.content)
    engine, name = await any_engine(model)
    try:
        for turn in turns:
            if turn.role == Role.USER:  # a template may trim what users say, but it leaves nothing else of it out
                await _refuse_longer(engine, name, turn.content.strip(), at_most)
        return await engine.tokenize(name, [{"role": turn.role, "content": turn.content} for turn in turns])
    except EngineError as error:
        raise EngineUnavailable("The engine of this model does not answer.", retry_after=5) from error
