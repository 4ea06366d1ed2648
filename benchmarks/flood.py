"""A paying user beside a flood of free requests: times to the first token, alone and in the flood.

`make bench-flood`. The whole site in front of fake engines that read prompts at a fixed rate, one after the other, and
have few slots: what is measured is who is let through first, not how fast an engine is. Alone, flood, alone, flood.
Writes docs/benchmarks/flood.json and flood.md.
"""

import asyncio
import json
import random
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from benchmarks.client import quantile
from benchmarks.house import House, house
from benchmarks.report import commit, machine, now, write
from tests.acceptance.installation import MODEL


@dataclass(frozen=True)
class Shape:
    """Tokens of every request, and seconds between two requests of the paying user."""

    prompt: int
    output: int
    paid_gap: float


ENGINE: dict[str, Any] = {"prefill_tokens_per_second": 4000.0, "tokens_per_second": 50.0, "max_num_seqs": 16}
REPLICAS = 2
SHAPE = Shape(prompt=400, output=50, paid_gap=0.5)
PAID = ("paid_requests", "paid_refused", "paid_p50", "paid_p99", "paid_max")
BAR = 0.5  # seconds that the flood may add to the paid p99


async def request(http: aiohttp.ClientSession, url: str, key: str, seed: int, shape: Shape) -> tuple[int, float]:
    """Status, and seconds to the first token; the rest is read."""
    ids = [5 + (seed * 7919 + at * 31) % 40_000 for at in range(shape.prompt)]
    body = {"model": MODEL, "prompt": ids, "max_tokens": shape.output, "stream": True}
    began, first = time.perf_counter(), 0.0
    async with http.post(url, json=body, headers={"authorization": f"Bearer {key}"}) as answer:
        async for line in answer.content:
            if line.startswith(b"data: {") and not first:
                first = time.perf_counter() - began
    return answer.status, first


async def paying(
    http: aiohttp.ClientSession, url: str, key: str, seconds: float, shape: Shape
) -> list[tuple[int, float]]:
    """Status, and seconds to the first token, of each."""
    tasks: list[asyncio.Task[tuple[int, float]]] = []
    until, seed = time.perf_counter() + seconds, random.randrange(10**9)
    while time.perf_counter() < until:
        seed += 1
        tasks.append(asyncio.create_task(request(http, url, key, seed, shape)))
        await asyncio.sleep(shape.paid_gap)
    return await asyncio.gather(*tasks)


async def flooding(
    http: aiohttp.ClientSession, url: str, key: str, rate: float, stop: asyncio.Event, shape: Shape
) -> list[tuple[int, float]]:
    """Free requests at random moments, `rate` a second, until told to stop."""
    draw, base = random.Random(1), random.randrange(10**9)
    tasks: list[asyncio.Task[tuple[int, float]]] = []
    while not stop.is_set():
        tasks.append(asyncio.create_task(request(http, url, key, base + len(tasks), shape)))
        await asyncio.sleep(draw.expovariate(rate))
    for task in tasks:
        if not task.done():
            task.cancel()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    return [each for each in done if not isinstance(each, BaseException)]


async def round_of(url: str, keys: dict[str, str], seconds: float, rate: float, shape: Shape) -> dict[str, Any]:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as http:
        stop = asyncio.Event()
        flood = asyncio.create_task(flooding(http, url, keys["free"], rate, stop, shape)) if rate else None
        if flood:
            await asyncio.sleep(5)  # it stands
        asked = await paying(http, url, keys["paid"], seconds, shape)
        stop.set()
        free = await flood if flood else []
    paid = [first for status, first in asked if status == 200 and first]
    served = [first for status, first in free if status == 200 and first]
    return {
        "paid_requests": len(asked),
        "paid_refused": sum(status != 200 for status, _ in asked),
        "paid_p50": round(quantile(paid, 0.5), 3),
        "paid_p99": round(quantile(paid, 0.99), 3),
        "paid_max": round(max(paid, default=float("nan")), 3),
        "free_statuses": dict(Counter(str(status) for status, _ in free)),
        "free_served": len(served),
        "free_p50": round(statistics.median(served), 3) if served else None,
    }


def capacity() -> float:
    """Requests a second that all engines can do: by what they read, or by their slots."""
    read = ENGINE["prefill_tokens_per_second"] / SHAPE.prompt
    written = ENGINE["max_num_seqs"] / (SHAPE.output / ENGINE["tokens_per_second"] + 1 / read)
    return float(REPLICAS * min(read, written))


def make_room(here: House) -> dict[str, str]:
    """Plans without limits; a key of a paying and one of a free organization."""
    here.execute("UPDATE quotas_plan SET concurrent = 100000, tokens_per_minute = 1000000000")
    here.execute("UPDATE quotas_plan SET requests_per_minute = NULL, monthly_tokens = NULL, monthly_cost = NULL")
    keys = {"paid": here.site.key, "free": here.key("free")}
    time.sleep(6)  # plans are known for five seconds
    return keys


def rows_of(rounds: Sequence[tuple[str, dict[str, Any]]]) -> list[str]:
    lines = [
        "| | paid requests | refused | first token p50 (s) | p99 | longest | free answers by status | free p50 (s) |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, each in rounds:
        statuses = ", ".join(f"{count} x {status}" for status, count in each["free_statuses"].items()) or "-"
        paid = " | ".join(str(each[figure]) for figure in PAID)
        lines.append(f"| {name} | {paid} | {statuses} | {each['free_p50'] or '-'} |")
    return lines


def compare(
    url: str, keys: dict[str, str], seconds: float, rate: float, shape: Shape
) -> tuple[list[tuple[str, dict[str, Any]]], float]:
    """Alone and in a flood of `rate` requests a second, twice; and seconds that the flood adds to the paid p99."""
    rounds: list[tuple[str, dict[str, Any]]] = []
    for name, free in (("alone", 0.0), ("flood", rate)) * 2:
        figures = asyncio.run(round_of(url, keys, seconds, free, shape))
        print(name, json.dumps(figures), flush=True)
        rounds.append((name, figures))
        time.sleep(10)
    alone, flood = (
        statistics.mean(each["paid_p99"] for name, each in rounds if name == kind) for kind in ("alone", "flood")
    )
    return rounds, round(flood - alone, 3)


def table(report: dict[str, Any]) -> str:
    lines = [
        "# A paying user beside a free flood",
        "",
        f"{report['machine']}; commit `{report['commit']}`; {report['at']}.",
        "Made by `make bench-flood`; the raw figures are in flood.json.",
        "",
        f"{REPLICAS} fake engines that read {ENGINE['prefill_tokens_per_second']:,.0f} tokens/s of prompts, one prompt"
        f" after the other, write {ENGINE['tokens_per_second']:.0f} tokens/s a stream and have {ENGINE['max_num_seqs']}"
        f" slots. Every request has {SHAPE.prompt} new tokens of prompt and {SHAPE.output} of answer, so that they can"
        f" do {report['capacity']} requests a second. The paying user asks every {SHAPE.paid_gap} s; the flood is"
        f" {report['times']} times what the engines can do.",
        "",
        *rows_of(report["rounds"]),
    ]
    met = "met" if report["added_p99"] <= BAR else "**missed**"
    lines += ["", f"The flood adds {report['added_p99']} s to the paid p99 (bar {BAR} s: {met})."]
    return "\n".join(lines) + "\n"


def run(seconds: float, times: float) -> None:
    environment = {"REPLICA_SLOTS": str(ENGINE["max_num_seqs"]), "CHATSITE_BACKGROUND": "on"}
    with house("uvicorn", *[ENGINE] * REPLICAS, turns_away=True, **environment) as here:
        keys, url = make_room(here), f"http://127.0.0.1:{here.site.port}/v1/completions"
        rounds, added = compare(url, keys, seconds, times * capacity(), SHAPE)
    report = {
        "machine": machine(),
        "commit": commit(),
        "at": now(),
        "capacity": round(capacity(), 1),
        "times": times,
        "rounds": rounds,
        "added_p99": added,
    }
    write("flood", report, table(report))
