"""One look at the queues: where each head should go. No I/O."""

import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from inference.redis import rules
from inference.runner.member import Member
from inference.runner.pool import Pool
from inference.scheduling.admission import RetryBudget
from inference.scheduling.answers import Head, Peeked
from inference.scheduling.prefixes import Matched
from inference.scheduling.routing import HOPING, Choice, Demand, Load, choose, with_best_match_first

LONGEST_HELD = 5.0  # seconds; half of what a request that was given back may wait at least

Matches = Mapping[str, Mapping[str, Matched]]  # by request, then by replica


@dataclass(frozen=True)
class Planned:
    """A head, and where it is to go. `before`: tokens to prefill that were queued there. `passing`: see `Head`."""

    head: Head
    member: Member  # held here: the table may lose it before the answer comes
    choice: Choice
    matches: Mapping[str, Matched]
    before: int
    passing: bool = False


class Retries:
    """What a model's failures may cost, as one runner counts it: requests that have failed are a share of all at most.

    One that is more than its share is held back while others of its lane can start, and never for long: to let its wait
    run out would make a failure of a delay.
    """

    def __init__(self) -> None:
        self._budget = RetryBudget(rules.settings().admission)
        self._held: dict[str, float] = {}  # since when, by request
        self._planned: list[int] = []

    def begin(self, heads: Sequence[Head]) -> None:
        """A new look: of what waits no more nothing is remembered."""
        self._budget.settings = rules.settings().admission  # may have been changed
        self._planned = []
        if self._held:
            there = {head.id for head in heads}
            self._held = {id: since for id, since in self._held.items() if id in there}

    def allow(self, head: Head) -> bool:
        """Whether it may start before others of its lane."""
        if not head.failures:
            return True
        now, tokens = time.monotonic(), tokens_of(head)
        if self._budget.allows(now, tokens, self._planned):
            self._planned.append(tokens)
            return True
        return self._waited(head) >= LONGEST_HELD

    def hopes(self, head: Head) -> bool:
        """Whether it waits yet until a replica that has not failed it has room."""
        return self._waited(head) < HOPING * rules.settings().lease.requeued_wait_seconds

    def _waited(self, head: Head) -> float:
        """Seconds since it could have started first."""
        now = time.monotonic()
        return now - self._held.setdefault(head.id, now)

    def started(self, head: Head) -> None:
        self._held.pop(head.id, None)
        if head.failures:
            self._budget.retried(time.monotonic(), tokens_of(head))
        elif not head.attempt:
            self._budget.dispatched(time.monotonic(), tokens_of(head))


class Plan:
    """Where each head should go, as if those before were there already. `stuck`: whose turn it is, without a place."""

    def __init__(self, pool: Pool, peeked: Peeked, matches: Matches, retries: Retries, rng: random.Random) -> None:
        self.planned: list[Planned] = []
        self.stuck: list[Head] = []
        self._pool, self._matches, self._retries, self._random = pool, matches, retries, rng
        self._coming: Counter[str] = Counter()  # by replica
        usable = pool.usable()
        self._loads = {
            id: pool.members[id].load(counters, usable=id in usable)
            for id, counters in peeked.replicas.items()
            if id in pool.members
        }
        self._seen: set[tuple[str, str]] = set()
        self._blocked: set[tuple[str, str]] = set()  # tenants whose first request finds no place, or has not its turn
        retries.begin(peeked.heads)
        shares = {
            head.id: max((match.tokens for match in matches[head.id].values()), default=0) / max(1, tokens_of(head))
            for head in peeked.heads
        }
        late = time.time() * 1000 - rules.settings().order.aging_ms
        for _, heads in groupby(with_best_match_first(peeked.heads, shares, late), key=lambda head: head.lane):
            self._plan(list(heads))

    def _plan(self, heads: Sequence[Head]) -> None:
        """Of one lane."""
        before, held, stuck = len(self.planned), [], len(self.stuck)
        for head in heads:
            passing = not self._may_try(head)
            if passing and not (head.passing and len(self.stuck) > stuck):
                continue
            if self._retries.allow(head):
                self._place(head, passing)
            elif not passing:
                held.append(head)
                self._blocked.add((head.lane, head.tenant))
        if len(self.planned) == before:  # nobody else can start: a place that stays empty helps nobody
            for head in held:
                self._place(head)

    def _may_try(self, head: Head) -> bool:
        tenant = (head.lane, head.tenant)
        first = tenant not in self._seen
        self._seen.add(tenant)
        if first and not head.turn:
            self._blocked.add(tenant)
        return tenant not in self._blocked

    def _place(self, head: Head, passing: bool = False) -> None:
        found = self._matches[head.id]
        cached = {id: match.tokens for id, match in found.items()}
        choice = self._choose(head, cached)
        if not choice.id and passing:
            return
        if not choice.id:
            self._blocked.add((head.lane, head.tenant))
            self.stuck.append(head)
            return
        load = self._loads[choice.id]
        self.planned.append(Planned(head, self._pool.members[choice.id], choice, found, int(load.qpf), passing))
        self._loads[choice.id] = _with(load, choice.uncached, head.kv)
        self._coming[choice.id] += 1
        if self._pool.members[choice.id].breaker.trial:
            usable = self._pool.usable(self._coming)
            self._loads = {id: replace(load, usable=load.usable and id in usable) for id, load in self._loads.items()}

    def _choose(self, head: Head, cached: Mapping[str, int]) -> Choice:
        demand, loads = _demand(head), list(self._loads.values())
        choice = choose(rules.settings(), demand, loads, cached, self._random)
        if choice.id or not head.avoid or self._retries.hopes(head):
            return choice
        return choose(rules.settings(), replace(demand, avoid=()), loads, cached, self._random)


def tokens_of(head: Head) -> int:
    """What an engine has to read: a reply that goes on elsewhere brings what it has."""
    return head.input + head.emitted


def _demand(head: Head) -> Demand:
    waited = max(0.0, time.time() - head.rank / 1000)
    return Demand(head.lane, tokens_of(head), max(0, head.kv - tokens_of(head)), waited, head.avoid)


def _with(load: Load, uncached: int, kv: int) -> Load:
    return replace(load, qpf=load.qpf + uncached, kv=load.kv + kv, n=load.n + 1)
