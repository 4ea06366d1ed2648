"""Budgets under random operations and faults, against a plain model: nothing is overrun, refused wrongly, or leaked.

The scripts run on a real Valkey. The ledger, and what PostgreSQL knows of requests, is the model's: written before
Redis hears of it, as in the service, where whoever does so may die in between.
"""

from collections import Counter
from dataclasses import dataclass, field
from datetime import date, timedelta
from itertools import chain
from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from chatsite.ids import first_id, new_id
from chatsite.redis import sync_client
from quotas import budgets
from quotas.budgets import BudgetLimit, Unit
from quotas.counters import Open, Requests, _arguments, _Snapshot
from quotas.periods import Period, day_number, midnight, today
from quotas.protocol import Used
from quotas.scripts import LOAD, RENEW, RESERVE, SETTLE, quota_prefix

USERS = [new_id() for _ in range(2)]
KEYS = [new_id(), None]  # chains; the ids of API keys are the same here
TTL, REMEMBER = 600_000, 600_000
HARD = [
    BudgetLimit("plan", "org", "", Unit.COST, 1000),
    BudgetLimit("organization", "org", "", Unit.TOKENS, 900, days=3),
    BudgetLimit("organization", "org", "", Unit.TOKENS, 700, days=1),  # of the same counter
    BudgetLimit("plan", "org", "", Unit.TOKENS, 1500),
    BudgetLimit("user", budgets.member(USERS[0]), "", Unit.TOKENS, 400),
    BudgetLimit("key", budgets.key(KEYS[0]), "", Unit.COST, 500, days=2),
]
COUNTERS = budgets.counters(HARD)
FIRST_DAY = Period.month(Period.month(today()).start - timedelta(days=1)).start - timedelta(days=2)  # a month ends soon
NUMBERS = st.integers(0, 7)
AMOUNT = st.integers(0, 260)
LATE = ["none", "none", "all", "the first"]  # of the replies of one call, those whose ids are of the day before
OPERATIONS = st.one_of(
    st.tuples(
        st.just("reserve"),
        st.lists(st.tuples(NUMBERS, AMOUNT, AMOUNT), min_size=1, max_size=2, unique_by=lambda each: each[0]),
        st.tuples(
            st.sampled_from(USERS), st.sampled_from(KEYS), st.sampled_from(LATE), st.sampled_from([True, True, False])
        ),
    ),
    st.tuples(st.sampled_from(["write", "renew", "top_up", "release", "expire"]), NUMBERS, st.integers(0, 300)),
    st.tuples(st.just("announce"), NUMBERS, st.tuples(AMOUNT, AMOUNT)),
    st.tuples(st.sampled_from(["start", "start_at_last", "start_at_last", "stop_waiting"]), NUMBERS, st.just(0)),
    st.tuples(st.sampled_from(["finish", "end", "refund"]), NUMBERS, st.floats(0, 1)),
    st.tuples(st.sampled_from(["finish", "end"]), NUMBERS, st.floats(0, 1)),
    st.tuples(
        st.sampled_from(["lose_redis", "forget", "half_a_read", "next_day", "end_meanwhile"]), NUMBERS, st.just(0)
    ),
)


@dataclass
class Request:
    """`state`: reserved, open (PostgreSQL has a row), ended (the ledger has it), settled (Redis knows), or gone.

    One of the `batch` lane begins as waiting: its row is there, and it reserves when it starts; open is claimed then.
    """

    id: UUID
    user: UUID
    key: UUID | None
    day: int
    tokens: int
    cost: int
    state: str = "reserved"
    used: Used | None = None
    batch: bool = False

    def counts_for(self, subject: str) -> bool:
        keys = () if self.key is None else (budgets.key(self.key),)
        return subject in ("org", budgets.member(self.user), *keys)


@dataclass
class Run:
    """One sequence, on an organization of its own."""

    prefix: str = field(default_factory=lambda: quota_prefix(new_id()))
    day: date = FIRST_DAY
    requests: dict[int, Request] = field(default_factory=dict)
    before: list[Request] = field(default_factory=list)  # whose numbers others have now
    ledger: list[tuple[Request, int, int]] = field(default_factory=list)
    meanwhile: int | None = None  # the number of one that ends while the ledger is read next
    operations: int = 0

    def __post_init__(self) -> None:
        self.client: Any = sync_client()

    # Operations

    def reserve(self, wanted: list[tuple[int, int, int]], caller: tuple[UUID, UUID | None, str, bool]) -> None:
        user, key, late, written = caller
        before = self.day - timedelta(days=1) if self.day > FIRST_DAY else self.day
        made = []
        for place, (number, tokens, cost) in enumerate(wanted):
            day = before if late == "all" or (late == "the first" and place == 0) else self.day
            known = self.requests.get(number)
            if known is not None and known.state in ("waiting", "reserved", "open", "ended"):
                return
            id = UUID(int=first_id(midnight(day)).int | new_id().int & (1 << 64) - 1)
            made.append((number, Request(id, user, key, day_number(day), tokens, cost)))
        mine = [each for each in HARD if made[0][1].counts_for(each.subject)]
        fits = all(self.fits(each, [request for _, request in made]) for each in mine)
        assert self.ask_known(mine, [request for _, request in made])[0] == (0 if fits else 4)
        if fits:
            for number, request in made:
                if number in self.requests:
                    self.before.append(self.requests[number])
                self.requests[number] = request
            assert self.ask(mine, [request for _, request in made])[0] == 0, "once more, it takes nothing"
            for number, _ in made if written else ():
                self.write(number, 0)

    def announce(self, number: int, wanted: tuple[int, int]) -> None:
        """A request of the batch lane is written, and waits: nothing of it is reserved."""
        user, key = USERS[number % 2], KEYS[number // 2 % 2]
        known = self.requests.get(number)
        if known is not None and known.state in ("waiting", "reserved", "open", "ended"):
            return
        id = UUID(int=first_id(midnight(self.day)).int | new_id().int & (1 << 64) - 1)
        request = Request(id, user, key, day_number(self.day), *wanted, state="waiting", batch=True)
        mine = [each for each in HARD if request.counts_for(each.subject)]
        may = all(self.fits(each, [request], spent_alone=True) for each in mine)
        assert self.ask_known(mine, [request], "request")[0] == (0 if may else 4)
        if may:
            if known is not None:
                self.before.append(known)
            self.requests[number] = request

    def start(self, number: int, _: int) -> None:
        """Its runner is about to claim it, and may die before it does."""
        request = self.requests.get(number)
        if request is None or request.state not in ("waiting", "reserved") or not request.batch:
            return
        mine = [each for each in HARD if request.counts_for(each.subject)]
        fits = request.state == "reserved" or all(self.fits(each, [request]) for each in mine)
        assert self.ask_known(mine, [request], "replies")[0] == (0 if fits else 4)
        request.state = "reserved" if fits else "waiting"

    def start_at_last(self, number: int, _: int) -> None:
        self.start(number, 0)
        self.write(number, 0)

    def wait_again(self, number: int) -> None:
        """PostgreSQL has its row: another runner starts it."""
        if self.requests[number].batch:
            self.move(number, "gone", "waiting")

    def stop_waiting(self, number: int, _: int) -> None:
        """As a caller who hangs up: it has used nothing, and settling it changes nothing."""
        if self.move(number, "waiting", "ended"):
            self.requests[number].used = Used(0, 0, 0)
            before = self.client.hgetall(f"{self.prefix}:counted")
            self.release(number, 0)
            assert self.client.hgetall(f"{self.prefix}:counted") == before

    def ask_known(self, mine: list[BudgetLimit], made: list[Request], what: str = "all") -> list[int]:
        """The ledger is read first where it has to be."""
        answer = self.ask(mine, made, what)
        if answer[0] == 5:
            self.read([(each.subject, each.unit) for each in mine])
            answer = self.ask(mine, made, what)
        return answer

    def ask(self, mine: list[BudgetLimit], made: list[Request], what: str = "all") -> list[int]:
        given = chain.from_iterable((each.subject, each.unit.value, each.days, each.limit) for each in mine)
        wants = chain.from_iterable((str(each.id), each.tokens, each.tokens, each.cost) for each in made)
        key = str(made[0].key) if made[0].key else "-"
        plan = (1, "plan", 0, 0, 0)
        return RESERVE.call_sync(
            self.client, self.prefix, what, TTL, str(made[0].user), key, *plan, len(mine), *given, *wants
        )  # fmt: skip

    def write(self, number: int, _: int) -> None:
        self.move(number, "reserved", "open")

    def renew(self, number: int, used: int) -> None:
        if (request := self.requests.get(number)) and request.state == "open":
            RENEW.call_sync(self.client, self.prefix, TTL, 0, 50, 20, str(request.id), -1)

    def top_up(self, number: int, used: int) -> None:
        if (request := self.requests.get(number)) and request.state == "open":
            RENEW.call_sync(self.client, self.prefix, TTL, 0, 50, 20, str(request.id), min(used, request.tokens))

    def end(self, number: int, share: float) -> None:
        """PostgreSQL has it, and whoever wrote it there dies."""
        if self.move(number, "open", "ended"):
            request = self.requests[number]
            request.used = Used(0, int(request.tokens * share), int(request.cost * share))
            self.ledger.append((request, request.used.billed, request.used.cost))

    def finish(self, number: int, share: float) -> None:
        self.end(number, share)
        self.release(number, 0)

    def release(self, number: int, _: int) -> None:
        """As the sweep does it, as often as it likes."""
        if (request := self.requests.get(number)) and request.state in ("ended", "settled"):
            used = request.used
            assert used is not None
            given = (str(request.id), used.tokens, used.billed, used.cost, REMEMBER)
            counted, _ = SETTLE.call_sync(self.client, self.prefix, *given)
            if request.state == "settled" and counted == 1:
                assert not self.client.exists(f"{self.prefix}:counted") or not (used.billed or used.cost)
            if counted >= 0:
                request.state = "settled"

    def expire(self, number: int, _: int) -> None:
        """Its web process died before it could write a row."""
        if self.move(number, "reserved", "gone"):
            self.client.zadd(f"{self.prefix}:live", {str(self.requests[number].id): 1}, xx=True)
            RESERVE.call_sync(self.client, self.prefix, "all", TTL, str(USERS[0]), "-", 0, 0)  # sweeps
            self.wait_again(number)

    def refund(self, number: int, share: float) -> None:
        if (request := self.requests.get(number)) and request.state in ("ended", "settled"):
            left = sum(cost for each, _, cost in self.ledger if each is request)
            self.forget()
            self.ledger.append((request, 0, -int(left * share)))
            self.forget()

    def forget(self, *_: int) -> None:
        self.client.delete(f"{self.prefix}:counted", f"{self.prefix}:loading")

    def lose_redis(self, *_: int) -> None:
        for key in list(self.client.scan_iter(f"{self.prefix}*")):
            self.client.delete(key)
        for number in self.requests:
            self.move(number, "reserved", "gone")
            self.wait_again(number)

    def half_a_read(self, *_: int) -> None:
        """Whoever was reading the ledger has died; its token goes by itself."""
        self.client.set(f"{self.prefix}:loading", "of somebody dead")
        for number in self.requests:
            self.release(number, 0)
        assert LOAD.call_sync(self.client, self.prefix, "another", TTL, REMEMBER, 0, 0) == 0
        self.client.delete(f"{self.prefix}:loading")

    def end_meanwhile(self, number: int, _: int) -> None:
        self.meanwhile = number

    def next_day(self, *_: int) -> None:
        if self.day < FIRST_DAY + timedelta(days=6):
            self.day += timedelta(days=1)

    def read(self, wanted: list[tuple[str, Unit]]) -> None:
        """As counters.read does it, from the model's ledger."""
        ended = {each.id: each.used for each in self.all() if each.state == "ended" and each.used}
        open_ = [
            Open(each.id, each.user, each.key, each.tokens, each.cost) for each in self.all() if each.state == "open"
        ]
        days = {counter: self.spent(*counter) for counter in wanted}
        keys = {key: key for key in KEYS if key}
        snapshot = _Snapshot(Requests(open_, dict.fromkeys(ended, 0)), ended, keys, days)
        self.client.set(f"{self.prefix}:loading", "mine")
        if self.meanwhile is not None:
            self.finish(self.meanwhile, 0.5)
            self.meanwhile = None
        assert LOAD.call_sync(self.client, self.prefix, "mine", *_arguments(snapshot, wanted)) == 1
        for each in self.all():
            each.state = "settled" if each.id in ended else each.state

    # The model

    def all(self) -> list[Request]:
        return [*self.requests.values(), *self.before]

    def move(self, number: int, before: str, after: str) -> bool:
        request = self.requests.get(number)
        if request is None or request.state != before:
            return False
        request.state = after
        return True

    def spent(self, subject: str, unit: Unit) -> Counter[int]:
        found: Counter[int] = Counter()
        for request, tokens, cost in self.ledger:
            if request.counts_for(subject):
                found[request.day] += tokens if unit is Unit.TOKENS else cost
        return found

    def held(self, subject: str, unit: Unit, states: tuple[str, ...] = ("reserved", "open", "ended")) -> Counter[int]:
        found: Counter[int] = Counter()
        for request in self.all():
            if request.state in states and request.counts_for(subject):
                found[request.day] += request.tokens if unit is Unit.TOKENS else request.cost
        return found

    def taken(self, subject: str, unit: Unit) -> Counter[int]:
        """As Redis has it: what is ended, but not settled there, still counts as reserved."""
        found = self.held(subject, unit)
        found.update(self.spent(subject, unit))
        for request, tokens, cost in self.ledger:
            if request.state == "ended" and request.counts_for(subject):
                found[request.day] -= tokens if unit is Unit.TOKENS else cost
        return found

    def fits(self, budget: BudgetLimit, made: list[Request], *, spent_alone: bool = False) -> bool:
        """`spent_alone`: it does, or would if nothing were reserved."""
        # A read would settle what is ended, and free some of it: it is not known here whether there will be one.
        unknown = not self.client.hexists(f"{self.prefix}:counted", f"{budget.subject} {budget.unit.value}")
        if any(self.unknown(each) for each in HARD if made[0].counts_for(each.subject)) or unknown:
            held = self.held(budget.subject, budget.unit, ("reserved", "open"))
            taken = Counter(held)
            taken.update(self.spent(budget.subject, budget.unit))
        else:
            taken, held = self.taken(budget.subject, budget.unit), self.held(budget.subject, budget.unit)
        for each in made:
            taken[each.day] += self.amount(budget, each)
        days = {day for each in made for day in ends(budget, each.day)}
        limit = budget.limit + (held.total() if spent_alone else 0)
        return all(self.sum(taken, budget, day) <= limit for day in days)

    def unknown(self, budget: BudgetLimit) -> bool:
        return not self.client.hexists(f"{self.prefix}:counted", f"{budget.subject} {budget.unit.value}")

    @staticmethod
    def amount(budget: BudgetLimit, request: Request) -> int:
        return request.tokens if budget.unit is Unit.TOKENS else request.cost

    @staticmethod
    def sum(taken: Counter[int], budget: BudgetLimit, day: int) -> int:
        """Of the period of a day."""
        date_ = date(1970, 1, 1) + timedelta(days=day)
        period = Period.rolling(budget.days, date_) if budget.days else Period.month(date_)
        return sum(taken[each] for each in range(day_number(period.start), day_number(period.end)))

    # What must hold

    def check(self) -> None:
        self.operations += 1
        stored = {name.decode(): int(value) for name, value in self.client.hgetall(f"{self.prefix}:counted").items()}
        for subject, unit in COUNTERS:
            name = f"{subject} {unit.value}"
            if name not in stored:
                continue
            days = self.taken(subject, unit)
            assert {day: value for day, value in days.items() if value} == {
                int(each.rpartition(" ")[2]): value
                for each, value in stored.items()
                if value and each.startswith(f"{name} ") and not each.endswith(" held")
            }
            assert stored[f"{name} held"] == self.held(subject, unit).total()
        for budget in HARD:
            truth = self.held(budget.subject, budget.unit, ("reserved", "open"))
            truth.update(self.spent(budget.subject, budget.unit))
            for day in range(day_number(FIRST_DAY), day_number(self.day) + 1):
                assert self.sum(truth, budget, day) <= budget.limit, "a hard budget is overrun"

    def finish_all(self) -> None:
        """In the end every counter is what the ledger says, to the last digit, and nothing is held."""
        for number in list(self.requests):
            self.stop_waiting(number, 0)
            self.write(number, 0)
            self.finish(number, 0.5)
        self.check()
        for subject, unit in COUNTERS:
            assert self.held(subject, unit).total() == 0
            name = f"{self.prefix}:counted"
            if self.client.hexists(name, f"{subject} {unit.value}"):
                assert self.taken(subject, unit) == self.spent(subject, unit)
        assert self.client.hlen(f"{self.prefix}:held") == self.client.zcard(f"{self.prefix}:live") == 0


def ends(budget: BudgetLimit, day: int) -> tuple[int, ...]:
    """Days whose periods a request of that day counts in, and which may have begun."""
    return (day, day + 1) if budget.days else (day,)


performed: list[int] = []


@settings(max_examples=200, deadline=None)
@given(st.lists(OPERATIONS, min_size=40, max_size=70))
def budgets_hold(operations: list) -> None:
    run = Run()
    for kind, what, more in operations:
        getattr(run, kind)(what, more)
        run.check()
    run.finish_all()
    performed.append(run.operations)


def test_s25_no_budget_is_overrun_or_refused_wrongly_and_nothing_leaks_in_10_000_operations() -> None:
    performed.clear()
    budgets_hold()
    assert sum(performed) >= 10_000
