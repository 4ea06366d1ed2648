"""The product's rules in simulated time: requests end, faults cost nothing, figures repeat."""

import dataclasses

import pytest

from benchmarks.simulator import faults, report
from benchmarks.simulator.calibrate import sequence_of
from benchmarks.simulator.cluster import DONE, EXPIRED, SHED, Cluster
from benchmarks.simulator.fitting import fit
from benchmarks.simulator.invariants import rows
from benchmarks.simulator.metrics import largest_gap, observe, quantile, served, window
from benchmarks.simulator.policies import LEAST, OURS, POLICIES
from benchmarks.simulator.profiles import GPU
from benchmarks.simulator.real_engine import Prompt
from benchmarks.simulator.runs import Run, Scale, Scenario, run
from benchmarks.simulator.scenarios import rate, scenarios, three_lanes
from benchmarks.simulator.scheduler import Scheduler
from benchmarks.simulator.tickets import Options
from benchmarks.simulator.workloads import CONVERSATION, Source, draw

TINY = Scale(8, 1, 1, drain=30)


def tiny(name: str, share: float = 0.6) -> Scenario:
    [found] = [scenario for scenario in scenarios() if scenario.name == name]
    return dataclasses.replace(found, jobs=lambda scale: draw(three_lanes(share), scale.seconds, 3), full=TINY)


def test_two_runs_of_a_scenario_give_the_same_tables() -> None:
    scenario = tiny("steady-95", 0.95)

    def once() -> str:
        policies = {name: run(scenario, name, scenario.jobs(TINY), TINY)[1] for name in (OURS, LEAST)}
        return report.scenario_table({"title": scenario.title, "says": scenario.says, "policies": policies})

    table = once()
    assert table == once()
    assert OURS in table


def test_every_request_of_the_product_ends_and_its_book_is_empty_then() -> None:
    scenario = tiny("steady-95", 1.5)
    made, figures = run(scenario, OURS, scenario.jobs(TINY), TINY)
    assert {request.outcome for request in made.cluster.requests} <= {DONE, SHED, EXPIRED}
    assert all(each.emitted == each.job.output for each in made.cluster.requests if each.outcome == DONE)
    policy = made.policy
    assert isinstance(policy, Scheduler)
    assert not policy.tickets
    assert policy.book.running() == ()
    for replica in made.cluster.replicas:
        held = policy.counters(replica.id)
        assert (held.qpf, held.kv, held.n) == (0, 0, 0)
        assert replica.engine.pool.available == replica.engine.pool.total
    assert figures["failed"] == 0


@pytest.mark.parametrize("name", ["replica-killed", "replica-slow", "runner-killed", "redis-restarted"])
def test_faults_lose_nothing(name: str) -> None:
    scenario = tiny(name)
    made, figures = run(scenario, OURS, scenario.jobs(TINY), TINY)
    assert figures["extra"]["unanswered"] == 0
    assert figures["extra"]["wrong_length"] == 0
    assert figures["failed"] == 0
    if name == "runner-killed":
        assert 0 < figures["extra"]["reclaimed_max_s"] <= 11
    assert made.policy.book.running() == ()  # type: ignore[attr-defined]


def test_more_replicas_take_their_part() -> None:
    [scenario] = [each for each in scenarios() if each.name == "ramp"]
    jobs = draw([Source(CONVERSATION, "paid", rate(0.6), 5)], 8.0, 1)
    policy = Scheduler()
    cluster = Cluster(GPU, 1, policy, jobs)
    made = Run(cluster, policy, observe(cluster), window(cluster, 0, 8), TINY)
    cluster.at(2.0, cluster.add_replica)
    cluster.run(5.0)
    assert [len(replica.holding) > 0 for replica in made.cluster.replicas] == [True, True]
    assert scenario.faults is faults.four_more


def test_weights_are_kept_between_two_backlogged_tenants() -> None:
    jobs = draw([Source(CONVERSATION, "paid", rate(0.7), prefix=name) for name in ("one", "two")], 16.0, 1)
    policy = Scheduler(options=Options(shedding=False, weights={"two-0": 4.0}))
    cluster = Cluster(GPU, 2, policy, jobs)
    observed = observe(cluster)
    cluster.run(16.0)
    ratio = served(observed, "two-0", 5, 16) / served(observed, "one-0", 5, 16)
    assert ratio == pytest.approx(4.0, rel=0.15)
    assert largest_gap(observed, "one-0", "two-0", (1.0, 4.0)) < 60_000


def test_every_policy_has_a_name_and_every_scenario_its_policies() -> None:
    for scenario in scenarios():
        assert set(scenario.policies) <= set(POLICIES), scenario.name
        assert set(scenario.own) <= set(scenario.policies)


def test_invariants_say_what_was_not_measured() -> None:
    assert {row.verdict for row in rows({}, OURS)} == {"not measured"}


def test_quantiles_count_what_never_came() -> None:
    assert quantile([3.0, 1.0, 2.0, float("inf")], 0.5) == 2.0
    assert quantile([3.0, 1.0, 2.0, float("inf")], 0.99) == float("inf")


def test_a_fit_finds_coefficients_and_lets_none_be_negative() -> None:
    rows_of = [((1.0, x, 0.0), 2.0 + 3.0 * x) for x in (1.0, 5.0, 9.0)]
    rows_of += [((1.0, 2.0, y), 8.0 + 0.5 * y) for y in (1.0, 4.0)]
    assert fit(rows_of) == pytest.approx([2.0, 3.0, 0.5])
    falling = [((1.0, x), 10.0 - x) for x in (1.0, 2.0, 3.0)]
    assert fit(falling)[1] == 0.0


def test_calibration_prompts_share_their_head_in_the_engine_and_in_the_simulator_alike() -> None:
    first, second = (Prompt(400, 10, family=7, head=256) for _ in range(2))
    ours, theirs = first.ids("a"), second.ids("a")
    assert ours[:256] == theirs[:256]
    assert ours[256:] != theirs[256:]
    assert first.ids("a") == ours
    assert first.ids("b")[:256] != ours[:256]
    profile = dataclasses.replace(GPU, block=128)
    one, other = sequence_of(first, profile).hashes, sequence_of(second, profile).hashes
    assert one[:2] == other[:2]
    assert one[2:] != other[2:]
