"""What the scheduler costs in Redis: cycles of a request that one core does, and each operation's own time.

`make bench-scheduler`. One Valkey of its own, as the product starts it (append-only file, unix socket), with 10,000
requests waiting in four lanes. `--beside=COMMIT` measures the operations of that commit as well, in turns. Writes
docs/benchmarks/scheduling.json and scheduling.md.
"""

import argparse
import json
import os
import random
import re
import subprocess
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean, median
from typing import Any

import redis

from benchmarks.client import quantile
from benchmarks.house import ROOT
from benchmarks.report import commit, machine, now, write
from chatsite.operations.embedded import valkey
from chatsite.operations.processes import GuardedProcess
from chatsite.redis import Arg, Call, Script
from inference.redis.scheduler import FOLDER, NAMES, Scheduler, committed, peeked
from inference.scheduling.answers import Head
from inference.scheduling.settings import LANES

QUEUED = 10_000
TENANTS = (1, 100, 1000)  # in each of the four lanes
COMMITS_PER_LOOK = (8, 1)
REPLICAS = ("a", "b", "c", "d")
PEEK = 8  # as the runners do
INPUT, UNCACHED, OUTPUT = 1000, 500, 100  # tokens of each request
GOAL_CYCLES = 15_000
GOAL_COMMIT_US = 1000
HERE = "now"
TIMES = ("us_mean", "us_p50", "us_p99", "us_max")
ASK = ("INFO", "commandstats")
SPENT = re.compile(rb"cmdstat_evalsha:calls=\d+,usec=(\d+)")
Scripts = Mapping[str, Script]


@dataclass
class Client:
    """A connection that sends many calls in one go; redis-py's own pipelines cost more than what is measured."""

    connection: Any
    scripts: Scripts
    scheduler: Scheduler = field(default_factory=lambda: Scheduler(None, "bench"))  # type: ignore[arg-type]

    def run(self, calls: Sequence[Call]) -> list[Any]:
        """Their answers, in order. Raises the first error among them."""
        return self.send([self.command(call) for call in calls])

    def command(self, call: Call) -> Sequence[Arg]:
        return ("EVALSHA", self.scripts[call.script.name].sha, 1, call.prefix, *call.args)

    def send(self, commands: Sequence[Sequence[Arg]]) -> list[Any]:
        self.connection.send_packed_command(self.connection.pack_commands(commands))
        return [self.connection.read_response() for _ in commands]


@dataclass
class Stopwatch(Client):
    """Asks after each call how long it took by the server's own account: `took`, us, by sha."""

    took: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    def run(self, calls: Sequence[Call]) -> list[Any]:
        commands: list[Sequence[Arg]] = [ASK]
        for call in calls:
            commands += [self.command(call), ASK]
        replies = self.send(commands)
        spent = [int(found[1]) if (found := SPENT.search(reply)) else 0 for reply in replies[::2]]
        for call, before, after in zip(calls, spent, spent[1:], strict=False):
            self.took[self.scripts[call.script.name].sha].append(after - before)
        return replies[1::2]


class Driver:
    """Callers and runners: looks, commits, and brings what it has placed to its end; each end is a new request."""

    def __init__(self, client: Client, name: str, commits_per_look: int) -> None:
        self.client, self.calls, self.name = client, client.scheduler, name
        self.commits_per_look = commits_per_look
        self.random = random.Random(name)
        self.entered = self.cycles = self.refused = 0

    def enqueue_call(self, lane: str, tenant: str) -> Call:
        self.entered += 1
        sizes = {"input": INPUT, "uncached": UNCACHED, "kv": INPUT + OUTPUT}
        deadline = int(time.time() * 1000) + 3_600_000
        return self.calls.enqueue_call(f"{self.name}-{self.entered:08}", lane, tenant, deadline=deadline, **sizes)

    def fill(self, queued: int, tenants: int) -> None:
        places = [(LANES[each % 4], f"tenant-{each // 4 % tenants}") for each in range(queued)]
        for start in range(0, queued, 500):
            self.client.run([self.enqueue_call(*place) for place in places[start : start + 500]])

    def batch(self) -> None:
        """A look, and one cycle for each of the requests that it places."""
        [answer] = self.client.run([self.calls.peek_call(PEEK, REPLICAS)])
        heads = self._choose(peeked(answer, REPLICAS).heads)
        commits = [
            self.calls.commit_call(head, self.random.choice(REPLICAS), self.name, head.uncached) for head in heads
        ]
        answers = [committed(each) for each in self.client.run(commits)]
        placed = [(head, answer.attempt) for head, answer in zip(heads, answers, strict=True) if answer.attempt]
        self.refused += len(heads) - len(placed)
        self.cycles += len(placed)
        calls = [self.calls.first_token_call(head.id, attempt) for head, attempt in placed]
        calls += [self.calls.heartbeat_call([(head.id, attempt, OUTPUT // 2) for head, attempt in placed])]
        calls += [self.calls.settle_call(head.id, OUTPUT) for head, _ in placed]
        calls += [self.enqueue_call(head.lane, head.tenant) for head, _ in placed]
        self.client.run(calls)

    def _choose(self, heads: Sequence[Head]) -> list[Head]:
        """Tenants that have their turn, in any order; of each tenant its requests in theirs."""
        queues: dict[tuple[str, str], list[Head]] = defaultdict(list)
        for head in heads:
            queues[head.lane, head.tenant].append(head)
        turns = [queue for queue in queues.values() if queue[0].turn]
        self.random.shuffle(turns)
        return [head for queue in turns for head in queue][: self.commits_per_look]

    def drive(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.batch()


class Bench:
    def __init__(self, server: redis.Redis, seconds: float, clients: int) -> None:
        self.server, self.seconds, self.clients = server, seconds, clients

    def drivers(self, scripts: Scripts, tenants: int, commits_per_look: int, clients: int) -> list[Driver]:
        """On a server that holds nothing but a full queue; they have run a little."""
        self.server.flushall()
        drivers = [
            Driver(Client(self.server.connection_pool.make_connection(), scripts), f"client-{each}", commits_per_look)
            for each in range(clients)
        ]
        prefix = drivers[0].calls.prefix
        said = {"capn": 1_000_000, "capkv": 10**12, "rate": 1e9, "open": 1}  # gates and ceilings are checked, never met
        for each in REPLICAS:
            self.server.hset(f"{prefix}:rep:{each}", mapping=said)
        drivers[0].fill(QUEUED, tenants)
        together(drivers, self.seconds / 5)
        return drivers

    def throughput(self, scripts: Scripts, tenants: int, commits_per_look: int) -> dict[str, Any]:
        """Cycles for each second of the server's CPU, and for each second of the clock."""
        drivers = self.drivers(scripts, tenants, commits_per_look, self.clients)
        cycles, refused, cpu, start = _cycles(drivers), _refused(drivers), self.cpu(), time.monotonic()
        together(drivers, self.seconds)
        wall, spent, done = time.monotonic() - start, self.cpu() - cpu, _cycles(drivers) - cycles
        for driver in drivers:
            driver.client.connection.disconnect()
        return {
            "cycles": done,
            "commits_refused": _refused(drivers) - refused,
            "wall_s": round(wall, 3),
            "server_cpu_s": round(spent, 3),
            "cycles_per_cpu_s": round(done / spent),
            "cycles_per_wall_s": round(done / wall),
            "server_busy": round(spent / wall, 2),
        }

    def times(self, sets: Mapping[str, Scripts], tenants: int) -> dict[str, Any]:
        """Of each operation (us), with one client: the sets of scripts in turns, a look each, on the same data."""
        [driver] = self.drivers(next(iter(sets.values())), tenants, COMMITS_PER_LOOK[0], clients=1)
        driver.client = watch = Stopwatch(driver.client.connection, driver.client.scripts)
        end = time.monotonic() + self.seconds * len(sets)
        while time.monotonic() < end:
            for scripts in sets.values():
                watch.scripts = scripts
                driver.batch()
        watch.connection.disconnect()
        return {
            label: {name: _figures(watch.took[scripts[name].sha]) for name in NAMES if watch.took[scripts[name].sha]}
            for label, scripts in sets.items()
        }

    def cpu(self) -> float:
        said: Any = self.server.info("cpu")
        return float(said["used_cpu_user"] + said["used_cpu_sys"])


def together(drivers: Sequence[Driver], seconds: float) -> None:
    threads = [threading.Thread(target=driver.drive, args=(seconds,)) for driver in drivers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _figures(took: Sequence[int]) -> dict[str, float]:
    return {
        "calls": len(took),
        "us_mean": round(mean(took), 1),
        "us_p50": quantile(took, 0.5),
        "us_p99": quantile(took, 0.99),
        "us_max": max(took),
    }


def _cycles(drivers: Sequence[Driver]) -> int:
    return sum(driver.cycles for driver in drivers)


def _refused(drivers: Sequence[Driver]) -> int:
    return sum(driver.refused for driver in drivers)


@contextmanager
def server() -> Iterator[redis.Redis]:
    """A Valkey of its own, as the product runs it."""
    folder = Path(tempfile.mkdtemp(prefix="chatsite-bench-"))
    made = valkey(folder)
    process = GuardedProcess(replace(made.command, remove=folder), folder / "server.log")
    try:
        while not made.answers():
            if not process.running():
                raise RuntimeError((folder / "server.log").read_text())
            time.sleep(0.02)
        with redis.Redis.from_url(made.environment["REDIS_URL"], socket_timeout=120) as client:
            yield client
    finally:
        process.end()


def load(folder: Path) -> Scripts:
    shared = (folder / "clock.lua", folder / "rules.lua")
    return {name: Script.load(folder / f"{name}.lua", *shared) for name in NAMES if (folder / f"{name}.lua").exists()}


def scripts_of(revision: str) -> Scripts:
    """The operations as that commit, or that folder, has them."""
    if Path(revision).is_dir():
        return load(Path(revision))
    path = FOLDER.relative_to(ROOT)
    with tempfile.TemporaryDirectory() as place:
        packed = subprocess.run(["git", "archive", revision, str(path)], cwd=ROOT, capture_output=True, check=True)
        subprocess.run(["tar", "-x", "-C", place], input=packed.stdout, check=True)
        return load(Path(place, path))


def measure(bench: Bench, sets: Mapping[str, Scripts], rounds: int) -> dict[str, Any]:
    """All sets of scripts in turns (A B A B), so that what else the machine does meets them alike."""
    cycles: list[dict[str, Any]] = []
    times: list[dict[str, Any]] = []
    for scripts in sets.values():
        for script in scripts.values():
            bench.server.script_load(script.text)
    for tenants in TENANTS:
        for commits in COMMITS_PER_LOOK:
            for turn in range(rounds):
                for name, scripts in sets.items():
                    row = {"scripts": name, "tenants": tenants, "commits_per_look": commits, "round": turn}
                    cycles.append(row | bench.throughput(scripts, tenants, commits))
                    print(json.dumps(cycles[-1]), flush=True)
        for name, operations in bench.times(sets, tenants).items():
            times.append({"scripts": name, "tenants": tenants, "operations": operations})
            print(json.dumps(times[-1]), flush=True)
    return {"cycles": cycles, "times": times}


def rates(report: Mapping[str, Any]) -> list[str]:
    """A line for each set of scripts, number of tenants and way of looking: the median of its rounds."""
    rounds: dict[tuple[str, int, int], list[dict[str, Any]]] = defaultdict(list)
    for row in report["cycles"]:
        rounds[row["scripts"], row["tenants"], row["commits_per_look"]].append(row)
    return [_rate_line(*key, found) for key, found in sorted(rounds.items(), key=lambda item: item[0][1:])]


def _rate_line(name: str, tenants: int, commits: int, rounds: Sequence[Mapping[str, Any]]) -> str:
    rate = median(row["cycles_per_cpu_s"] for row in rounds)
    wall, busy = (median(row[key] for row in rounds) for key in ("cycles_per_wall_s", "server_busy"))
    refused = sum(row["commits_refused"] for row in rounds) / sum(row["cycles"] for row in rounds)
    each = ", ".join(str(row["cycles_per_cpu_s"]) for row in rounds)
    return (
        f"| {name} | {tenants} | {commits} | **{rate:.0f}** ({each}) | {refused:.2f} | {wall:.0f} ({busy:.0%})"
        f" | {GOAL_CYCLES / rate:.1f} |"
    )


def latencies(report: Mapping[str, Any]) -> list[str]:
    """A line for each operation, set of scripts and number of tenants."""
    return [
        f"| {operation} | {row['scripts']} | {row['tenants']} | "
        + " | ".join(f"{row['operations'][operation][key]:.0f}" for key in TIMES)
        + " |"
        for operation in NAMES
        for row in report["times"]
        if operation in row["operations"]
    ]


def table(report: Mapping[str, Any]) -> str:
    return "\n".join([
        "# The scheduler in Redis",
        "",
        f"{report['machine']}; commit `{report['commit']}`; Valkey {report['valkey']}; load"
        f" {report['load_before']} before, {report['load_after']} after (1 minute); {report['at']}.",
        "Made by `make bench-scheduler`; the raw figures are in scheduling.json. Server, clients and what else ran"
        " share the machine: compare within the run.",
        "",
        f"One server process as the product starts it (append-only file), {QUEUED:,} requests waiting in four lanes,"
        f" each of {INPUT} tokens, in 1 to {TENANTS[-1]:,} tenants of each lane. A cycle is enqueue, commit, first"
        f" token, heartbeat and settle of one request. A look is `peek` for {PEEK} requests of each lane; one heartbeat"
        " renews what was placed after one look.",
        "",
        *_cycles_part(report),
        *_times_part(report),
    ])  # fmt: skip


def _cycles_part(report: Mapping[str, Any]) -> list[str]:
    return [
        "## Cycles that one core does",
        "",
        f"Of the server's CPU time, by its own account, the append-only file included; {report['clients']} clients send"
        " what can be sent together. Commits are refused where another request's turn has come since the look. A"
        " request that runs longer than a second adds a heartbeat for each.",
        "",
        "| version | tenants in each lane | commits after a look | cycles/s of one core: median (each round)"
        " | refused for each cycle | cycles/s by the clock (server busy)"
        f" | cores, and so shards, for {GOAL_CYCLES:,}/s |",
        "|---|---|---|---|---|---|---|",
        *rates(report),
        "",
        "A shard is one slot, which one core serves. Models, and the shards of one, may lie on different nodes.",
        "",
    ]


def _times_part(report: Mapping[str, Any]) -> list[str]:
    worst = max(row["operations"]["commit"]["us_p99"] for row in report["times"] if row["scripts"] == HERE)
    verdict = "met" if worst <= GOAL_COMMIT_US else "missed"
    return [
        "## Time of one operation inside the server (us)",
        "",
        f"By the server's own account of each call. `commit` p99 is to be at most {GOAL_COMMIT_US} us: {verdict}"
        f" ({worst:.0f} us). `commit` counts refused ones too; `heartbeat` is of up to {COMMITS_PER_LOOK[0]} requests."
        " The largest is mostly what interrupts the server on a shared machine.",
        "",
        "| operation | version | tenants in each lane | mean | p50 | p99 | largest |",
        "|---|---|---|---|---|---|---|",
        *latencies(report),
        "",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--beside", default="", metavar="COMMIT", help="or folder: its operations too, in turns")
    parser.add_argument("--no-write", action="store_true")
    args = parser.parse_args()
    before = round(os.getloadavg()[0], 2)
    sets = {f"`{args.beside}`": scripts_of(args.beside)} if args.beside else {}
    sets[HERE] = load(FOLDER)
    with server() as client:
        version = client.info("server")["valkey_version"]  # type: ignore[index]
        figures = measure(Bench(client, args.seconds, args.clients), sets, args.rounds)
    report = {
        "machine": machine(), "commit": commit(), "valkey": version, "at": now(), "clients": args.clients,
        "load_before": before, "load_after": round(os.getloadavg()[0], 2), "queued": QUEUED, **figures,
    }  # fmt: skip
    if not args.no_write:
        write("scheduling", report, table(report))
    print(table(report))


if __name__ == "__main__":
    main()
