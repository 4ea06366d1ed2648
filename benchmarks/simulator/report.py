"""Tables in Markdown and charts of what was simulated."""

import json
from collections.abc import Mapping
from typing import Any

from benchmarks.simulator import invariants, plots
from benchmarks.simulator.invariants import ROOT, Results, figure
from benchmarks.simulator.metrics import LANES
from benchmarks.simulator.policies import FEW_LET_IN, HASHING, LEAST, NO_AFFINITY, NO_GATE, OURS, RADIX, ROUND_ROBIN

FOLDER = ROOT / "docs" / "benchmarks" / "simulator"
SUMMARY = ROOT / "docs" / "benchmarks.md"
BEGIN, END = "<!-- made by make simulate: begin -->", "<!-- end -->"
SERIES = "series"


def scenario_table(result: Mapping[str, Any]) -> str:
    """Title, what it is, a line for each policy, and the scenario's own figures."""
    policies: Mapping[str, Any] = result["policies"]
    lanes = [lane for lane in LANES if any(lane in each for each in policies.values())]
    head = [
        "",
        *(f"{lane}: TTFT p50, p95, p99 (refused)" for lane in lanes),
        "tokens/s",
        "cache hits",
        "slow streams",
        "failed",
    ]
    lines = [f"## {result['title']}", "", result["says"], "", _line(head), _line(["---"] * len(head))]
    for name, each in policies.items():
        cells = [name, *(_lane(each.get(lane)) for lane in lanes)]
        cells += [
            f"{each['throughput']:,}",
            _percent(each["hits"]),
            _number(each["slowest_streams"]),
            str(each["failed"]),
        ]
        lines.append(_line(cells))
    return "\n".join([*lines, "", *_extras(policies)])


def _extras(policies: Mapping[str, Any]) -> list[str]:
    names = list(dict.fromkeys(key for each in policies.values() for key in each["extra"] if key != SERIES))
    if not names:
        return []
    lines = [_line(["", *(name.replace("_", " ") for name in names)]), _line(["---"] * (len(names) + 1))]
    lines += [
        _line([policy, *(_number(each["extra"].get(name)) for name in names)]) for policy, each in policies.items()
    ]
    return [*lines, ""]


def invariants_table(results: Results) -> str:
    """Bars and figures, with the defaults and without the least decode rate."""
    lines = [
        "| | what | bar | with the defaults | | without the decode floor | |",
        "|---|---|---|---|---|---|---|",
    ]
    ours, other = (invariants.rows(results, policy) for policy in invariants.POLICIES)
    others = {row.what: row for row in other}
    for row in [*ours, *invariants.calibration()]:
        beside = others.get(row.what)
        cells = [row.number, row.what, row.bar, _measured(row), row.verdict]
        cells += [_measured(beside), beside.verdict] if beside else ["", ""]
        lines.append(_line(cells))
    return "\n".join(lines)


def _measured(row: invariants.Row) -> str:
    return "" if row.measured is None else f"{row.measured:,.4g}{row.unit}"


def write(results: Results) -> None:
    """The raw figures, all scenarios, the charts, and the table in docs/benchmarks.md."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    body = "\n".join(scenario_table(result) for result in results.values())
    (FOLDER / "scenarios.md").write_text(f"{_preface()}\n{body}")
    for name, svg in charts(results).items():
        (FOLDER / f"{name}.svg").write_text(svg)
    before, _, rest = SUMMARY.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    SUMMARY.write_text(f"{before}{BEGIN}\n\n{invariants_table(results)}\n\n{END}{after}")


def _preface() -> str:
    return "\n".join(
        [
            "# Simulated scenarios",
            "",
            "Made by `make simulate`; what it is and what it says is in [benchmarks](../../benchmarks.md).",
            "TTFT is in seconds from arrival to first token, ∞ where it still waited at the end; tokens/s are",
            "those of prompts, cached or not, and replies of requests that were done; slow streams is the tokens/s",
            "that 95 % of streams reach after their first token. Four replicas of the assumed GPU profile, or as said.",
            "",
        ]
    )


def charts(results: Results) -> dict[str, str]:
    """SVG by name."""
    made: dict[str, str] = {}
    loads = ("50", "80", "95")
    compared = (OURS, NO_GATE, LEAST, ROUND_ROBIN, HASHING, RADIX)
    for lane in ("enterprise", "paid", "free"):
        values = {each: [figure(results, f"steady-{load}", each, lane, "p99") for load in loads] for each in compared}
        title = f"TTFT p99 of the {lane} lane by load"
        made[f"steady-{lane}"] = plots.bars(title, [f"{load} %" for load in loads], values, " s", log=True)
    names = ("chat", "hot-prefixes", "mooncake")
    cached = (OURS, NO_AFFINITY, LEAST, HASHING, RADIX)
    hits = {each: [figure(results, name, each, "hits") or 0.0 for name in names] for each in cached}
    made["hits"] = plots.bars("Prompt tokens found in a cache", names, hits, "", log=False)
    for name, title, objective in (
        ("free-flood", "Paid TTFT p95 when a free flood of five times the capacity begins", 1.0),
        ("overload", "Paid TTFT p95 through an overload of twice the capacity", 1.0),
        ("replica-killed", "Paid TTFT p95 when one of four replicas is killed", 1.0),
    ):
        series = {
            policy: [tuple(point) for point in each["extra"][SERIES]]
            for policy, each in results[name]["policies"].items()
            if policy != FEW_LET_IN
        }
        made[name] = plots.lines(title, series, " s", log=True, line=objective)
    return made


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _lane(lane: Mapping[str, Any] | None) -> str:
    if lane is None:
        return ""
    times = ", ".join("∞" if lane[key] is None else f"{lane[key]:.2f}" for key in ("p50", "p95", "p99"))
    return f"{times} ({_percent(lane['refused'])})"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}".replace("%", " %")


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.4g}"
