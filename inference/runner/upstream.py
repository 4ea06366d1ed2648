"""What an engine is asked for one attempt. Pure."""

from collections.abc import Sequence

from inference.events import unpack_ids
from inference.prompt_store import StoredPrompt
from inference.vllm import EngineCall


def engine_call(served_name: str, prompt: StoredPrompt, emitted: Sequence[int]) -> EngineCall:
    """`emitted`: tokens of the reply that earlier attempts have got; the engine goes on behind them."""
    sampling, done = prompt.sampling, len(emitted)
    return EngineCall(
        model=served_name,
        prompt_ids=[*unpack_ids(prompt.token_ids), *emitted],
        max_tokens=sampling.max_tokens - done,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        # The same seed would repeat the draws of the first attempt: another one, derived from it.
        seed=sampling.seed if sampling.seed is None or not done else (sampling.seed + done) % 2**31,
        min_tokens=max(0, sampling.min_tokens - done),
        cache_salt=prompt.cache_salt,
        logprobs=sampling.logprobs,
        extra=sampling.extra,
    )
