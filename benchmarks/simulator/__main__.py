"""Runs the scenarios and writes docs/benchmarks/simulator and the table in docs/benchmarks.md. `make simulate`.

python -m benchmarks.simulator [--only PART] [--quick] [--no-write]
"""

import argparse
import time
from typing import Any

from benchmarks.simulator import report
from benchmarks.simulator.runs import Figures, Scenario, run, shortened
from benchmarks.simulator.scenarios import scenarios

Results = dict[str, dict[str, Any]]


def simulate(chosen: list[Scenario]) -> Results:
    """Figures of each scenario by policy; prints as it goes."""
    results: Results = {}
    for scenario in chosen:
        started = time.process_time()
        jobs = scenario.jobs(scenario.full)
        policies: dict[str, Figures] = {}
        for name in scenario.policies:
            _, policies[name] = run(scenario, name, jobs, scenario.full)
        results[scenario.name] = {"title": scenario.title, "says": scenario.says, "policies": policies}
        print(report.scenario_table(results[scenario.name]), flush=True)
        print(f"({scenario.name}: {time.process_time() - started:.0f} s of CPU)\n", flush=True)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="scenarios whose name contains this")
    parser.add_argument("--quick", action="store_true", help="shorter runs, in less than a minute; nothing is written")
    parser.add_argument("--no-write", action="store_true")
    args = parser.parse_args()
    chosen = [scenario for scenario in scenarios() if args.only in scenario.name]
    results = simulate([shortened(scenario) for scenario in chosen] if args.quick else chosen)
    print(report.invariants_table(results))
    if not (args.quick or args.only or args.no_write):
        report.write(results)


if __name__ == "__main__":
    main()
