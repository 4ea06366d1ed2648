"""The scripts against a plain Python model, over random sequences of reserve, renew, settle and the passing of time."""

from dataclasses import dataclass, field
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from chatsite.ids import new_id
from chatsite.redis import sync_client
from quotas.scripts import RENEW, RESERVE, SETTLE, STANDING, quota_prefix

TTL, REMEMBER = 10_000, 3_600_000
TAKING = {"reserve": "all", "announce": "request", "start": "replies"}
REFUSING = {"all": {1, 2, 3}, "request": {2}, "replies": {1, 3}}  # verdicts, by what is taken
USER = new_id()
# name -> tokens a minute, requests a minute, replies at once; 0: no limit
LIMITS = {"plan": (1000, 20, 3), "key:a": (600, 4, 2), "key:b": (0, 0, 1)}
CALLERS = [("plan",), ("plan", "key:a"), ("plan", "key:b")]
NAMES = st.integers(0, 5)
TOKENS = st.integers(0, 600)
OPERATIONS = st.one_of(
    st.tuples(st.just("reserve"), st.lists(st.tuples(NAMES, TOKENS), min_size=1, max_size=2), st.sampled_from(CALLERS)),
    st.tuples(
        st.sampled_from(["announce", "start"]),
        st.lists(st.tuples(NAMES, TOKENS), min_size=1, max_size=1),
        st.sampled_from(CALLERS),
    ),
    st.tuples(st.just("settle"), NAMES, st.floats(0, 1)),  # the share of its reservation that was used
    st.tuples(st.just("renew"), NAMES, st.just(0)),
    st.tuples(st.just("pass"), st.just(0), st.integers(0, 20_000)),
)


@dataclass
class Bucket:
    """Of the model: what is taken, and when it was last looked at (ms)."""

    limits: tuple[int, int, int]
    tokens: float = 0.0
    requests: float = 0.0
    running: int = 0
    spent: int = 0  # tokens of settled requests
    reserved: int = 0  # tokens of those that run

    def drain(self, elapsed: float) -> None:
        self.tokens = max(0.0, self.tokens - elapsed * self.limits[0] / 60_000)
        self.requests = max(0.0, self.requests - elapsed * self.limits[1] / 60_000)

    def refusals(self, tokens: int, replies: int) -> set[int]:
        """Verdicts that are right."""
        per_minute, requests, at_once = self.limits
        found = {1} if per_minute and self.tokens + tokens > per_minute else set()
        found |= {2} if requests and self.requests + 1 > requests else set()
        return found | ({3} if at_once and self.running + replies > at_once else set())

    def take(self, tokens: int, places: int) -> None:
        if self.limits[0]:
            self.tokens = max(0.0, self.tokens + tokens)
        self.running += places


@dataclass
class Model:
    """What the scripts promise, without Redis. Times in ms."""

    at: int = 0
    buckets: dict[str, Bucket] = field(
        default_factory=lambda: {name: Bucket(limits) for name, limits in LIMITS.items()}
    )
    live: dict[str, int] = field(default_factory=dict)  # request -> expiry
    reserved: dict[str, tuple[int, tuple[str, ...]]] = field(default_factory=dict)
    settled: set[str] = field(default_factory=set)

    def move_to(self, now: int) -> None:
        for bucket in self.buckets.values():
            bucket.drain(now - self.at)
        self.at = now

    def drop(self, request: str, spent: int = 0) -> None:
        tokens, names = self.reserved.pop(request)
        self.live.pop(request)
        for name in names:
            self.buckets[name].take(spent - tokens, -1)
            self.buckets[name].reserved -= tokens
            self.buckets[name].spent += spent

    def reserve(self, now: int, replies: dict[str, int], names: tuple[str, ...], what: str = "all") -> set[int]:
        """Verdicts that are right; {0} when it is admitted."""
        self.move_to(now)
        for request in [each for each, expiry in self.live.items() if expiry <= now and each not in replies]:
            self.drop(request)
        for request in replies:
            if request in self.live:
                self.live[request] = max(self.live[request], now + TTL)
        fresh = {each: tokens for each, tokens in replies.items() if each not in self.live and each not in self.settled}
        if not fresh:
            return {0}
        wanted = sum(fresh.values())
        refusals = {verdict for name in names for verdict in self.buckets[name].refusals(wanted, len(fresh))}
        if refusals & REFUSING[what]:
            return refusals & REFUSING[what]
        for name in names if what != "replies" else ():
            self.buckets[name].requests += 1 if self.buckets[name].limits[1] else 0
        if what == "request":
            return {0}
        for name in names:
            self.buckets[name].reserved += wanted
            self.buckets[name].take(wanted, len(fresh))
        for request, tokens in fresh.items():
            self.live[request], self.reserved[request] = now + TTL, (tokens, names)
        return {0}

    def shown(self, name: str) -> tuple[float, int]:
        """Tokens and replies of a bucket as they are told: without what has expired, though nobody has swept it."""
        bucket = self.buckets[name]
        expired = [self.reserved[each] for each, expiry in self.live.items() if expiry <= self.at]
        mine = [tokens for tokens, names in expired if name in names]
        tokens = max(0.0, bucket.tokens - sum(mine)) if bucket.limits[0] else 0.0
        return tokens, bucket.running - len(mine)

    def settle(self, now: int, request: str, tokens: int) -> int:
        self.move_to(now)
        if request in self.settled:
            return 0
        self.settled.add(request)
        if request in self.reserved:
            self.drop(request, tokens)
        return 1


class Run:
    """One sequence, on an organization of its own. Time passes by moving the stored times back."""

    def __init__(self) -> None:
        self.client = sync_client()
        self.prefix = quota_prefix(new_id())
        self.requests: dict[int, UUID] = {}
        self.model = Model()
        self.shift = 0
        self.started: int | None = None

    def name(self, number: int) -> str:
        return str(self.requests.setdefault(number, new_id()))

    def time(self, reported: int) -> int:
        now = reported + self.shift
        if self.started is None:
            self.started = self.model.at = now
        return now

    def reserve(self, wanted: dict[int, int], names: tuple[str, ...], what: str = "all") -> int:
        replies = {self.name(number): tokens for number, tokens in wanted.items()}
        buckets = [part for name in names for part in (name, *LIMITS[name])]
        wants = [part for id, tokens in replies.items() for part in (id, tokens, 0, 0)]
        args = [what, TTL, str(USER), "-", len(names), *buckets, 0, *wants]
        verdict, refusing, wait, now, *_ = RESERVE.call_sync(self.client, self.prefix, *args)
        assert verdict in self.model.reserve(self.time(now), replies, names, what)
        assert (wait > 0) == (verdict in (1, 2))
        assert 1 <= refusing <= len(names) if verdict else refusing == 0
        self.check()
        return int(verdict)

    def settle(self, number: int, share: float) -> None:
        request = self.name(number)
        reserved, _ = self.model.reserved.get(request, (0, ()))
        actual = int(reserved * share)  # within its reservation, as an honest one is
        counted, now = SETTLE.call_sync(self.client, self.prefix, request, actual, 0, 0, REMEMBER)
        assert counted == self.model.settle(self.time(now), request, actual)
        self.check()

    def renew(self, number: int) -> None:
        request = self.name(number)
        if request not in self.model.live:
            return  # runners renew what they run; a renewal of something lost is tested elsewhere
        _, now, *_ = RENEW.call_sync(self.client, self.prefix, TTL, 0, 256, 128, request, -1)
        self.model.live[request] = self.time(now) + TTL
        self.check()

    def let_pass(self, ms: int) -> None:
        if not self.started:
            return
        for name in LIMITS:
            if self.client.exists(f"{self.prefix}:bucket:{name}"):
                self.client.hincrby(f"{self.prefix}:bucket:{name}", "at", -ms)
        for request in list(self.model.live):
            self.client.zincrby(f"{self.prefix}:live", -ms, request)
        self.shift += ms

    def check(self) -> None:
        """What must always hold, whatever the sequence was; and that Redis says what the model does."""
        args = [len(LIMITS), *(part for name, limits in LIMITS.items() for part in (name, *limits[:2]))]
        reported, *counts = STANDING.call_sync(self.client, self.prefix, *args)
        now = self.time(reported)
        assert self.started is not None
        self.model.move_to(now)
        for index, (name, bucket) in enumerate(self.model.buckets.items()):
            tokens, requests, running = counts[3 * index : 3 * index + 3]
            tokens_shown, running_shown = self.model.shown(name)
            assert abs(tokens - tokens_shown) <= 1.1
            assert abs(requests - bucket.requests) <= 1.1
            assert running == running_shown
            per_minute, _, at_once = bucket.limits
            refilled = (now - self.started) * per_minute / 60_000
            assert not per_minute or bucket.spent + bucket.reserved <= per_minute + refilled + 1
            assert not at_once or bucket.running <= at_once
        assert self.client.zcard(f"{self.prefix}:live") == self.client.hlen(f"{self.prefix}:held")

    def end(self) -> None:
        """Everything settled and a minute gone: not a token, not a request and not a place is missing anywhere."""
        for number in list(self.requests):
            self.settle(number, 0.0)
        assert all(bucket.running == 0 for bucket in self.model.buckets.values())
        self.let_pass(60_000)
        assert self.reserve({100: 300, 101: 300}, ("plan", "key:a")) == 0
        assert self.reserve({102: 400}, ("plan", "key:b")) == 0


@settings(max_examples=150, deadline=None)
@given(st.lists(OPERATIONS, max_size=30))
def test_limits_are_kept_in_every_bucket_and_nothing_leaks(operations: list) -> None:
    run = Run()
    for kind, what, more in operations:
        if kind in TAKING:
            run.reserve(dict(what), more, TAKING[kind])
        elif kind == "settle":
            run.settle(what, more)
        elif kind == "renew":
            run.renew(what)
        else:
            run.let_pass(int(more))
    run.end()
