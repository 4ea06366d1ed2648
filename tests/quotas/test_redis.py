"""The scripts against a plain Python model, over random sequences of reserve, renew, settle and the passing of time."""

from dataclasses import dataclass, field
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from chatsite.ids import new_id
from chatsite.redis import sync_client
from quotas.selectors import quota_prefix
from quotas.services import RENEW, RESERVE, SETTLE

LIMIT, CONCURRENT, TTL, REMEMBER = 1000, 3, 10_000, 3_600_000
NAMES = st.integers(0, 5)
TOKENS = st.integers(0, 600)
OPERATIONS = st.one_of(
    st.tuples(st.just("reserve"), NAMES, TOKENS),
    st.tuples(st.just("settle"), NAMES, st.floats(0, 1)),  # the share of its reservation that was used
    st.tuples(st.just("renew"), NAMES, st.just(0)),
    st.tuples(st.just("pass"), st.just(0), st.integers(0, 20_000)),
)


@dataclass
class Model:
    """What the scripts promise, without Redis. Times in ms."""

    used: float = 0.0
    at: int = 0
    live: dict[str, int] = field(default_factory=dict)  # request -> expiry
    reserved: dict[str, int] = field(default_factory=dict)
    settled: set[str] = field(default_factory=set)

    def drain(self, now: int) -> None:
        self.used = max(0.0, self.used - (now - self.at) * LIMIT / 60_000)
        self.at = now

    def drop_expired(self, now: int, but: str) -> None:
        for request in [each for each, expiry in self.live.items() if expiry <= now and each != but]:
            del self.live[request]
            self.used = max(0.0, self.used - self.reserved.pop(request))

    def reserve(self, now: int, request: str, tokens: int) -> int:
        self.drain(now)
        self.drop_expired(now, but=request)
        if request in self.live:
            self.live[request] = max(self.live[request], now + TTL)
            return 0
        if request in self.settled:
            return 0
        if self.used + tokens > LIMIT:
            return 1
        if len(self.live) >= CONCURRENT:
            return 2
        self.used += tokens
        self.live[request], self.reserved[request] = now + TTL, tokens
        return 0

    def renew(self, now: int, request: str) -> None:
        if request not in self.settled:
            self.live[request] = now + TTL
            self.reserved.setdefault(request, 0)

    def settle(self, now: int, request: str, tokens: int) -> int:
        self.drain(now)
        if request in self.settled:
            return 0
        self.settled.add(request)
        self.used = max(0.0, self.used - self.reserved.pop(request, 0) + tokens)
        self.live.pop(request, None)
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
        self.spent = 0  # tokens of settled requests

    def name(self, number: int) -> str:
        return str(self.requests.setdefault(number, new_id()))

    def time(self, reported: int) -> int:
        now = reported + self.shift
        if self.started is None:
            self.started = self.model.at = now
        return now

    def reserve(self, number: int, tokens: int) -> None:
        request = self.name(number)
        verdict, used, running, wait, now = RESERVE.call_sync(
            self.client, self.prefix, request, tokens, TTL, LIMIT, CONCURRENT
        )
        assert verdict == self.model.reserve(self.time(now), request, tokens)
        assert abs(used - self.model.used) <= 1.01
        assert running == len(self.model.live)
        assert (wait > 0) == (verdict == 1)
        self.check(self.time(now))

    def settle(self, number: int, share: float) -> None:
        request = self.name(number)
        actual = int(self.model.reserved.get(request, 0) * share)  # within its reservation, as an honest one is
        counted, used, running, now = SETTLE.call_sync(self.client, self.prefix, request, actual, REMEMBER)
        assert counted == self.model.settle(self.time(now), request, actual)
        self.spent += actual if counted else 0
        assert abs(used - self.model.used) <= 1.01
        assert running == len(self.model.live)
        self.check(self.time(now))

    def renew(self, number: int) -> None:
        request = self.name(number)
        if request not in self.model.live:
            return  # runners renew what they run; a renewal of something lost is tested elsewhere
        _, now = RENEW.call_sync(self.client, self.prefix, TTL, 0, request)
        self.model.renew(self.time(now), request)
        self.check(self.time(now))

    def let_pass(self, ms: int) -> None:
        if self.client.exists(f"{self.prefix}:bucket"):
            self.client.hincrby(f"{self.prefix}:bucket", "at", -ms)
            for request in list(self.model.live):
                self.client.zincrby(f"{self.prefix}:live", -ms, request)
            self.shift += ms

    def check(self, now: int) -> None:
        """What must always hold, whatever the sequence was."""
        assert self.started is not None
        refilled = (now - self.started) * LIMIT / 60_000
        assert self.spent + sum(self.model.reserved.values()) <= LIMIT + refilled + 1
        assert len(self.model.live) <= CONCURRENT
        assert self.client.zcard(f"{self.prefix}:live") == self.client.hlen(f"{self.prefix}:reserved")

    def end(self) -> None:
        """Everything settled and a minute gone: not a token and not a place is missing."""
        for number in list(self.requests):
            self.settle(number, 0.0)
        self.let_pass(60_000)
        for number in range(100, 100 + CONCURRENT):
            self.reserve(number, LIMIT // CONCURRENT)
            assert self.name(number) in self.model.live


@settings(max_examples=150, deadline=None)
@given(st.lists(OPERATIONS, max_size=30))
def test_limits_are_kept_and_nothing_leaks(operations: list[tuple[str, int, float]]) -> None:
    run = Run()
    for kind, number, amount in operations:
        if kind == "reserve":
            run.reserve(number, int(amount))
        elif kind == "settle":
            run.settle(number, amount)
        elif kind == "renew":
            run.renew(number)
        else:
            run.let_pass(int(amount))
    run.end()
