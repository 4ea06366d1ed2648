"""Requests as public traces have them: sizes, gaps, shared prefixes. Everything is drawn from one seed."""

import math
import random
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count

Draw = Callable[[random.Random], float]
Chain = list[tuple[int, int]]  # (key, tokens up to which it names the content), in order; see `Job.hashes`
SEGMENT_BITS = 24


@dataclass(eq=False, slots=True)
class Job:
    """One request of a workload. Tokens; seconds from the start of the run.

    `chain` names the content of prompt and output: requests whose chains begin alike have that prefix in common.
    """

    number: int
    at: float
    lane: str
    tenant: str
    input: int
    output: int
    chain: Chain
    conversation: int = -1
    expected_output: int = 0  # what the scheduler is told to expect; 0 where it is not told

    def hashes(self, block: int) -> list[int]:
        """Chained hashes of the full blocks of prompt and output."""
        total = (self.input + self.output) // block
        hashes: list[int] = []
        for key, until in self.chain:
            base = key << SEGMENT_BITS
            hashes += [base + index for index in range(len(hashes), min(total, until // block))]
        return hashes


@dataclass(frozen=True)
class Shape:
    """Sizes and arrivals of one kind of traffic. `gap_cv` 1 is Poisson, more comes in bursts."""

    name: str
    input: Draw
    output: Draw
    gap_cv: float = 1.0


def lognormal(mu: float, sigma: float, low: int = 4, high: int = 100_000) -> Draw:
    """A log-normal number of tokens within [low, high]."""
    return lambda rng: min(high, max(low, rng.lognormvariate(mu, sigma)))


def percentiles(p50: float, p99: float, low: int = 4, high: int = 100_000) -> Draw:
    """The log-normal with these percentiles."""
    return lognormal(math.log(p50), math.log(p99 / p50) / 2.3263, low, high)


# Fits to the public Azure 2023 and Mooncake traces, and to published figures of reasoning models.
CONVERSATION = Shape("Azure conversation", lognormal(6.63, 0.99, high=14_000), lognormal(5.02, 0.86, high=2000), 1.1)
CODE = Shape("Azure code", lognormal(7.00, 1.36, high=14_000), lognormal(2.79, 0.85, high=2000), 13.0)
MOONCAKE = Shape("Mooncake conversation", lognormal(8.74, 1.20, high=100_000), percentiles(350, 1120, high=2000))
REASONING = Shape("reasoning", percentiles(208, 23_000, high=30_000), percentiles(792, 12_600, high=16_000), 1.9)
MOONCAKE_BLOCK = 512
MOONCAKE_HITS = (0.07, 0.33, 0.67)  # quartiles of the share of a prompt that an infinite cache would have


def gaps(rng: random.Random, rate: float, cv: float) -> Iterator[float]:
    """Seconds between arrivals: gamma-distributed, mean 1 / rate, with this coefficient of variation."""
    shape = 1 / cv**2
    while True:
        yield rng.gammavariate(shape, 1 / (rate * shape))


@dataclass(frozen=True)
class Source:
    """Traffic of some tenants of one lane. `rate` in requests per second, all of them together, between two times.

    `active(tenant's number, second)` says whether that tenant sends; `head(rng)` gives a shared beginning of the prompt
    as (key, tokens).
    """

    shape: Shape
    lane: str
    rate: float
    tenants: int = 1
    prefix: str = ""
    begin: float = 0.0
    end: float = math.inf
    head: Callable[[random.Random], tuple[int, int] | None] | None = None
    active: Callable[[int, float], bool] | None = None


@dataclass
class Numbers:
    """Numbers and content keys that are used once in a run."""

    jobs: Iterator[int] = field(default_factory=count)
    keys: Iterator[int] = field(default_factory=lambda: count(1_000_000))


def draw(sources: Iterable[Source], seconds: float, seed: int) -> list[Job]:
    """All requests of the sources in order of arrival."""
    numbers = Numbers()
    jobs: list[Job] = []
    for place, source in enumerate(sources):
        rng = random.Random(seed * 1009 + place)
        jobs += _draw_source(source, rng, seconds, numbers)
    return ordered(jobs)


def ordered(jobs: list[Job]) -> list[Job]:
    """By arrival, numbered in that order."""
    jobs.sort(key=lambda job: (job.at, job.number))
    for number, job in enumerate(jobs):
        job.number = number
    return jobs


def _draw_source(source: Source, rng: random.Random, seconds: float, numbers: Numbers) -> Iterator[Job]:
    at = source.begin
    for gap in gaps(rng, source.rate, source.shape.gap_cv):
        at += gap
        if at >= min(seconds, source.end):
            return
        tenant = rng.randrange(source.tenants)
        tokens, output = round(source.shape.input(rng)), round(source.shape.output(rng))
        head = source.head(rng) if source.head else None
        chain: Chain = [head] if head else []
        tokens += head[1] if head else 0
        chain.append((next(numbers.keys), tokens + output))
        if source.active is None or source.active(tenant, at):
            name = f"{source.prefix or source.lane}-{tenant}"
            yield Job(next(numbers.jobs), at, source.lane, name, tokens, output, chain)


def hot_prefixes(many: int, tokens: int, key: int = 500_000) -> Callable[[random.Random], tuple[int, int]]:
    """Beginnings that many requests share, some more often than others (Zipf)."""
    weights = [1 / (rank + 1) for rank in range(many)]
    choices = range(many)
    return lambda rng: (key + rng.choices(choices, weights)[0], tokens)


def mooncake(rate: float, seconds: float, seed: int, *, lane: str = "paid", tenants: int = 20) -> list[Job]:
    """Long prompts, of which the published share repeats, in whole 512-token blocks, what an earlier one said."""
    rng = random.Random(seed * 1009 + 77)
    numbers = Numbers()
    jobs: list[Job] = []
    at = 0.0
    for gap in gaps(rng, rate, MOONCAKE.gap_cv):
        at += gap
        if at >= seconds:
            return ordered(jobs)
        tokens, output = round(MOONCAKE.input(rng)), round(MOONCAKE.output(rng))
        wanted = _hit_share(rng) * tokens // MOONCAKE_BLOCK * MOONCAKE_BLOCK
        earlier = [job for job in jobs[-400:] if job.input >= wanted]
        chain: Chain = []
        tenant = f"{lane}-{rng.randrange(tenants)}"
        if earlier and wanted:
            parent = rng.choice(earlier)
            chain, tenant = cut(parent.chain, int(wanted)), parent.tenant
        chain.append((next(numbers.keys), tokens + output))
        jobs.append(Job(next(numbers.jobs), at, lane, tenant, tokens, output, chain))
    raise AssertionError("gaps do not end")


def cut(chain: Chain, tokens: int) -> Chain:
    """The beginning of a chain."""
    kept: Chain = []
    for key, until in chain:
        kept.append((key, min(until, tokens)))
        if until >= tokens:
            break
    return kept


def _hit_share(rng: random.Random) -> float:
    """A share with the published quartiles, linear between them."""
    points = (0.0, *MOONCAKE_HITS, 0.95)
    place = rng.random() * 4
    low = min(3, int(place))
    return points[low] + (points[low + 1] - points[low]) * (place - low)


def chats(
    rate: float,
    seconds: float,
    seed: int,
    *,
    lane: str = "paid",
    tenants: int = 50,
    think: float = 12.0,
    system: int = 400,
) -> list[Job]:
    """Conversations of several turns, each of which repeats all that was said. `rate` in new conversations a second.

    A tenant's conversations share a system prompt. A turn comes some seconds after the one before: its reading and
    writing time and an assumed time of the reply.
    """
    rng = random.Random(seed * 1009 + 55)
    numbers = Numbers()
    jobs: list[Job] = []
    at = 0.0
    for conversation, gap in enumerate(gaps(rng, rate, 1.0)):
        at += gap
        if at >= seconds:
            return ordered([job for job in jobs if job.at < seconds])
        jobs += _turns(rng, conversation, at, numbers, (lane, tenants, think, system))
    raise AssertionError("gaps do not end")


def _turns(
    rng: random.Random, conversation: int, at: float, numbers: Numbers, how: tuple[str, int, float, int]
) -> Iterator[Job]:
    lane, tenants, think, system = how
    tenant = rng.randrange(tenants)
    own = next(numbers.keys)
    said = system
    for _ in range(min(20, 1 + int(rng.expovariate(1 / 5)))):
        question = round(min(4000, max(10, rng.lognormvariate(4.6, 1.0))))
        output = round(min(1500, max(8, rng.lognormvariate(5.0, 0.8))))
        said += question
        chain: Chain = [(400_000 + tenant, system), (own, said + output)]
        yield Job(next(numbers.jobs), at, lane, f"{lane}-{tenant}", said, output, chain, conversation)
        said += output
        at += rng.gammavariate(2, think / 2) + 0.02 * output


def ideal_hits(jobs: Iterable[Job], block: int) -> float:
    """The share of prompt tokens that one infinite cache would have, were every request done when the next comes."""
    seen: set[int] = set()
    hits = total = 0
    for job in jobs:
        hashes = job.hashes(block)
        for key in hashes[: (job.input - 1) // block]:
            if key not in seen:
                break
            hits += block
        total += job.input
        seen.update(hashes)
    return hits / max(1, total)


def pooled_hits(jobs: Iterable[Job], block: int, blocks: int, since: float) -> float:
    """The share of prompt tokens, of jobs that come at `since` or later, that one cache of `blocks` would have.

    As `ideal_hits`, but what was used longest ago makes room: all memory of a pool as if it were one replica's, with
    nothing but the cache in it. No placement does better by the same rule of eviction.
    """
    kept: OrderedDict[int, None] = OrderedDict()
    hits = total = 0
    for job in jobs:
        hashes = job.hashes(block)
        found = 0
        for key in hashes[: (job.input - 1) // block]:
            if key not in kept:
                break
            found += block
        if job.at >= since:
            hits, total = hits + found, total + job.input
        for key in reversed(hashes):  # a prompt's end goes before its beginning
            kept[key] = None
            kept.move_to_end(key)
        while len(kept) > blocks:
            kept.popitem(last=False)
    return hits / max(1, total)
