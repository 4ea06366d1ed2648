"""A thousand callers of the OpenAI-compatible API that hang up at random points; then everything is counted."""

import asyncio
import json
import random
import socket
import struct
import time
import urllib.request
from collections import Counter
from typing import Any

import pytest
import redis

from inference.redis import keys
from quotas.selectors import PLAN_SECONDS
from tests.acceptance.installation import MODEL, Installation, fake_engine, installation, models_toml
from tests.waiting import wait_until_sync

pytestmark = pytest.mark.long
CALLERS, AT_ONCE, TOKENS = 1000, 50, 60
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends a reset, as a crashed machine's connections end


async def hang_up(site: Installation, random: random.Random) -> str:
    """One call, cut at a random point. Says at which."""
    stream, point = random.random() < 0.7, random.choice(["body", "sent", "headers", "token", "tokens", "end"])
    call = {"model": MODEL, "messages": [{"role": "user", "content": "Count."}], "max_tokens": TOKENS, "stream": stream}
    body = json.dumps({**call, "n": random.choice([1, 1, 1, 3])}).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{site.port}\r\ncontent-type: application/json\r\n"
        f"authorization: Bearer {site.key}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    try:
        writer.write(head.encode() + (body[: len(body) // 2] if point == "body" else body))
        await writer.drain()
        await asyncio.sleep(random.uniform(0, 0.3) if point == "sent" else 0)
        if point not in ("body", "sent"):
            await asyncio.wait_for(_read(reader, point, random), 30)
        if random.random() < 0.5:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    finally:
        writer.close()
    return f"{point}, {'stream' if stream else 'whole'}"


async def _read(reader: asyncio.StreamReader, point: str, random: random.Random) -> None:
    wanted = {"headers": 0, "token": 1, "tokens": random.randint(2, TOKENS), "end": 10 * TOKENS}[point]
    status = await reader.readline()
    assert b" 200 " in status, status + await reader.read(4096)
    length = 0
    while (line := await reader.readline()) not in (b"\r\n", b""):
        if line.lower().startswith(b"content-length:"):
            length = int(line.partition(b":")[2])
    if length:
        await reader.readexactly(length if point == "end" else random.randint(0, length))
        return
    while wanted > 0 and b"[DONE]" not in (line := await reader.readline()):
        assert line, "the stream was cut by the server"
        wanted -= line.startswith(b"data:")


async def _all(site: Installation, random: random.Random) -> Counter[str]:
    gate, points = asyncio.Semaphore(AT_ONCE), Counter[str]()

    async def one() -> None:
        async with gate:
            points[await hang_up(site, random)] += 1

    await asyncio.gather(*(one() for _ in range(CALLERS)))
    return points


def _state(engine: str) -> Any:
    with urllib.request.urlopen(f"{engine}/fake/state", timeout=5) as answer:
        return json.load(answer)


def test_a_thousand_callers_that_hang_up_leave_nothing_and_an_exact_ledger() -> None:
    with fake_engine(tokens_per_second=100) as (engine, _), installation(models_toml(engine)) as site:
        site.execute("UPDATE quotas_plan SET tokens_per_minute = 10000000, concurrent = 1000")
        time.sleep(PLAN_SECONDS + 0.5)  # until then the web process goes by the plan that it knows
        points = asyncio.run(_all(site, random.Random(20261130)))
        assert points.total() == CALLERS
        assert len(points) == 12, points
        wait_until_sync(lambda: _state(engine)["running"] == _state(engine)["waiting"] == 0, 10)
        unfinished = "SELECT count(*) FROM inference_request WHERE released_at IS NULL"
        wait_until_sync(lambda: site.query(unfinished) == [(0,)], 30)
        requests = site.query("SELECT status, count(*) FROM inference_request GROUP BY status")
        assert {status for status, _ in requests} <= {"succeeded", "cancelled"}, requests
        _check_ledger(site)
        client = redis.Redis.from_url(site.redis_url())
        _check_scheduler(client)
        _check_quota(client)
        # A token that the ledger has was made by the engine; those of answers that were cut may be more.
        [(output,)] = site.query("SELECT sum(output) FROM quotas_ledgerentry")
        assert 0 < output <= _state(engine)["tokens"]


def _check_ledger(site: Installation) -> None:
    """One row for each request, which says what the request says."""
    [(requests, rows, wrong)] = site.query(
        """
        SELECT count(DISTINCT request.id), count(entry.id), count(*) FILTER (
            WHERE entry.output <> request.output_tokens OR entry.outcome <> request.status
               OR entry.input <> CASE WHEN request.output_tokens > 0 AND bills_prompt THEN prompt_tokens ELSE 0 END
        )
        FROM inference_request AS request LEFT JOIN quotas_ledgerentry AS entry ON entry.request_id = request.id
        """
    )
    assert requests == rows > CALLERS / 2
    assert wrong == 0


def _check_scheduler(client: "redis.Redis[bytes]") -> None:
    prefix = keys.scheduler(MODEL)
    assert client.zcard(f"{prefix}:lease") == 0
    left = list(client.scan_iter(f"{prefix}:q:*"))
    assert left == []
    for key in client.scan_iter(f"{prefix}:rep:*"):
        counters = client.hgetall(key)
        assert {name: value for name, value in counters.items() if name in (b"qpf", b"kv", b"n") and float(value)} == {}


def _check_quota(client: "redis.Redis[bytes]") -> None:
    for kind in ("live", "held"):
        assert list(client.scan_iter(f"v1:{{o:*}}:{kind}*")) == []
