"""The scenarios: who sends what, what breaks, which policies are compared. The order is that of the report."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from benchmarks.simulator import faults, figures
from benchmarks.simulator.capacity import capacity
from benchmarks.simulator.policies import (
    CONTROL,
    FEW_LET_IN,
    HASHING,
    LEAST,
    NO_AFFINITY,
    NO_FLOOR,
    NO_GATE,
    NO_SHEDDING,
    OURS,
    RADIX,
    ROUND_ROBIN,
    scheduler,
)
from benchmarks.simulator.profiles import CPU, GPU, Profile
from benchmarks.simulator.runs import Scale, Scenario
from benchmarks.simulator.workloads import (
    CODE,
    CONVERSATION,
    REASONING,
    Job,
    Shape,
    Source,
    chats,
    draw,
    hot_prefixes,
    lognormal,
    mooncake,
)

ALL = (OURS, NO_FLOOR, NO_GATE, LEAST, ROUND_ROBIN, HASHING, RADIX)
FEW = (OURS, NO_FLOOR, LEAST)
REPLICAS = 4
SEED = 1
SHORT = Shape("short chats", lognormal(5.0, 0.9, high=2500), lognormal(3.5, 0.7, high=200))
TIGHT = replace(GPU, name="gpu with little memory", blocks=4_000)


def rate(share: float, shape: Shape = CONVERSATION, profile: Profile = GPU) -> float:
    """Requests per second that are this share of what the pool can do."""
    return share * REPLICAS * capacity(profile, shape)


def three_lanes(share: float, begin: float = 0.0, end: float = 1e9, profile: Profile = GPU) -> list[Source]:
    """A mix: one in ten enterprise, four paid, five free."""
    parts = (("enterprise", 0.1, 5), ("paid", 0.4, 20), ("free", 0.5, 40))
    return [
        Source(CONVERSATION, lane, rate(share * part, profile=profile), tenants, begin=begin, end=end)
        for lane, part, tenants in parts
    ]


def drawn(*sources: Source) -> Callable[[Scale], list[Job]]:
    return lambda scale: draw(sources, scale.seconds, SEED)


def steady(percent: int) -> Scenario:
    return Scenario(
        f"steady-{percent}",
        f"Steady, {percent} % load",
        "Azure conversations in three lanes: 10 % enterprise, 40 % paid, 50 % free.",
        drawn(*three_lanes(percent / 100)),
        (*ALL, CONTROL),
        extra=figures.steady,
    )


def flood(scale: Scale) -> list[Job]:
    paid = Source(CONVERSATION, "paid", rate(0.3), 20)
    return draw([paid, Source(CONVERSATION, "free", rate(5.0), 200, begin=scale.warm)], scale.seconds, SEED)


def bursts(scale: Scale) -> list[Job]:
    code = Source(CODE, "paid", rate(0.4, CODE), 10, prefix="coder")
    return draw([code, Source(CONVERSATION, "free", rate(0.3), 40)], scale.seconds, SEED)


def reasoners(scale: Scale) -> list[Job]:
    thinker = Source(REASONING, "paid", rate(0.8, REASONING), 1, prefix="thinker")
    return draw([thinker, Source(CONVERSATION, "paid", rate(0.3), 50, prefix="chatter")], scale.seconds, SEED)


def on_off(scale: Scale) -> list[Job]:
    """Three tenants that always send more than their share, three that do so every other 20 seconds."""
    always = Source(CONVERSATION, "paid", rate(0.9), 3, prefix="always")
    sometimes = Source(
        CONVERSATION, "paid", rate(0.9), 3, prefix="sometimes", active=lambda _, at: int(at // 20) % 2 == 1
    )
    return draw([always, sometimes], scale.seconds, SEED)


def overload(scale: Scale) -> list[Job]:
    """Half load, twice the capacity for a third of the time, half load again."""
    peak, after = scale.at(1 / 6), scale.at(1 / 2)
    parts = [three_lanes(0.5, 0.0, peak), three_lanes(2.0, peak, after), three_lanes(0.5, after)]
    return draw([source for part in parts for source in part], scale.seconds, SEED)


def ramp(scale: Scale) -> list[Job]:
    """0.5 of what four replicas can do, then three times that."""
    begin = scale.at(0.15)
    return draw([*three_lanes(0.5, 0.0, begin), *three_lanes(1.5, begin)], scale.seconds, SEED)


def two_tenants(first: float, second: float) -> Callable[[Scale], list[Job]]:
    """Both send all the time more than the pool can do for them."""
    return drawn(
        Source(CONVERSATION, "paid", rate(first), 1, prefix="one"),
        Source(CONVERSATION, "paid", rate(second), 1, prefix="two"),
    )


def all_lanes(scale: Scale) -> list[Job]:
    lanes = (("enterprise", 1.0), ("paid", 0.6), ("free", 0.3), ("batch", 0.2))
    return draw([Source(CONVERSATION, lane, rate(part), 5) for lane, part in lanes], scale.seconds, SEED)


def scenarios() -> Iterator[Scenario]:
    """All of them. Those with a part of their name in common are run together by `--only`."""
    yield from (steady(percent) for percent in (50, 80, 95))
    yield from special()
    yield on_cpu()
    yield from fair()
    yield from faulty()


def special() -> Iterator[Scenario]:
    yield Scenario(
        "free-flood",
        "Free flood",
        "Paid traffic of 30 % of the capacity; then free users send five times the capacity.",
        flood,
        (OURS, NO_FLOOR, NO_GATE, LEAST, ROUND_ROBIN, FEW_LET_IN),
        full=Scale(150, 30, 10),
        extra=figures.flood,
    )
    yield Scenario(
        "code-bursts",
        "Bursts of code completions",
        "Azure code (gap CV 13) as paid traffic of 40 % of the capacity beside free conversations of 30 %.",
        bursts,
        ALL,
    )
    yield Scenario(
        "chat",
        "Chats of several turns",
        "5 new conversations a second, 50 tenants with a system prompt each; a turn repeats all that was said.",
        lambda scale: chats(5.0, scale.seconds, SEED),
        (OURS, NO_FLOOR, NO_AFFINITY, LEAST, ROUND_ROBIN, HASHING, RADIX),
        full=Scale(240, 60, 10),
        extra=figures.affinity,
    )
    for name, times, says in (
        ("hot-prefixes", 20.0, "20 a second, which none of these keeps up with"),
        ("hot-prefixes-15", 15.0, "15 a second, about what the pool can do"),
    ):
        yield Scenario(
            name,
            f"150 hot prefixes of 6,000 tokens, {times:.0f} a second",
            f"Conversations that begin with one of 150 documents (Zipf), more than one replica's cache holds; {says}.",
            drawn(Source(CONVERSATION, "paid", times, 50, head=hot_prefixes(150, 6000))),
            (OURS, NO_FLOOR, NO_AFFINITY, LEAST, ROUND_ROBIN, HASHING, RADIX),
            extra=figures.affinity,
        )
    yield Scenario(
        "mooncake",
        "Mooncake conversations",
        "3.4 a second with prompts of up to 100,000 tokens on eight replicas.",
        lambda scale: mooncake(3.4, scale.seconds, SEED),
        (OURS, NO_FLOOR, NO_AFFINITY, LEAST, HASHING, RADIX),
        replicas=8,
        extra=figures.affinity,
    )
    for name, times, says in (("right", 1.0, "right"), ("low", 0.25, "4x too low"), ("high", 4.0, "4x too high")):
        yield Scenario(
            f"estimates-{name}",
            f"Little memory, output estimates {says}",
            "Three lanes at 80 % load on engines whose KV memory (64,000 tokens each) is what limits them.",
            drawn(*three_lanes(0.8, profile=TIGHT)),
            (OURS, NO_FLOOR, LEAST),
            profile=TIGHT,
            extra=figures.steady,
            own={OURS: scheduler(estimate=times), NO_FLOOR: scheduler(floor=False, estimate=times)},
        )
    yield Scenario(
        "overload",
        "Twice the capacity, and recovery",
        "Half load, then twice the capacity for a third of the time, then half load again.",
        overload,
        FEW,
        extra=figures.recovered,
    )
    yield Scenario(
        "ramp",
        "Three times the load, replicas come after 90 s",
        "Load goes from 0.5 to 1.5 of the capacity; four more replicas are ordered 5 s later.",
        ramp,
        FEW,
        full=Scale(300, 30, 10),
        quick=Scale(130, 8, 3),
        faults=faults.four_more,
        extra=figures.ramped,
    )


def on_cpu() -> Scenario:
    """The bundled model."""
    return Scenario(
        "cpu",
        "Two engines on a CPU",
        "The bundled model on two engines of the measured profile: short chats in three lanes at 60 % load.",
        drawn(
            *(
                Source(SHORT, lane, part * 0.6 * 2 * capacity(CPU, SHORT), tenants)
                for lane, part, tenants in (("enterprise", 0.1, 2), ("paid", 0.4, 5), ("free", 0.5, 10))
            )
        ),
        (OURS, LEAST, ROUND_ROBIN),
        full=Scale(1200, 200, 60),
        quick=Scale(200, 40, 20),
        replicas=2,
        profile=CPU,
        extra=figures.steady,
    )


def fair() -> Iterator[Scenario]:
    yield Scenario(
        "reasoning",
        "One reasoning tenant beside 50 chatters",
        "All paid. One tenant sends long reasoning for 80 % of the capacity, fifty chat for 30 %.",
        reasoners,
        FEW,
        extra=figures.reasoning,
    )
    yield Scenario(
        "on-off",
        "Tenants that come and go",
        "Three paid tenants ask for 90 % of the capacity all the time, three others for as much in every other 20 s.",
        on_off,
        FEW,
        extra=figures.on_off,
        own={OURS: scheduler(shedding=False), NO_FLOOR: scheduler(floor=False, shedding=False)},
    )
    for weights, times in (((1.0, 1.0), "1:1"), ((1.0, 4.0), "1:4")):
        yield Scenario(
            f"weights-{times.replace(':', '-')}",
            f"Two tenants, weights {times}",
            "Both ask for more than they can have for the whole time.",
            two_tenants(0.4, 0.5 if weights[1] == 1 else 0.6),
            (OURS, NO_FLOOR),
            full=Scale(630, 20, 10),
            replicas=2,
            extra=figures.two(weights),
            own={
                OURS: scheduler(shedding=False, weights={"two-0": weights[1]}),
                NO_FLOOR: scheduler(floor=False, shedding=False, weights={"two-0": weights[1]}),
            },
        )
    yield Scenario(
        "lanes",
        "All four lanes backlogged",
        "Twice the capacity in all; each lane asks for more than its weight's share.",
        all_lanes,
        (OURS, NO_FLOOR, NO_SHEDDING),
        extra=figures.shares,
    )
    yield Scenario(
        "saturated",
        "One lane, 20 % more than the capacity",
        "Paid conversations; nothing is shed, so that every policy has the same work.",
        drawn(Source(CONVERSATION, "paid", rate(1.2), 20)),
        (OURS, NO_FLOOR, NO_GATE, LEAST, ROUND_ROBIN),
        extra=figures.steady,
        own={
            OURS: scheduler(shedding=False),
            NO_FLOOR: scheduler(floor=False, shedding=False),
            NO_GATE: scheduler(gate=False, shedding=False),
        },
    )


def faulty() -> Iterator[Scenario]:
    own = (OURS, NO_FLOOR)
    for name, title, policies, happens in (
        ("replica-killed", "A replica is killed, and back after 40 s", FEW, faults.kill_replica),
        ("replica-slow", "A replica is ten times slower for a while", FEW, faults.slow_replica),
        ("metrics-frozen", "A replica's metrics freeze", FEW, faults.freeze_metrics),
        ("runner-killed", "One of two runners is killed", own, faults.kill_runner),
        ("redis-restarted", "Redis restarts without its data", own, faults.restart_redis),
    ):
        yield Scenario(
            name,
            title,
            "Three lanes at 60 % load.",
            drawn(*three_lanes(0.6)),
            policies,
            full=Scale(180, 30, 10, drain=60),
            quick=Scale(36, 8, 3, drain=40),
            faults=happens,
            extra=figures.faulted,
        )
