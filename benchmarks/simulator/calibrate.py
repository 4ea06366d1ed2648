"""Fits the `cpu` profile to the real vLLM on this machine and says how far the simulator is from it.

    python -m benchmarks.simulator.calibrate [--rounds N] [--tries M]

First requests of chosen sizes give the coefficients of a step. Then, with other requests, three loads are sent to the
engine and to the simulator alike. Neighbours on the machine only make the engine slower, and not by the same factor
at every moment. So the fit takes the shortest of several times. Each load is sent several times; a probe before and
after says how fast the machine was then, which the simulated engine is scaled by; the quietest rounds count, whose
probes were the fastest, and of each request's errors over them the median.
"""

import argparse
import asyncio
import json
import os
import random
import time
from collections.abc import Sequence as SequenceOf
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

import aiohttp

from benchmarks.report import machine, now
from benchmarks.simulator.engine import Sequence
from benchmarks.simulator.fitting import Row, fit
from benchmarks.simulator.profiles import Profile
from benchmarks.simulator.real_engine import ROOT, Prompt, RealEngine, Timing, ask, client, real_engine
from benchmarks.simulator.replay import Replayed, replay

RESULT = ROOT / "docs" / "benchmarks" / "simulator" / "calibration.json"
BAR = 0.20
BATCH = 2048  # vLLM's defaults for a server on a CPU
SLOTS = 128
ALONE = (32, 128, 256, 512, 1024, 2000, 3000)  # prompt tokens
TOGETHER = ((1, 64), (4, 64), (16, 64), (32, 64), (1, 2048), (4, 2048), (12, 2048))  # streams, context
LOADS = {"light": 0.4, "busy": 0.7, "full": 1.1}  # of what the fitted profile could do
REQUESTS = 20
QUIET_LOAD = 1.5  # mean of runnable processes over a minute
WAIT_SECONDS = 90.0
PROBE = 384  # tokens
Arrivals = list[tuple[float, Prompt]]


def profile_of(engine: RealEngine, coefficients: SequenceOf[float]) -> Profile:
    base, prefill, pair, decode, context, request = coefficients
    return Profile(
        name="cpu",
        source=f"fitted to vLLM with SmolLM2-135M in float32 on {machine()}",
        block=engine.block,
        blocks=engine.blocks,
        max_num_seqs=SLOTS,
        max_num_batched_tokens=BATCH,
        base=base,
        per_prefill_token=prefill,
        per_prefill_pair=pair,
        per_decode_sequence=decode,
        per_context_token=context,
        request_seconds=request,
    )


async def measure_rows(session: aiohttp.ClientSession, engine: RealEngine, rounds: int) -> list[Row]:
    """(features of a duration, its seconds): prompts alone, and decoding in company."""
    rows: list[Row] = []
    for tokens in ALONE:
        times = [(await ask(session, engine, Prompt(tokens, 1), f"alone{turn}")).first for turn in range(rounds)]
        steps = -(-tokens // BATCH)
        rows.append(((steps, tokens, tokens * tokens / 2, 0, 0, 1), min(times)))
        print(f"prefill of {tokens}: {sorted(round(each, 3) for each in times)}", flush=True)
    for streams, context in TOGETHER:
        times = [await _step_seconds(session, engine, streams, context, turn) for turn in range(rounds)]
        rows.append(((1, 0, 0, streams, streams * (context + 16), 0), min(times)))
        print(f"step of {streams} at {context}: {sorted(round(each, 4) for each in times)}", flush=True)
    return rows


async def _step_seconds(
    session: aiohttp.ClientSession, engine: RealEngine, streams: int, context: int, turn: int
) -> float:
    """Seconds between tokens while all of them decode. They share their prompt, which is in the cache by then."""
    prompt = Prompt(context, 32, family=streams, head=context)
    salt = f"together{turn}"
    await ask(session, engine, replace(prompt, output=1), salt)
    timings = await asyncio.gather(*(ask(session, engine, prompt, salt) for _ in range(streams)))
    begin = max(timing.tokens[0] for timing in timings)
    end = min(timing.tokens[-1] for timing in timings)
    gaps = [b - a for a, b in zip(timings[0].tokens, timings[0].tokens[1:], strict=False) if begin <= a and b <= end]
    return median(gaps)


def draw_load(profile: Profile, share: float, seed: int) -> Arrivals:
    """Short chats, a third of them with a common system prompt, at this share of what the engine can do."""
    rng = random.Random(seed)
    prompts = []
    for _ in range(REQUESTS):
        tokens = min(2500, max(16, round(rng.lognormvariate(5.4, 0.9))))
        shares = rng.random() < 1 / 3
        head = 2 * profile.block if shares else 0
        prompts.append(
            Prompt(tokens + head, min(120, max(4, round(rng.lognormvariate(3.2, 0.7)))), family=7, head=head)
        )
    busy = max(each.last for each in replay(profile, [(0.0, sequence_of(prompt, profile)) for prompt in prompts]))
    gap = busy / REQUESTS / share
    at, arrivals = 0.0, []
    for prompt in prompts:
        arrivals.append((at, prompt))
        at += rng.expovariate(1 / gap)
    return arrivals


def sequence_of(prompt: Prompt, profile: Profile) -> Sequence:
    shared = prompt.head // profile.block
    own = id(prompt) << 20
    total = (prompt.tokens + prompt.output) // profile.block
    hashes = [prompt.family << 90 | index for index in range(shared)] + [own + index for index in range(shared, total)]
    return Sequence(prompt.tokens, prompt.output, hashes)


@dataclass(frozen=True)
class Sent:
    """A load as the engine served it, when the machine was `slower` than at the fit."""

    timings: list[Timing]
    before: tuple[float, float]  # of prefill and of decode steps
    after: tuple[float, float]

    @property
    def slower(self) -> tuple[float, float]:
        return (self.before[0] + self.after[0]) / 2, (self.before[1] + self.after[1]) / 2

    @property
    def noise(self) -> float:
        """The slowest of the probes; in a quiet round it is about 1."""
        return max(*self.before, *self.after)


async def send_load(
    session: aiohttp.ClientSession, engine: RealEngine, profile: Profile, arrivals: Arrivals, salt: str
) -> Sent:
    """Probes, sends, probes."""
    before = await _slowness(session, engine, profile, f"{salt}/before")
    timings = await _send(session, engine, arrivals, salt)
    after = await _slowness(session, engine, profile, f"{salt}/after")
    return Sent(timings, before, after)


async def _slowness(
    session: aiohttp.ClientSession, engine: RealEngine, profile: Profile, salt: str
) -> tuple[float, float]:
    """What a prefill and a decode step take now, over what the profile says."""
    timings = [await ask(session, engine, Prompt(PROBE, 17), f"{salt}{turn}") for turn in range(3)]
    [fitted] = replay(profile, [(0.0, Sequence(PROBE, 17, []))])
    decode = median(timing.last - timing.first for timing in timings) / (fitted.last - fitted.first)
    return median(timing.first for timing in timings) / fitted.first, decode


async def _send(session: aiohttp.ClientSession, engine: RealEngine, arrivals: Arrivals, salt: str) -> list[Timing]:
    started = asyncio.get_running_loop().time()

    async def one(at: float, prompt: Prompt) -> Timing:
        await asyncio.sleep(at + started - asyncio.get_running_loop().time())
        return await ask(session, engine, prompt, salt)

    return list(await asyncio.gather(*(one(at, prompt) for at, prompt in arrivals)))


def compare(profile: Profile, arrivals: Arrivals, rounds: SequenceOf[Sent]) -> dict[str, Any]:
    """Median relative errors of the simulator over the requests of one load."""
    first: list[list[float]] = [[] for _ in arrivals]
    last: list[list[float]] = [[] for _ in arrivals]
    simulated: list[Replayed] = []
    for sent in rounds:
        simulated = replay(
            profile.slower(*sent.slower), [(at, sequence_of(prompt, profile)) for at, prompt in arrivals]
        )
        for place, (ours, theirs) in enumerate(zip(simulated, sent.timings, strict=True)):
            first[place].append(ours.first / theirs.first - 1)
            last[place].append(ours.last / theirs.last - 1)
    timings = rounds[-1].timings
    return {
        "requests": len(arrivals),
        "slower": [[round(times, 2) for times in sent.slower] for sent in rounds],
        "ttft_error_p50": round(median(abs(median(errors)) for errors in first), 3),
        "total_error_p50": round(median(abs(median(errors)) for errors in last), 3),
        "ttft_bias": round(median(median(errors) for errors in first), 3),
        "total_bias": round(median(median(errors) for errors in last), 3),
        "ttft_real_p50": round(median(timing.first for timing in timings), 3),
        "ttft_simulated_p50": round(median(each.first for each in simulated), 3),
        "total_real_p50": round(median(timing.last for timing in timings), 3),
        "total_simulated_p50": round(median(each.last for each in simulated), 3),
        "cached_real": sum(timing.cached for timing in timings),
        "cached_simulated": sum(each.cached for each in simulated),
    }


async def quiet(within: float) -> None:
    """Waits until little else runs on the machine, or that many seconds."""
    deadline = time.monotonic() + within
    while os.getloadavg()[0] > QUIET_LOAD and time.monotonic() < deadline:
        await asyncio.sleep(2)


async def calibrate(engine: RealEngine, rounds: int, tries: int) -> dict[str, Any]:
    async with client() as session:
        await ask(session, engine, Prompt(64, 8), "warm")
        await quiet(WAIT_SECONDS)
        coefficients = fit(await measure_rows(session, engine, tries))
        profile = profile_of(engine, coefficients)
        print(profile, flush=True)
        loads = {name: draw_load(profile, share, seed) for seed, (name, share) in enumerate(LOADS.items())}
        sent: dict[str, list[Sent]] = {name: [] for name in loads}
        for turn in range(tries):
            for name, arrivals in loads.items():
                await quiet(WAIT_SECONDS)
                sent[name].append(await send_load(session, engine, profile, arrivals, f"{name}{turn}"))
                print(name, turn, json.dumps(compare(profile, arrivals, sent[name][-1:])), flush=True)
    compared = {
        name: compare(profile, arrivals, sorted(sent[name], key=lambda each: each.noise)[:rounds])
        for name, arrivals in loads.items()
    }
    return {
        "at": now(),
        "machine": machine(),
        "rounds": rounds,
        "tries": tries,
        "profile": asdict(profile),
        "loads": compared,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="of each load that count")
    parser.add_argument("--tries", type=int, default=5, help="rounds of each load in all")
    parser.add_argument("--no-write", action="store_true")
    args = parser.parse_args()
    with real_engine() as engine:
        report = asyncio.run(calibrate(engine, args.rounds, args.tries))
    if not args.no_write:
        RESULT.parent.mkdir(parents=True, exist_ok=True)
        RESULT.write_text(json.dumps(report, indent=1) + "\n")
    for name, load in report["loads"].items():
        worst = max(load["ttft_error_p50"], load["total_error_p50"])
        print(f"{name}: first token {load['ttft_error_p50']:.0%}, whole reply {load['total_error_p50']:.0%}", end="")
        print("" if worst <= BAR else f" (above {BAR:.0%}: not done)")


if __name__ == "__main__":
    main()
