"""What is drawn has the sizes, gaps and shared prefixes that it claims, the same each time."""

import random
from itertools import pairwise
from statistics import mean, pstdev

import pytest

from benchmarks.simulator.workloads import (
    CODE,
    CONVERSATION,
    MOONCAKE,
    REASONING,
    Job,
    Shape,
    Source,
    chats,
    cut,
    draw,
    gaps,
    hot_prefixes,
    ideal_hits,
    mooncake,
    pooled_hits,
)


@pytest.mark.parametrize(
    ("shape", "input_p50", "output_p50"),
    [(CONVERSATION, 757, 151), (CODE, 1097, 16), (MOONCAKE, 6250, 350), (REASONING, 208, 792)],
)
def test_medians(shape: Shape, input_p50: float, output_p50: float) -> None:
    """The medians of the log-normals; the published percentiles are of the raw traces and a little apart."""
    rng = random.Random(1)
    inputs = sorted(shape.input(rng) for _ in range(6000))
    outputs = sorted(shape.output(rng) for _ in range(6000))
    assert inputs[3000] == pytest.approx(input_p50, rel=0.08)
    assert outputs[3000] == pytest.approx(output_p50, rel=0.08)


@pytest.mark.parametrize("cv", [1.0, 1.9, 13.0])
def test_gaps_have_their_mean_and_variation(cv: float) -> None:
    stream = gaps(random.Random(2), 20.0, cv)
    drawn = [next(stream) for _ in range(60_000)]
    assert mean(drawn) == pytest.approx(1 / 20, rel=0.15)
    assert pstdev(drawn) / mean(drawn) == pytest.approx(cv, rel=0.2)


def test_hashes_are_common_as_far_as_the_chains_are() -> None:
    first = Job(0, 0.0, "paid", "a", 100, 60, [(1, 64), (2, 160)])
    second = Job(1, 0.0, "paid", "a", 100, 60, [(1, 64), (3, 160)])
    ours, theirs = first.hashes(16), second.hashes(16)
    assert len(ours) == 10
    assert ours[:4] == theirs[:4]
    assert not set(ours[4:]) & set(theirs[4:])


def test_a_later_turn_repeats_the_earlier_one_whole() -> None:
    jobs = chats(1.0, 60.0, 3)
    turns: dict[int, list[Job]] = {}
    for job in jobs:
        turns.setdefault(job.conversation, []).append(job)
    one = max(turns.values(), key=len)
    assert len(one) > 2
    for before, after in pairwise(one):
        said = (before.input + before.output) // 16
        assert after.input > before.input + before.output
        assert after.hashes(16)[:said] == before.hashes(16)[:said]


def test_mooncake_prompts_repeat_the_published_share() -> None:
    assert ideal_hits(mooncake(3.4, 250.0, 1), 16) == pytest.approx(0.366, abs=0.05)


def test_a_cache_of_some_size_keeps_what_was_used_last() -> None:
    jobs = [Job(0, float(number), "paid", "x", 32, 1, [(key, 32)]) for number, key in enumerate((1, 2, 1, 2, 3, 1))]
    assert pooled_hits(jobs, 16, 100, 0.0) == ideal_hits(jobs, 16) == pytest.approx(3 * 16 / (6 * 32))
    assert pooled_hits(jobs, 16, 4, 0.0) == pytest.approx(2 * 16 / (6 * 32))  # two prompts
    assert pooled_hits(jobs, 16, 4, 4.0) == 0.0


def test_hot_prefixes_are_few_and_unequal() -> None:
    jobs = draw([Source(CONVERSATION, "paid", 20.0, head=hot_prefixes(150, 6000))], 60.0, 1)
    keys = [job.chain[0][0] for job in jobs]
    assert len(set(keys)) <= 150
    assert keys.count(500_000) > 3 * keys.count(500_050)
    assert all(job.input > 6000 for job in jobs)


def test_only_active_tenants_send_and_everything_is_in_order() -> None:
    source = Source(CONVERSATION, "free", 50.0, 4, active=lambda tenant, at: tenant != 2 and at >= 3, end=9.0)
    jobs = draw([source, Source(CODE, "paid", 5.0)], 20.0, 1)
    free = [job for job in jobs if job.lane == "free"]
    assert {job.tenant for job in free} == {"free-0", "free-1", "free-3"}
    assert all(3 <= job.at < 9 for job in free)
    assert [job.number for job in jobs] == list(range(len(jobs)))
    assert [job.at for job in jobs] == sorted(job.at for job in jobs)


def test_the_same_seed_draws_the_same() -> None:
    def once(seed: int) -> list[tuple[float, int, int]]:
        return [(job.at, job.input, job.output) for job in draw([Source(REASONING, "paid", 5.0)], 30.0, seed)]

    assert once(4) == once(4)
    assert once(4) != once(5)


def test_a_cut_chain_ends_at_its_tokens() -> None:
    assert cut([(1, 64), (2, 200)], 100) == [(1, 64), (2, 100)]
    assert cut([(1, 64), (2, 200)], 64) == [(1, 64)]
