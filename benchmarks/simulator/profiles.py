"""What an engine can do: sizes and the linear cost of a step, for the engine measured here and for an assumed GPU."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Profile:
    """Seconds of a step = base + those for each part. `source` says where the figures come from."""

    name: str
    source: str
    block: int  # tokens
    blocks: int
    max_num_seqs: int
    max_num_batched_tokens: int
    base: float
    per_prefill_token: float
    per_prefill_pair: float  # a prefilled token and a token that it attends to
    per_decode_sequence: float
    per_context_token: float  # that a decoding sequence attends to
    request_seconds: float = 0.0  # from the sending of a request until the engine's scheduler knows it, and back

    @property
    def kv_tokens(self) -> int:
        return self.block * self.blocks

    @property
    def prefill_rate(self) -> float:
        """Tokens per second in full steps of fresh prompts, the peak that a probe would find."""
        tokens = self.max_num_batched_tokens
        return tokens / self.step_seconds(tokens, tokens * 512, 0, 0)

    def step_seconds(self, prefill: int, pairs: float, sequences: int, context: int) -> float:
        return (
            self.base
            + self.per_prefill_token * prefill
            + self.per_prefill_pair * pairs
            + self.per_decode_sequence * sequences
            + self.per_context_token * context
        )

    def slower(self, prefill: float, decode: float) -> "Profile":
        """The same engine where prompts take `prefill` times as long and decode steps `decode` times."""
        return replace(
            self,
            base=self.base * decode,
            per_prefill_token=self.per_prefill_token * prefill,
            per_prefill_pair=self.per_prefill_pair * prefill,
            per_decode_sequence=self.per_decode_sequence * decode,
            per_context_token=self.per_context_token * decode,
        )


# 8 billion parameters in bf16 on one GPU of 80 GB with 3.35 TB/s. Reading 16 GB of weights takes 4.8 ms; a token's KV
# is 128 KiB, read in 0.04 us at full bandwidth; (80 GB * 0.9 - 16 GB) / 128 KiB = 420,000 tokens fit.
GPU = Profile(
    name="gpu",
    source=(
        "an assumption, not a measurement: an 8-billion-parameter model in bf16 on one 80 GB GPU with 3.35 TB/s, whose"
        " prefill is set to 16,000 tokens/s per replica; the rest is arithmetic of memory bandwidth"
    ),
    block=16,
    blocks=26_000,
    max_num_seqs=256,
    max_num_batched_tokens=2048,
    base=0.007,
    per_prefill_token=5.6e-5,
    per_prefill_pair=2.0e-9,
    per_decode_sequence=3.0e-5,
    per_context_token=5.0e-8,
    request_seconds=0.005,
)

# What `calibrate` fitted; its errors at three loads are in docs/benchmarks/simulator/calibration.json.
CPU = Profile(
    name="cpu",
    source="fitted to vLLM 0.32 with SmolLM2-135M in float32 on 2 shared cores of x86_64",
    block=128,
    blocks=182,
    max_num_seqs=128,
    max_num_batched_tokens=2048,
    base=0.0458,
    per_prefill_token=2.15e-3,
    per_prefill_pair=1.31e-6,
    per_decode_sequence=2.45e-3,
    per_context_token=1.60e-6,
)
