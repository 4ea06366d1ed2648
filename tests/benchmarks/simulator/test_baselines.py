"""The other policies route as they say."""

import math
from collections.abc import Sequence

import pytest

from benchmarks.simulator.baselines import BoundedHashing, LeastLoaded, Push, RadixTree, RoundRobin, load
from benchmarks.simulator.cluster import DONE, Cluster, Request
from benchmarks.simulator.profiles import GPU
from benchmarks.simulator.workloads import Job

LONG = 5000  # tokens of output: nothing ends while a test looks


def job(number: int, at: float, key: int | None = None, input: int = 640, output: int = LONG) -> Job:
    chain = [(number + 1000, input + output)] if key is None else [(key, input - 16), (number + 1000, input + output)]
    return Job(number, at, "paid", "someone", input, output, chain)


def placed(policy: Push, jobs: Sequence[Job], replicas: int = 3, until: float = 10.0) -> tuple[Cluster, list[str]]:
    cluster = Cluster(GPU, replicas, policy, jobs)
    cluster.run(until)
    return cluster, [each.replica.id if each.replica else "" for each in cluster.requests]


def test_round_robin_takes_turns() -> None:
    _, places = placed(RoundRobin(), [job(number, number * 0.1) for number in range(6)])
    assert sorted(places[:3]) == ["r0", "r1", "r2"]
    assert places[:3] == places[3:]


def test_the_least_loaded_replica_is_chosen_and_a_request_on_its_way_counts() -> None:
    cluster, _ = placed(LeastLoaded(), [job(number, 1.0) for number in range(9)])
    assert [load(replica) for replica in cluster.replicas] == [3, 3, 3]


def test_bounded_hashing_keeps_a_prefix_together_until_the_bound() -> None:
    _, alone = placed(BoundedHashing(), [job(number, 1.0, key=number) for number in range(3)])
    again = placed(BoundedHashing(), [job(number, 1.0 + number, key=7, output=9) for number in range(3)])[0]
    assert "" not in alone
    assert sorted(replica.engine.prefilled for replica in again.replicas)[:2] == [0, 0]
    cluster, _ = placed(BoundedHashing(), [job(number, 1.0 + number, key=5) for number in range(30)], until=40.0)
    loads = [load(replica) for replica in cluster.replicas]
    assert max(loads) <= math.ceil(1.25 * 30 / 3)
    assert sum(loads) == 30


def test_the_radix_tree_sticks_to_a_match_and_else_takes_the_smallest_tree() -> None:
    jobs = [job(0, 1.0, key=5), job(1, 2.0, key=5), job(2, 3.0), job(3, 4.0)]
    _, places = placed(RadixTree(), jobs)
    assert places[0] == places[1]
    assert len({places[0], places[2], places[3]}) == 3


def test_the_radix_tree_gives_up_a_match_when_loads_are_far_apart() -> None:
    jobs = [job(number, 1.0 + number * 0.01, key=5) for number in range(80)]
    cluster, places = placed(RadixTree(), jobs)
    assert set(places[:65]) == {places[0]}
    assert places[65] != places[0]
    assert sum(map(load, cluster.replicas)) == 80


@pytest.mark.parametrize("policy", [RoundRobin, LeastLoaded, BoundedHashing, RadixTree])
def test_a_dead_replica_gets_nothing_and_what_had_no_token_is_tried_elsewhere(policy: type[Push]) -> None:
    cluster = Cluster(GPU, 2, policy(), [job(number, 1.0 + number * 0.5, output=40) for number in range(20)])
    cluster.at(4.0, lambda: cluster.kill(cluster.replicas[0], 100.0))
    cluster.run(60.0)
    assert all(request.outcome for request in cluster.requests)
    late: list[Request] = [request for request in cluster.requests if request.job.at > 4.0]
    assert all(request.outcome == DONE and request.emitted == 40 for request in late)
    assert not cluster.replicas[0].holding
