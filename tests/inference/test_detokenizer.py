"""S15 at its root: text cut at any token, and joined again, is the text that was not cut."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from inference.detokenizer import MAX_PENDING, Detokenizer
from tests.fakes.engine_tokens import BUNDLED_MODEL
from tests.inference.tokenizers_made import sentencepiece

BUNDLED = Tokenizer.from_file(str(BUNDLED_MODEL / "tokenizer.json"))
SENTENCEPIECE = sentencepiece()
TOKENIZERS = {"bundled": BUNDLED, "sentencepiece": SENTENCEPIECE}

TEXTS = [
    "Hello, wörld!",
    "👩‍🚀🌊💧",
    "a 👩🏽‍🚀 b",
    " leading",
    "日本語のテキスト",
    "tabs\t\n\n  and   runs",
    "e\u0301 \u200b",
    "🌊" * 20,
]


def ids_of(text: str, tokenizer: Tokenizer = BUNDLED) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False).ids)


def pieces(tokenizer: Tokenizer, ids: list[int]) -> tuple[list[str], str]:
    detokenizer = Detokenizer(tokenizer)
    return [detokenizer.feed([token_id]) for token_id in ids], detokenizer.flush()


def assert_joins_at_every_cut(tokenizer: Tokenizer, ids: list[int]) -> None:
    texts, end = pieces(tokenizer, ids)
    for cut in range(len(ids) + 1):
        resumed = Detokenizer.resume(tokenizer, ids[:cut])
        rest = [resumed.feed([token_id]) for token_id in ids[cut:]]
        assert rest == texts[cut:], f"cut after {cut} of {ids}"
        assert resumed.flush() == end, f"cut after {cut} of {ids}"


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("kind", TOKENIZERS)
def test_s15_text_joins_at_every_cut(kind: str, text: str) -> None:
    ids = ids_of(text, TOKENIZERS[kind])
    assert_joins_at_every_cut(TOKENIZERS[kind], ids)
    detokenizer = Detokenizer(TOKENIZERS[kind])
    assert detokenizer.feed(ids) + detokenizer.flush() == TOKENIZERS[kind].decode(ids)


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40))
def test_s15_any_text_joins_at_every_cut(text: str) -> None:
    ids = ids_of(text)
    assert_joins_at_every_cut(BUNDLED, ids)
    assert Detokenizer(BUNDLED).feed(ids) + Detokenizer.resume(BUNDLED, ids).flush() == BUNDLED.decode(ids)


@given(st.lists(st.integers(0, 400) | st.integers(0, BUNDLED.get_vocab_size() - 1), max_size=30))
def test_s15_any_ids_join_at_every_cut(ids: list[int]) -> None:
    """Small ids are single bytes, mostly no valid UTF-8 together, and control tokens."""
    assert_joins_at_every_cut(BUNDLED, ids)
    texts, end = pieces(BUNDLED, ids)
    assert "".join(texts) + end == BUNDLED.decode(ids).replace("\0", "")


@given(st.lists(st.integers(0, SENTENCEPIECE.get_vocab_size() - 1), max_size=20))
@settings(max_examples=50)
def test_s15_any_ids_of_a_sentencepiece_model_join_at_every_cut(ids: list[int]) -> None:
    """Bytes change what was decoded before them, which DecodeStream alone answers with an error."""
    assert_joins_at_every_cut(SENTENCEPIECE, ids)


@given(st.lists(st.integers(0, 400) | st.integers(0, BUNDLED.get_vocab_size() - 1), max_size=30), st.data())
def test_text_does_not_depend_on_how_ids_are_grouped(ids: list[int], data: st.DataObject) -> None:
    texts, end = pieces(BUNDLED, ids)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(ids)), max_size=4)))
    detokenizer = Detokenizer(BUNDLED)
    grouped = [detokenizer.feed(ids[a:b]) for a, b in zip([0, *cuts], [*cuts, len(ids)], strict=True)]
    assert "".join(grouped) + detokenizer.flush() == "".join(texts) + end


def test_a_character_comes_whole() -> None:
    ids = ids_of("🌊")
    assert len(ids) == 3
    assert pieces(BUNDLED, ids) == (["", "", "🌊"], "")


def test_resumed_inside_an_emoji_it_does_not_repeat_what_is_out() -> None:
    before, emoji = ids_of("Look at this"), ids_of("🌊")
    resumed = Detokenizer.resume(BUNDLED, before + emoji[:2])
    assert resumed.feed(emoji[2:]) == "🌊"


def test_a_broken_character_ends_as_a_replacement() -> None:
    detokenizer = Detokenizer(BUNDLED)
    assert detokenizer.feed(ids_of("ok") + ids_of("🌊")[:2]) == "ok"
    assert detokenizer.flush() == "�"
    assert detokenizer.flush() == ""


def test_bytes_that_never_make_a_character_are_not_held_back_for_ever() -> None:
    stray = ids_of("🌊")[1]
    detokenizer = Detokenizer(BUNDLED)
    assert detokenizer.feed([stray] * (MAX_PENDING + 1)) == "�" * (MAX_PENDING - 2)
    assert detokenizer.feed(ids_of("🌊")) == "���🌊"


def test_special_tokens_and_nul_are_left_out() -> None:
    end = BUNDLED.token_to_id("<|im_end|>")
    detokenizer = Detokenizer(BUNDLED)
    assert detokenizer.feed([*ids_of("a\0b"), end, *ids_of(" c"), end]) == "ab c"
    assert detokenizer.flush() == ""


def test_the_space_of_the_first_word_only_is_dropped_by_a_sentencepiece_model() -> None:
    word = SENTENCEPIECE.token_to_id("▁word")
    assert pieces(SENTENCEPIECE, [word, word]) == (["word", " word"], "")
    assert Detokenizer.resume(SENTENCEPIECE, [word]).feed([word]) == " word"
    assert pieces(BUNDLED, ids_of(" word word")) == ([" word", " word"], "")  # a byte-level one keeps both


def test_an_id_without_a_token_has_no_text() -> None:
    assert Detokenizer(BUNDLED).feed([*ids_of("a"), 10**6, *ids_of("b")]) == "ab"
