"""A load generator on bare sockets: cheap enough not to be what is measured."""

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Target:
    """Where a stream is asked for. `marker` is in the lines that carry tokens, each with one `w` a token."""

    host: str
    port: int
    path: str
    body: dict[str, Any]
    marker: bytes
    end: tuple[bytes, ...]
    key: str = ""


@dataclass
class Stream:
    """What one stream brought. Times in seconds from the request's first byte."""

    status: int = 0
    first: float | None = None
    total: float = 0.0
    gap: float = 0.0  # the largest between two events
    tokens: int = 0
    events: int = 0


@dataclass
class Load:
    """All streams of a run."""

    streams: list[Stream] = field(default_factory=list)
    wall: float = 0.0

    @property
    def tokens(self) -> int:
        return sum(stream.tokens for stream in self.streams)

    def first(self, share: float) -> float:
        """A quantile of the time to the first token, in seconds."""
        return quantile([stream.first for stream in self.streams if stream.first is not None], share)

    @property
    def statuses(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for stream in self.streams:
            found[stream.status] = found.get(stream.status, 0) + 1
        return found


def quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else float("nan")


async def read_stream(target: Target) -> Stream:
    """Sends one request and reads its events to the end."""
    result = Stream()
    reader, writer = await asyncio.open_connection(target.host, target.port, limit=1 << 20)
    body = json.dumps(target.body).encode()
    head = (
        f"POST {target.path} HTTP/1.1\r\nhost: {target.host}:{target.port}\r\ncontent-type: application/json\r\n"
        f"authorization: Bearer {target.key}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    start = time.perf_counter()
    writer.write(head.encode() + body)
    status = await reader.readline()
    result.status = int(status.split(b" ")[1])
    last = start
    while line := await reader.readline():
        if not line.startswith(b"data:"):
            continue
        if target.marker in line:
            now = time.perf_counter()
            if result.first is None:
                result.first = now - start
            else:
                result.gap = max(result.gap, now - last)
            last = now
            result.events += 1
            result.tokens += line.partition(target.marker)[2].count(b"w")
        elif any(end in line for end in target.end):
            break
    result.total = time.perf_counter() - start
    writer.close()
    return result


async def run(targets: Sequence[Target], concurrency: int, spread: float = 0.0) -> Load:
    """Reads one stream of each target, `concurrency` at a time, the first of which begin `spread` seconds apart."""
    waiting, load = iter(targets), Load()

    async def one_after_another(number: int) -> None:
        await asyncio.sleep(spread * number)
        for target in waiting:
            load.streams.append(await read_stream(target))

    start = time.perf_counter()
    await asyncio.gather(*(one_after_another(number) for number in range(concurrency)))
    load.wall = time.perf_counter() - start
    return load
