"""Many streams at once: the largest gap between their tokens, and what one that waits costs in memory.

`make bench-crowd`. The whole site in front of the tests' fake engine, on one machine; the OpenAI-compatible route.
Writes docs/benchmarks/crowd.json and crowd.md.
"""

import argparse
import asyncio
import json
import time
from typing import Any

import psutil

from benchmarks.client import Load, Target, quantile, run
from benchmarks.house import House, house
from benchmarks.report import commit, machine, now, write
from benchmarks.streaming import completions_target

MEBIBYTE = 1024 * 1024
SETTLE_SECONDS = 3.0  # caches of five seconds, garbage and buffers come to rest


def make_room(here: House, streams: int) -> None:
    """Neither the plan's limits are measured, nor what is thought of an engine that changes its speed all at once."""
    here.execute("UPDATE quotas_plan SET concurrent = %s, tokens_per_minute = %s", 4 * streams, 100_000 * streams)
    here.execute("""UPDATE inference_schedulertuning SET "values" = "values" ||
        '{"score": {"min_decode_rate": 0}, "ejection": {"silence_seconds": 600}}'""")
    time.sleep(6)  # plans and settings are known for five seconds


def flow(here: House, streams: int, rate: float, tokens: int) -> dict[str, Any]:
    """All `streams` run side by side, each for `tokens / rate` seconds, and begin spread over half of that time."""
    here.set_engine(tokens_per_second=rate)
    target = completions_target(here, tokens)
    before = here.cpu()
    load = asyncio.run(run([target] * streams, streams, spread=tokens / rate / 2 / streams))
    after = here.cpu()
    gaps = [stream.gap * 1000 for stream in load.streams]
    cpu = {name: round(after[name] - before[name], 2) for name in after}
    return {
        "streams": streams,
        "tokens_per_s_each": rate,
        "statuses": load.statuses,
        "tokens": load.tokens,
        "wall_s": round(load.wall, 1),
        "ttft_ms_p50": round(load.first(0.5) * 1000, 1),
        "ttft_ms_p99": round(load.first(0.99) * 1000, 1),
        "gap_ms_p50": round(quantile(gaps, 0.5), 1),
        "gap_ms_p99": round(quantile(gaps, 0.99), 1),
        "gap_ms_max": round(max(gaps), 1),
        "cpu_s": cpu,
        "cpu_us_per_token": round(sum(cpu.values()) / max(1, load.tokens) * 1e6, 1),
    }


async def _hold(target: Target, streams: int, measure: Any) -> tuple[Load, Any]:
    """Opens streams that wait for their first token, measures, and lets them come to their end."""
    task = asyncio.create_task(run([target] * streams, streams, spread=0.01))
    await asyncio.sleep(0.01 * streams + SETTLE_SECONDS)
    while (there := await asyncio.to_thread(measure.running)) < streams:
        print(f"{there} of {streams} run", flush=True)
        await asyncio.sleep(1)
    await asyncio.sleep(SETTLE_SECONDS)
    found = measure.memory()
    measure.release()
    return await task, found


class _Memory:
    def __init__(self, here: House) -> None:
        self.here = here

    def memory(self) -> dict[str, int]:
        return {"web": _rss(self.here.web), "runner": _rss(self.here.runner)}

    def running(self) -> int:
        return int(self.here.engine_state()["running"])

    def release(self) -> None:
        self.here.set_engine(tokens_per_second=0)


def idle(here: House, streams: int) -> dict[str, Any]:
    """Streams that wait for their next token: what each adds to the processes' resident memory."""
    here.set_engine(tokens_per_second=0.02, first_token_seconds=0)
    target = completions_target(here, 2)
    measure = _Memory(here)
    asyncio.run(_hold(target, streams // 10, measure))  # what the first ones allocate for all is not counted
    here.set_engine(tokens_per_second=0.02)
    time.sleep(SETTLE_SECONDS)
    before = measure.memory()
    load, after = asyncio.run(_hold(target, streams, measure))
    each = {name: round((after[name] - before[name]) / streams / 1024, 1) for name in after}
    return {
        "streams": streams,
        "statuses": load.statuses,
        "mib_before": {name: round(size / MEBIBYTE, 1) for name, size in before.items()},
        "mib_with_streams": {name: round(size / MEBIBYTE, 1) for name, size in after.items()},
        "kib_per_stream": each,
    }


def _rss(root: psutil.Process) -> int:
    return sum(each.memory_info().rss for each in [root, *root.children(recursive=True)])


def table(report: dict[str, Any]) -> str:
    flowing, waiting = report["flow"], report["idle"]
    return "\n".join([
        "# Many streams at once",
        "",
        f"{report['machine']}; commit `{report['commit']}`; {report['server']}; {report['at']}.",
        "Made by `make bench-crowd`; the raw figures are in crowd.json. Site, stores, fake engine and load generator"
        " share the machine.",
        "",
        "| | measured |",
        "|---|---|",
        f"| streams at once, each of {flowing['tokens_per_s_each']} tokens/s | {flowing['streams']} |",
        f"| answers | {flowing['statuses']} |",
        f"| first token p50, p99 (ms) | {flowing['ttft_ms_p50']}, {flowing['ttft_ms_p99']} |",
        f"| largest gap of a stream p50, p99, of all (ms) |"
        f" {flowing['gap_ms_p50']}, {flowing['gap_ms_p99']}, {flowing['gap_ms_max']} |",
        f"| CPU of web and runner (us/token) | {flowing['cpu_us_per_token']} |",
        f"| memory per waiting stream, web and runner (KiB) |"
        f" {waiting['kib_per_stream']['web']}, {waiting['kib_per_stream']['runner']} |",
        "",
    ])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=10.0, help="tokens/s of each stream")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long each stream runs")
    parser.add_argument("--server", default="daphne", choices=["daphne", "uvicorn"])
    parser.add_argument("--no-write", action="store_true")
    args = parser.parse_args()
    with house(args.server) as here:
        make_room(here, args.streams)
        asyncio.run(run([completions_target(here, 20)] * 64, 16))  # warm
        waiting = idle(here, args.streams)  # first: memory that was used once is not given back
        print(json.dumps(waiting), flush=True)
        flowing = flow(here, args.streams, args.rate, int(args.rate * args.seconds))
        print(json.dumps(flowing), flush=True)
    report = {
        "machine": machine(), "commit": commit(), "server": args.server, "at": now(), "flow": flowing, "idle": waiting,
    }  # fmt: skip
    if not args.no_write:
        write("crowd", report, table(report))
    print(table(report))


if __name__ == "__main__":
    main()
