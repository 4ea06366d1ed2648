"""The modelled engine: nothing is lost, limits hold, the cache is reused, memory runs out in order."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.simulator.engine import Engine, Sequence, StepResult, TooLongError
from benchmarks.simulator.profiles import GPU, Profile
from benchmarks.simulator.replay import replay

SMALL = replace(GPU, block=4, blocks=40, max_num_seqs=5, max_num_batched_tokens=16)
KEYS = iter(range(10**6, 10**9, 1000))


def sequence(prompt: int, output: int, block: int = 4, shared: int = 0) -> Sequence:
    own = next(KEYS)
    hashes = [7000 + index if index < shared else own + index for index in range((prompt + output) // block)]
    return Sequence(prompt, output, hashes)


def step(engine: Engine) -> StepResult:
    assert engine.begin() is not None
    return engine.end()


def blocks_of(engine: Engine) -> int:
    """What sequences hold, counted one by one."""
    block = engine.profile.block
    held: set[int] = set()
    private = 0
    for each in [*engine.prefilling, *engine.decoding]:
        held |= set(each.held)
        private += each.private
        if each.entered >= 0:
            now = each.context + engine.steps - each.entered
            private += -(-now // block) - -(-each.context // block)
    return private + len(held)


def run(engine: Engine, most: int = 10_000) -> list[Sequence]:
    finished: list[Sequence] = []
    while engine.running or engine.waiting:
        finished += step(engine).finished
        most -= 1
        assert most > 0
    return finished


def test_a_prompt_is_prefilled_in_chunks_and_then_decoded_token_by_token() -> None:
    engine = Engine(SMALL)
    one = sequence(40, 3)
    engine.submit(one)
    assert [len(step(engine).first) for _ in range(3)] == [0, 0, 1]  # 16 + 16 + 8
    assert engine.progress(one) == 1
    assert step(engine).finished == []
    assert engine.progress(one) == 2
    assert step(engine).finished == [one]
    assert one.emitted == 3
    assert engine.begin() is None


def test_decodes_come_before_prefill_in_a_steps_budget() -> None:
    engine = Engine(SMALL)
    early = [sequence(4, 50) for _ in range(4)]
    for each in early:
        engine.submit(each)
    step(engine)
    late = sequence(20, 2)
    engine.submit(late)
    step(engine)
    assert late.computed == 12  # 16 less four decodes
    assert [engine.progress(each) for each in early] == [2, 2, 2, 2]


def test_no_more_sequences_run_than_there_are_slots() -> None:
    engine = Engine(SMALL)
    for _ in range(9):
        engine.submit(sequence(2, 4))
    step(engine)
    assert (engine.running, len(engine.waiting)) == (5, 4)
    assert len(run(engine)) == 9


def test_a_common_beginning_is_found_in_the_cache_but_never_the_whole_prompt() -> None:
    engine = Engine(SMALL)
    first, second = sequence(16, 2, shared=4), sequence(16, 2, shared=4)
    engine.submit(first)
    run(engine)
    engine.submit(second)
    run(engine)
    assert (first.cached, second.cached) == (0, 12)


def test_the_oldest_cached_blocks_are_evicted_and_a_prompts_end_before_its_beginning() -> None:
    engine = Engine(replace(SMALL, blocks=10))
    old = sequence(16, 1, shared=4)
    engine.submit(old)
    run(engine)
    engine.submit(sequence(31, 1))  # eight of ten blocks: two of the four cached ones go
    run(engine)
    again = sequence(16, 1, shared=4)
    engine.submit(again)
    run(engine)
    assert again.cached == 8


def test_the_youngest_gives_up_its_memory_and_computes_again() -> None:
    engine = Engine(replace(SMALL, blocks=10))
    old, young = sequence(12, 18), sequence(12, 18)
    engine.submit(old)
    engine.submit(young)
    finished = run(engine)
    assert finished == [old, young]
    assert (old.preemptions, young.preemptions) == (0, 1)
    assert (old.emitted, young.emitted) == (18, 18)


def test_more_tokens_than_the_memory_holds_are_refused() -> None:
    with pytest.raises(TooLongError):
        Engine(SMALL).submit(sequence(150, 11))


def test_an_aborted_sequence_gives_everything_back_in_the_middle_of_a_step_too() -> None:
    engine = Engine(SMALL)
    kept, gone = sequence(8, 12), sequence(8, 12)
    engine.submit(kept)
    engine.submit(gone)
    step(engine)
    for _ in range(5):
        assert engine.begin() is not None
        if engine.steps == 4:
            engine.abort(gone)
        engine.end()
        assert engine.pool.total - engine.pool.available == blocks_of(engine)
    run(engine)
    assert engine.pool.available == engine.pool.total


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), blocks=st.integers(20, 60))
def test_blocks_are_conserved_whatever_happens(seed: int, blocks: int) -> None:
    rng = random.Random(seed)
    engine = Engine(replace(SMALL, blocks=blocks))
    everything: list[Sequence] = []
    finished: list[Sequence] = []
    aborted: list[Sequence] = []
    for _ in range(150):
        if rng.random() < 0.4:
            everything.append(sequence(rng.randint(1, 50), rng.randint(1, 25), shared=rng.randint(0, 6)))
            engine.submit(everything[-1])
        seconds = engine.begin()
        assert engine.running <= SMALL.max_num_seqs
        assert len(engine.decoding) + sum(tokens for _, tokens in engine._chunks) <= SMALL.max_num_batched_tokens
        if rng.random() < 0.1 and everything:
            victim = rng.choice(everything)
            if victim not in finished and victim not in aborted:
                engine.abort(victim)
                aborted.append(victim)
        if seconds is not None:
            finished += engine.end().finished
            assert engine.pool.total - engine.pool.available == blocks_of(engine)
            assert engine.pool.free >= 0
            assert engine.context == sum(each.context + engine.steps - each.entered for each in engine.decoding)
    finished += run(engine)
    assert engine.pool.available == engine.pool.total
    assert all(each.emitted == each.output for each in finished)
    assert len(finished) + len(aborted) == len(everything)


def test_a_step_costs_what_the_profile_says() -> None:
    plain = Profile("plain", "made up", 16, 100, 8, 512, 1.0, 0.01, 0.0, 0.1, 0.001)
    [only] = replay(plain, [(2.0, Sequence(100, 3, []))])
    assert only.first == pytest.approx(1 + 100 * 0.01)
    assert only.last - only.first == pytest.approx(2 * (1 + 0.1) + 0.001 * (100 + 101))


def test_the_same_requests_take_the_same_time_again() -> None:
    def once() -> list[float]:
        rng = random.Random(5)
        arrivals = [(rng.random() * 5, Sequence(rng.randint(1, 900), rng.randint(1, 90), [])) for _ in range(60)]
        return [each.last for each in replay(GPU, arrivals)]

    assert once() == once()
