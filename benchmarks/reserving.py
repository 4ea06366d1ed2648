"""What a reservation and its settlement cost in Redis, by the server's own clock, under load.

`make bench-reserve`. One Valkey of its own, as the product starts it, and callers side by side on 10,000 organizations,
each with a plan's limits by the minute and monthly budgets. Writes docs/benchmarks/reserving.json and reserving.md.
"""

import argparse
import json
import os
import random
import threading
import time
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import redis

from benchmarks.client import quantile
from benchmarks.report import commit, machine, now, write
from benchmarks.scheduling import server
from chatsite.ids import new_id
from chatsite.redis import Arg
from quotas.scripts import REMEMBER_MS, RESERVE, SETTLE, quota_prefix

ORGANIZATIONS, CALLERS, CYCLES = 10_000, 16, 500
LOGGED = 60  # entries of the slow log for each cycle, at most: it has a script's own commands, too
MOST = 10**12
UNITS = ("tokens", "cost")
BUDGETS: dict[str, list[tuple[str, str, int, int]]] = {  # subject, unit, days (0: the month), limit
    "plan only": [],
    "monthly tokens and cost": [("org", unit, 0, MOST) for unit in UNITS],
    "and 30 days of the same": [("org", unit, days, MOST) for unit in UNITS for days in (0, 30)],
}


def known(client: redis.Redis, organization: UUID) -> None:
    """Counters of a month's use, as the ledger would have been read."""
    today = int(time.time() // 86_400)
    fields: dict[str, int] = {}
    for unit in UNITS:
        fields[f"org {unit}"] = 1
        fields |= {f"org {unit} {today - back}": 1000 for back in range(30)}
    client.hset(f"{quota_prefix(organization)}:counted", mapping=fields)  # type: ignore[arg-type]


def reservation(reply: UUID, budgets: Sequence[tuple[str, str, int, int]]) -> list[Arg]:
    """The arguments of reserve.lua: one reply, in the plan's bucket and these budgets."""
    args: list[Arg] = ["all", 30_000, str(new_id()), str(new_id()), 1, "plan", 10**9, 10**9, 10**6, len(budgets)]
    for each in budgets:
        args += each
    return [*args, str(reply), 300, 1500, 10**6]


def call(
    url: str, organizations: Sequence[UUID], budgets: Sequence[tuple[str, str, int, int]], cycles: int, seed: int
) -> None:
    draw = random.Random(seed)
    with redis.Redis.from_url(url, socket_timeout=60) as client:
        for _ in range(cycles):
            prefix, reply = quota_prefix(draw.choice(organizations)), new_id()
            answer = RESERVE.call_sync(client, prefix, *reservation(reply, budgets))
            assert answer[0] == 0, answer
            SETTLE.call_sync(client, prefix, str(reply), 200, 200, 10**5, REMEMBER_MS)


def measure(budgets: Sequence[tuple[str, str, int, int]], cycles: int) -> dict[str, Any]:
    with server() as client:
        organizations = [new_id() for _ in range(ORGANIZATIONS)]
        for each in organizations:
            known(client, each)
        url = "unix://" + client.connection_pool.connection_kwargs["path"]
        call(url, organizations[:50], budgets, 50, 0)  # the scripts are there
        client.config_set("slowlog-max-len", LOGGED * CALLERS * cycles)
        client.config_set("slowlog-log-slower-than", 0)
        client.slowlog_reset()
        threads = [
            threading.Thread(target=call, args=(url, organizations, budgets, cycles, seed)) for seed in range(CALLERS)
        ]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        wall = time.perf_counter() - began
        client.config_set("slowlog-log-slower-than", -1)
        entries: Any = client.slowlog_get(LOGGED * CALLERS * cycles)
    found = {}
    for name, script in (("reserve", RESERVE), ("settle", SETTLE)):
        sha = script.sha.encode()
        times = [each["duration"] / 1000 for each in entries if sha in each["command"][:60]]
        assert len(times) == CALLERS * cycles, f"the slow log has {len(times)} calls of {name}"
        found[name] = {
            "calls": len(times),
            **{f"ms_p{round(q * 100)}": round(quantile(times, q), 3) for q in (0.5, 0.9, 0.99)},
            "ms_max": round(max(times), 3),
        }
    return {**found, "cycles_per_s": round(CALLERS * cycles / wall)}


def table(report: dict[str, Any]) -> str:
    lines = [
        "# A reservation in Redis",
        "",
        f"{report['machine']}; commit `{report['commit']}`; load {report['load']} (1 minute); {report['at']}.",
        f"Made by `make bench-reserve`; the raw figures are in reserving.json. {CALLERS} callers side by side on"
        f" {ORGANIZATIONS:,} organizations, whose month is counted; times are the server's own (SLOWLOG), in"
        " ms. Server and callers share the machine.",
        "",
        "| budgets | operation | calls | p50 | p90 | p99 | longest | cycles/s, both together |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, each in report["rows"].items():
        for operation in ("reserve", "settle"):
            row = each[operation]
            figures = " | ".join(str(row[f]) for f in ("calls", "ms_p50", "ms_p90", "ms_p99", "ms_max"))
            lines.append(f"| {name} | {operation} | {figures} | {each['cycles_per_s']} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=CYCLES, help="of each caller")
    args = parser.parse_args()
    load = round(os.getloadavg()[0], 2)
    rows = {}
    for name, budgets in BUDGETS.items():
        rows[name] = measure(budgets, args.cycles)
        print(name, json.dumps(rows[name]), flush=True)
    report = {"machine": machine(), "commit": commit(), "load": load, "at": now(), "rows": rows}
    write("reserving", report, table(report))


if __name__ == "__main__":
    main()
