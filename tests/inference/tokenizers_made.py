"""Small tokenizers of other kinds than the bundled model's."""

import json
from collections.abc import Sequence
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

from inference.chat_template import ChatTemplate
from inference.prompts import ChatTokenizer

LETTERS = "▁abcdefghijklmnopqrstuvwxyz!<>|_/\n"
TEMPLATE = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}<|assistant|>"
CONTROL = ("<unk>", "<s>", "</s>", "<|user|>", "<|system|>", "<|assistant|>", "<|end|>")


def sentencepiece(added: Sequence[AddedToken] = ()) -> Tokenizer:
    """As Llama 2's: a space in front of every text, bytes for what is not in the vocabulary."""
    vocab = {token: number for number, token in enumerate(CONTROL)}
    for piece in [*(f"<0x{byte:02X}>" for byte in range(256)), *LETTERS]:
        vocab[piece] = len(vocab)
    merges = [("▁", "a"), ("▁", "w"), ("▁w", "o"), ("▁wo", "r"), ("▁wor", "d")]
    for left, right in merges:
        vocab[left + right] = len(vocab)
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in CONTROL])
    tokenizer.add_tokens(list(added))
    return tokenizer


def definition(tokenizer: Tokenizer) -> dict[str, Any]:
    """What its tokenizer.json would hold."""
    content: dict[str, Any] = json.loads(tokenizer.to_str())
    return content


def chat_tokenizer(tokenizer: Tokenizer, template: str = TEMPLATE) -> ChatTokenizer:
    """One with a template of its own."""
    return ChatTokenizer(definition(tokenizer), ChatTemplate(template, {"eos_token": "</s>"}))
