"""A paying user beside a flood of free requests, on two replicas of the real vLLM on this machine.

`make bench-flood ARGS=--real`. What the replicas can do is found first: free requests one after the other, as many at a
time as they have slots. Then alone, flood, alone, flood. Writes docs/benchmarks/flood-real.json and flood-real.md.
"""

import asyncio
import statistics
import time
from typing import Any

import aiohttp

from benchmarks.flood import BAR, Shape, compare, make_room, request, rows_of
from benchmarks.house import House, house_of
from benchmarks.report import commit, machine, now, write
from tests.acceptance.installation import models_toml

SHAPE = Shape(prompt=100, output=16, paid_gap=4.0)
REPLICAS, AT_ONCE = 2, 8
LOADING_SECONDS = 400.0


async def capacity(url: str, key: str, seconds: float) -> float:
    """Requests a second that get done with AT_ONCE of them under way."""
    until, done = time.perf_counter() + seconds, 0

    async def one_after_another(http: aiohttp.ClientSession, number: int) -> None:
        nonlocal done
        while time.perf_counter() < until:
            number += AT_ONCE
            status, _ = await request(http, url, key, number, SHAPE)
            done += status == 200

    async with aiohttp.ClientSession() as http:
        began = time.perf_counter()
        await asyncio.gather(*(one_after_another(http, number) for number in range(AT_ONCE)))
    return done / (time.perf_counter() - began)


def wait_until_loaded(here: House) -> None:
    """Raises TimeoutError."""
    deadline = time.monotonic() + LOADING_SECONDS
    body = {"model": here.model, "prompt": "Hello", "max_tokens": 1}
    while time.monotonic() < deadline:
        states = {row[0] for row in here.site.query("SELECT url FROM inference_replica WHERE enabled")}
        if len(states) == REPLICAS and all(map(here.answers, states)):
            here.site.call("POST", "/v1/completions", body)
            return
        time.sleep(1)
    raise TimeoutError("the engines did not get ready")


def table(report: dict[str, Any]) -> str:
    met = "met" if report["added_p99"] <= BAR else "**missed**"
    lines = [
        "# A paying user beside a free flood, on the real vLLM",
        "",
        f"{report['machine']}; commit `{report['commit']}`; {report['at']}.",
        "Made by `make bench-flood ARGS=--real`; the raw figures are in flood-real.json.",
        "",
        f"{REPLICAS} replicas of the bundled model on the CPUs that they share with the site and with each other. Every"
        f" request has {SHAPE.prompt} new tokens of prompt and {SHAPE.output} of answer; with {AT_ONCE} at a time"
        f" {report['capacity']} requests a second get done. The paying user asks every {SHAPE.paid_gap} s; the flood is"
        f" {report['times']} times what the replicas can do.",
        "",
        *rows_of(report["rounds"]),
        "",
        f"The flood adds {report['added_p99']} s to the paid p99 (bar {BAR} s, of GPUs: {met}).",
    ]
    return "\n".join(lines) + "\n"


def run(seconds: float, times: float) -> None:
    models = models_toml(engine=f"{{start = true, count = {REPLICAS}}}")
    with house_of(models, "uvicorn", turns_away=True) as here:
        wait_until_loaded(here)
        keys, url = make_room(here), f"http://127.0.0.1:{here.site.port}/v1/completions"
        able = asyncio.run(capacity(url, keys["free"], 30))
        print(f"{able:.2f} requests a second", flush=True)
        rounds, added = compare(url, keys, seconds, times * able, SHAPE)
    report = {
        "machine": machine(),
        "commit": commit(),
        "at": now(),
        "capacity": round(able, 2),
        "times": times,
        "rounds": rounds,
        "added_p99": added,
        "added_p50": round(
            statistics.mean(each["paid_p50"] for name, each in rounds if name == "flood")
            - statistics.mean(each["paid_p50"] for name, each in rounds if name == "alone"),
            3,
        ),
    }
    write("flood-real", report, table(report))
