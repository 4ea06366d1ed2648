"""What an engine is asked for: the rest of a reply, whatever earlier attempts have got of it."""

from inference.events import pack_ids
from inference.prompt_store import StoredPrompt
from inference.protocol import Sampling
from inference.runner.upstream import engine_call

SAMPLING = Sampling(10, temperature=0.5, top_p=0.9, seed=2**31 - 1, min_tokens=4, logprobs=2, extra={"top_k": 5})


def prompt(sampling: Sampling = SAMPLING) -> StoredPrompt:
    return StoredPrompt(pack_ids([1, 2, 3]), sampling, "salt", "completion")


def test_the_first_attempt_asks_for_everything() -> None:
    call = engine_call("served", prompt(), [])
    assert (call.model, list(call.prompt_ids), call.cache_salt) == ("served", [1, 2, 3], "salt")
    assert (call.max_tokens, call.min_tokens, call.seed) == (10, 4, 2**31 - 1)
    assert (call.temperature, call.top_p, call.logprobs, call.extra) == (0.5, 0.9, 2, {"top_k": 5})


def test_a_later_one_goes_on_behind_what_there_is_with_other_draws() -> None:
    call = engine_call("served", prompt(), [7, 8, 9, 10, 11])
    assert list(call.prompt_ids) == [1, 2, 3, 7, 8, 9, 10, 11]
    assert (call.max_tokens, call.min_tokens, call.seed) == (5, 0, 4)


def test_without_a_seed_there_is_none() -> None:
    assert engine_call("served", prompt(Sampling(10)), [7]).seed is None
