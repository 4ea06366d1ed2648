"""Random operations with crashes, zombies and a Redis that loses everything."""

import random
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from inference.scheduling.settings import LANES
from tests.inference.scheduling.world import REPLICAS, RUNNERS, World

lanes = st.sampled_from(LANES)
tenants = st.sampled_from(("acme", "globex", "initech"))
runners = st.sampled_from(RUNNERS)
numbers = st.integers(0, 1000)


class BookMachine(RuleBasedStateMachine):
    """`World`, step by step, so that a failure is shrunk to the shortest story."""

    def new_world(self) -> World:
        return World()

    @initialize()
    def start(self) -> None:
        self.world = self.new_world()

    @rule(ms=st.integers(1, 4000))
    def advance(self, ms: int) -> None:
        self.world.advance(ms)

    @rule(
        lane=lanes,
        tenant=tenants,
        input=st.integers(1, 5000),
        output=st.integers(1, 40),
        weight=st.sampled_from((1.0, 4.0)),
    )
    def submit(self, lane: str, tenant: str, input: int, output: int, weight: float) -> None:
        self.world.submit(lane, tenant, input, output, weight)

    @rule(number=numbers)
    def enqueue_again(self, number: int) -> None:
        self.world.enqueue_again(number)

    @rule(runner=runners, cached=st.floats(0, 1), repeat=st.booleans(), fresh=st.booleans())
    def dispatch(self, runner: str, cached: float, repeat: bool, fresh: bool) -> None:
        self.world.dispatch(runner, cached, repeat, fresh)

    @rule(runner=runners, tokens=st.integers(1, 20))
    def generate(self, runner: str, tokens: int) -> None:
        self.world.generate(runner, tokens)

    @rule(runner=runners)
    def beat(self, runner: str) -> None:
        self.world.beat(runner)

    @rule(runner=runners)
    def finish(self, runner: str) -> None:
        self.world.finish(runner)

    @rule(runner=runners, failed=st.booleans(), repeat=st.booleans())
    def release(self, runner: str, failed: bool, repeat: bool) -> None:
        self.world.release(runner, failed, repeat)

    @rule(runner=runners)
    def set_aside(self, runner: str) -> None:
        self.world.set_aside(runner)

    @rule(runner=runners)
    def crash(self, runner: str) -> None:
        self.world.crash(runner)

    @rule()
    def haunt(self) -> None:
        self.world.haunt()

    @rule(number=numbers)
    def cancel(self, number: int) -> None:
        self.world.cancel(number)

    @rule(runner=runners)
    def preempt(self, runner: str) -> None:
        self.world.preempt(runner)

    @rule(loading=st.booleans())
    def reap(self, loading: bool) -> None:
        self.world.reap(loading)

    @rule(number=numbers)
    def settle_again(self, number: int) -> None:
        self.world.settle_again(number)

    @rule()
    def lose_redis(self) -> None:
        self.world.lose_redis()

    @rule()
    def sweep(self) -> None:
        self.world.sweep()

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            all_is_zero_after(self.world)


def all_is_zero_after(world: World) -> None:
    world.settle_everything()
    counters = world.book.peek(world.now, 10, list(REPLICAS))
    assert not counters.heads
    assert all((each.qpf, each.kv, each.n) == (0, 0, 0) for each in counters.replicas.values())
    assert not world.book.running() and not world.book.reap(world.now)


class TestInvariants5And7AfterEveryStep(BookMachine.TestCase):
    settings = settings(max_examples=40, stateful_step_count=50, deadline=None)


def random_step(world: World, rng: random.Random) -> None:
    runner = rng.choice(RUNNERS)
    steps: list[tuple[int, Callable[[], None]]] = [
        (20, lambda: world.advance(rng.randint(1, 1500))),
        (
            12,
            lambda: world.submit(rng.choice(LANES), rng.choice("abcde"), rng.randint(1, 5000), rng.randint(1, 40), 1.0),
        ),
        (2, lambda: world.enqueue_again(rng.randrange(1000))),
        (20, lambda: world.dispatch(runner, rng.random(), rng.random() < 0.2, rng.random() < 0.8)),
        (20, lambda: world.generate(runner, rng.randint(1, 20))),
        (20, lambda: world.beat(runner)),
        (15, lambda: world.finish(runner)),
        (4, lambda: world.release(runner, rng.random() < 0.7, rng.random() < 0.5)),
        (1, lambda: world.set_aside(runner)),
        (1, lambda: world.crash(runner)),
        (4, world.haunt),
        (3, lambda: world.cancel(rng.randrange(1000))),
        (1, lambda: world.preempt(runner)),
        (8, lambda: world.reap(rng.random() < 0.1)),
        (2, lambda: world.settle_again(rng.randrange(1000))),
        (0.2, world.lose_redis),
        (4, world.sweep),
    ]
    rng.choices([step for _, step in steps], [weight for weight, _ in steps])[0]()


def run_stories(stories: int, steps: int) -> set[str]:
    ends: set[str] = set()
    for seed in range(stories):
        rng, world = random.Random(seed), World()
        for _ in range(steps):
            random_step(world, rng)
            world.check()
        ends |= {truth.terminal for truth in world.truths.values()}
        all_is_zero_after(world)
    return ends


def test_s26_invariants_5_and_7_hold_through_ten_thousand_operations_with_crashes_zombies_and_redis_loss() -> None:
    ends = run_stories(stories=40, steps=250)
    assert ends >= {"succeeded", "cancelled", "failed", "expired"}  # the stories get everywhere


@pytest.mark.long
def test_invariants_5_and_7_hold_through_a_million_operations() -> None:
    run_stories(stories=4000, steps=250)
