"""Messages to token ids: where that is the engine's work, and how a tokenizer is loaded."""

import asyncio
import time
from pathlib import Path
from unittest.mock import AsyncMock, Mock, patch

import pytest

from chatsite.database import run_db
from inference import replicas, tokenization
from inference.errors import EngineUnavailable
from inference.models import Model, Replica
from inference.prompts import PromptTooLong
from inference.protocol import Role, Turn
from tests.admin_rows import make_model

pytestmark = pytest.mark.django_db(transaction=True)


async def test_while_no_engine_answers_it_is_said_that_none_does_yet() -> None:
    """Not that none could finish a reply: none was begun."""
    model = await run_db(make_model, "far", path="")
    await run_db(lambda: Replica.objects.create(model=model, url="http://127.0.0.1:9"))
    try:
        with pytest.raises(EngineUnavailable, match=r"^No engine of this model answers yet") as raised:
            await tokenization.encode(model, [Turn(Role.USER, "Hi")])
    finally:
        await replicas.close_session()
    assert raised.value.retry_after


async def test_the_first_callers_together_load_a_tokenizer_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    load = Mock(side_effect=lambda folder: time.sleep(0.05))  # as long as it takes for all to have come
    monkeypatch.setattr(tokenization.ChatTokenizer, "load", load)
    monkeypatch.setattr(tokenization, "_tokenizers", {})
    model = Model(name="m", path=str(tmp_path))
    await asyncio.gather(*(tokenization.load_tokenizer(model) for _ in range(8)))
    load.assert_called_once_with(tmp_path)


async def test_an_engine_is_shown_the_beginning_of_a_text_that_is_far_too_long(database: None) -> None:
    """Once, and no more than shows it: to encode two megabytes takes an engine seconds."""
    model = await run_db(make_model, "engine's own", path="")
    shown: list[str] = []

    async def tokenize_text(name: str, text: str) -> list[int]:
        shown.append(text)
        return [1] * (len(text) // 4)

    engine = Mock(tokenize_text=tokenize_text)
    with patch.object(tokenization, "any_engine", AsyncMock(return_value=(engine, "m"))):
        for call in (
            tokenization.encode_text(model, "word " * 100_000, 1000),
            tokenization.encode(model, [Turn(Role.USER, "word " * 100_000)], 1000),
        ):
            shown.clear()
            with pytest.raises(PromptTooLong) as refused:
                await call
            assert refused.value.least > 1000
            assert [len(text) for text in shown] == [6000]
        assert len(await tokenization.encode_text(model, "x" * 4000, 1000)) == 1000
    engine.tokenize.assert_not_called()
