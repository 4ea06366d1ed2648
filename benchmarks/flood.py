"""A paying user beside a flood of free requests: times to the first token, alone and in the flood.

`make bench-flood`. The whole site in front of fake engines that read prompts at a fixed rate, one after the other, and
have few slots: what is measured is who is let through first, not how fast an engine is. Alone, flood, alone, flood.
Writes docs/benchmarks/flood.json and flood.md.
"""

import argparse
import asyncio
import json
import random
import statistics
import time
from collections import Counter
from typing import Any

import aiohttp

from benchmarks.client import quantile
from benchmarks.house import ROOT, House, house
from benchmarks.report import commit, machine, now
from tests.acceptance.installation import MODEL

ENGINE: dict[str, Any] = {"prefill_tokens_per_second": 4000.0, "tokens_per_second": 50.0, "max_num_seqs": 16}
REPLICAS = 2
PROMPT, OUTPUT = 400, 50  # tokens, of every request
PAID_GAP = 0.5  # seconds between two requests of the paying user
BAR = 0.5  # seconds that the flood may add to the paid p99


async def first_token(http: aiohttp.ClientSession, url: str, key: str, seed: int) -> tuple[int, float]:
    """Status, and seconds to the first token; the rest is read."""
    ids = [5 + (seed * 7919 + at * 31) % 40_000 for at in range(PROMPT)]
    body = {"model": MODEL, "prompt": ids, "max_tokens": OUTPUT, "stream": True}
    began, first = time.perf_counter(), 0.0
    async with http.post(url, json=body, headers={"authorization": f"Bearer {key}"}) as answer:
        async for line in answer.content:
            if line.startswith(b"data: {") and not first:
                first = time.perf_counter() - began
    return answer.status, first


async def paying(http: aiohttp.ClientSession, url: str, key: str, seconds: float) -> list[float]:
    until, found, seed = time.perf_counter() + seconds, [], random.randrange(10**9)
    tasks = []
    while time.perf_counter() < until:
        seed += 1
        tasks.append(asyncio.create_task(first_token(http, url, key, seed)))
        await asyncio.sleep(PAID_GAP)
    for status, first in await asyncio.gather(*tasks):
        if status != 200:
            raise RuntimeError(f"a paid request was answered {status}")
        found.append(first)
    return found


async def flooding(
    http: aiohttp.ClientSession, url: str, key: str, rate: float, stop: asyncio.Event
) -> list[tuple[int, float]]:
    """Free requests at random moments, `rate` a second, until told to stop."""
    draw, tasks, base = random.Random(1), [], random.randrange(10**9)
    while not stop.is_set():
        tasks.append(asyncio.create_task(first_token(http, url, key, base + len(tasks))))
        await asyncio.sleep(draw.expovariate(rate))
    for task in tasks:
        if not task.done():
            task.cancel()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    return [each for each in done if not isinstance(each, BaseException)]


async def round_of(url: str, keys: dict[str, str], seconds: float, rate: float) -> dict[str, Any]:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as http:
        stop = asyncio.Event()
        flood = asyncio.create_task(flooding(http, url, keys["free"], rate, stop)) if rate else None
        if flood:
            await asyncio.sleep(5)  # it stands
        paid = await paying(http, url, keys["paid"], seconds)
        stop.set()
        free = await flood if flood else []
    served = [first for status, first in free if status == 200 and first]
    return {
        "paid_requests": len(paid),
        "paid_p50": round(statistics.median(paid), 3),
        "paid_p99": round(quantile(paid, 0.99), 3),
        "paid_max": round(max(paid), 3),
        "free_statuses": dict(Counter(str(status) for status, _ in free)),
        "free_served": len(served),
        "free_p50": round(statistics.median(served), 3) if served else None,
    }


def capacity() -> float:
    """Requests a second that all engines can do: by what they read, or by their slots."""
    reading = ENGINE["prefill_tokens_per_second"] / PROMPT
    writing = ENGINE["max_num_seqs"] / (OUTPUT / ENGINE["tokens_per_second"] + 1 / reading)
    return float(REPLICAS * min(reading, writing))


def make_room(here: House) -> dict[str, str]:
    """Plans without limits; a key of a paying and one of a free organization."""
    here.execute("UPDATE quotas_plan SET concurrent = 100000, tokens_per_minute = 1000000000")
    here.execute("UPDATE quotas_plan SET requests_per_minute = NULL")
    keys = {"paid": here.site.key, "free": here.key("free")}
    time.sleep(6)  # plans are known for five seconds
    return keys


def table(report: dict[str, Any]) -> str:
    lines = [
        "# A paying user beside a free flood",
        "",
        f"{report['machine']}; commit `{report['commit']}`; {report['at']}.",
        "Made by `make bench-flood`; the raw figures are in flood.json.",
        "",
        f"{REPLICAS} fake engines that read {ENGINE['prefill_tokens_per_second']:,.0f} tokens/s of prompts, one prompt"
        f" after the other, write {ENGINE['tokens_per_second']:.0f} tokens/s a stream and have {ENGINE['max_num_seqs']}"
        f" slots. Every request has {PROMPT} new tokens of prompt and {OUTPUT} of answer, so that they can do"
        f" {report['capacity']} requests a second. The paying user asks every {PAID_GAP} s; the flood is"
        f" {report['times']} times what the engines can do.",
        "",
        "| | paid requests | first token p50 (s) | p99 | longest | free answers by status | free p50 (s) |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, each in report["rounds"]:
        statuses = ", ".join(f"{count} x {status}" for status, count in each["free_statuses"].items()) or "-"
        paid = " | ".join(str(each[figure]) for figure in ("paid_requests", "paid_p50", "paid_p99", "paid_max"))
        lines.append(f"| {name} | {paid} | {statuses} | {each['free_p50'] or '-'} |")
    met = "met" if report["added_p99"] <= BAR else "**missed**"
    lines += ["", f"The flood adds {report['added_p99']} s to the paid p99 (bar {BAR} s: {met})."]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=40.0, help="of each round")
    parser.add_argument("--times", type=float, default=5.0, help="the flood, in what the engines can do")
    args = parser.parse_args()
    rounds: list[tuple[str, dict[str, Any]]] = []
    environment = {"REPLICA_SLOTS": str(ENGINE["max_num_seqs"]), "CHATSITE_BACKGROUND": "on"}
    with house("uvicorn", *[ENGINE] * REPLICAS, turns_away=True, **environment) as here:
        keys, url = make_room(here), f"http://127.0.0.1:{here.site.port}/v1/completions"
        for name, rate in (("alone", 0.0), ("flood", args.times * capacity())) * 2:
            figures = asyncio.run(round_of(url, keys, args.seconds, rate))
            print(name, json.dumps(figures), flush=True)
            rounds.append((name, figures))
            time.sleep(10)
    alone, flood = (
        statistics.mean(each["paid_p99"] for name, each in rounds if name == kind) for kind in ("alone", "flood")
    )
    report = {
        "machine": machine(),
        "commit": commit(),
        "at": now(),
        "capacity": round(capacity(), 1),
        "times": args.times,
        "rounds": rounds,
        "added_p99": round(flood - alone, 3),
    }
    folder = ROOT / "docs" / "benchmarks"
    (folder / "flood.json").write_text(json.dumps(report, indent=1) + "\n")
    (folder / "flood.md").write_text(table(report))


if __name__ == "__main__":
    main()
