"""What breaks in a scenario, and when: arranged on a run before it starts."""

from benchmarks.simulator.runs import Run
from benchmarks.simulator.scheduler import Scheduler

WHEN = 0.4  # of the counted time
BACK_SECONDS = 40.0
REDIS_SECONDS = 2.0
COLD_SECONDS = 95.0  # 5 to notice, 90 to start


def kill_replica(run: Run) -> None:
    back = min(BACK_SECONDS, run.scale.at(0.75) - run.scale.at(WHEN))
    run.cluster.at(run.scale.at(WHEN), lambda: run.cluster.kill(run.cluster.replicas[1], back))


def slow_replica(run: Run) -> None:
    def become(times: float) -> None:
        run.cluster.replicas[1].slow = times

    run.cluster.at(run.scale.at(WHEN), become, 10.0)
    run.cluster.at(run.scale.at(0.7), become, 1.0)


def freeze_metrics(run: Run) -> None:
    def become(frozen: bool) -> None:
        run.cluster.replicas[1].frozen = frozen

    run.cluster.at(run.scale.at(WHEN), become, True)
    run.cluster.at(run.scale.at(0.8), become, False)


def kill_runner(run: Run) -> None:
    if isinstance(run.policy, Scheduler):
        run.cluster.at(run.scale.at(WHEN), lambda: run.policy.upkeep.kill_runner(0))


def restart_redis(run: Run) -> None:
    if isinstance(run.policy, Scheduler):
        run.cluster.at(run.scale.at(WHEN), lambda: run.policy.upkeep.restart_redis(REDIS_SECONDS))


def four_more(run: Run) -> None:
    for number in range(4):
        run.cluster.at(run.scale.at(0.15) + COLD_SECONDS + number, run.cluster.add_replica)
