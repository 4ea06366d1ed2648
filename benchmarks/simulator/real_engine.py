"""The real vLLM of this installation, started for a measurement, and what one request to it took."""

import contextlib
import json
import random
import re
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp

from chatsite.operations.engines import plan_engines
from chatsite.operations.processes import GuardedProcess
from inference.catalog import EngineSpec, read_models

ROOT = Path(__file__).resolve().parents[2]
READY_WITHIN = 240.0  # seconds
VOCABULARY = (1000, 40000)  # ordinary tokens of the bundled model


@dataclass(frozen=True)
class RealEngine:
    """A running engine, and the sizes that it reports."""

    url: str
    model: str
    block: int
    blocks: int


@dataclass(frozen=True)
class Prompt:
    """`head` is shared by all prompts of the same `family`, the rest is the prompt's own."""

    tokens: int
    output: int
    family: int = 0
    head: int = 0

    def ids(self, salt: str) -> list[int]:
        """Token ids, the same for the same salt."""
        shared = random.Random(f"{salt}/{self.family}")
        own = random.Random(f"{salt}/{self}/{id(self)}")
        low, high = VOCABULARY
        head = [shared.randint(low, high) for _ in range(self.head)]
        return head + [own.randint(low, high) for _ in range(self.tokens - self.head)]


@dataclass
class Timing:
    """Monotonic seconds at which a request was sent and its tokens came; `cached` as the engine reports it."""

    sent: float
    tokens: list[float] = field(default_factory=list)
    cached: int = 0

    @property
    def first(self) -> float:
        return self.tokens[0] - self.sent

    @property
    def last(self) -> float:
        return self.tokens[-1] - self.sent


@contextlib.contextmanager
def real_engine() -> Iterator[RealEngine]:
    """The bundled model's engine on a free port, as `make run` starts it. Raises TimeoutError."""
    spec = read_models(ROOT / "models.toml")[0]
    [planned] = plan_engines([replace(spec, engine=EngineSpec(start=True, count=1, args=spec.engine.args))])
    with tempfile.TemporaryDirectory() as folder:
        process = GuardedProcess(planned.command, Path(folder) / "engine.log")
        try:
            _wait(planned.url, process)
            block, blocks = _sizes(planned.url)
            yield RealEngine(planned.url, planned.model.engine_model or planned.model.name, block, blocks)
        finally:
            process.end(30)


@contextlib.asynccontextmanager
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    timeout = aiohttp.ClientTimeout(total=600)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session:
        yield session


async def ask(session: aiohttp.ClientSession, engine: RealEngine, prompt: Prompt, salt: str) -> Timing:
    """Sends one request of exactly that many tokens and times what comes."""
    body: dict[str, Any] = {
        "model": engine.model,
        "prompt": prompt.ids(salt),
        "max_tokens": prompt.output,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "return_token_ids": True,
        "stream_options": {"include_usage": True},
    }
    timing = Timing(time.monotonic())
    async with session.post(f"{engine.url}/v1/completions", json=body) as answer:
        answer.raise_for_status()
        async for line in answer.content:
            if line.startswith(b"data: {"):
                _note(timing, json.loads(line[6:]))
    if len(timing.tokens) != prompt.output:
        raise ValueError(f"{prompt.output} tokens wanted, {len(timing.tokens)} came")
    return timing


def _note(timing: Timing, chunk: dict[str, Any]) -> None:
    now = time.monotonic()
    for choice in chunk["choices"]:
        timing.tokens += [now] * len(choice.get("token_ids") or ())
    details = (chunk.get("usage") or {}).get("prompt_tokens_details") or {}
    timing.cached = details.get("cached_tokens") or timing.cached


def _wait(url: str, process: GuardedProcess) -> None:
    deadline = time.monotonic() + READY_WITHIN
    while time.monotonic() < deadline and process.running():
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                return
        except OSError:
            time.sleep(0.5)
    raise TimeoutError("the engine did not become ready")


def _sizes(url: str) -> tuple[int, int]:
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found = re.search(r"vllm:cache_config_info\{([^}]*)\}", text)
    labels = dict(re.findall(r'(\w+)="([^"]*)"', found.group(1) if found else ""))
    return int(labels["block_size"]), int(labels["num_gpu_blocks"])
