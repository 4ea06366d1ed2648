"""A small world around a `Book`: callers, runners that crash and stall, engines, a truth that survives Redis.

Every method is one random-able step; `check` says whether what must always hold does.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from inference.scheduling.answers import Answer, Head, Outcome, Released, State
from inference.scheduling.book import Book
from inference.scheduling.settings import LANES, SchedulerSettings

REPLICAS = {"a": (4, 6000), "b": (3, 4000)}  # slots, KV tokens
RUNNERS = ("one", "two")
PEAK_RATE = 2000.0
MISSING_MS = 7000  # a running request without a lease for that long is entered again


@dataclass
class Truth:
    """What the database knows of a request, and the log of its tokens."""

    id: str
    lane: str
    tenant: str
    input: int
    output: int
    weight: float
    rank: float
    attempt: int = 0
    running: bool = False
    log: list[int] = field(default_factory=list)
    terminal: str = ""
    missing_since: int | None = None


@dataclass
class Stream:
    """An upstream call of a runner; `renewed` is when its last successful renewal was sent."""

    id: str
    attempt: int
    replica: str
    position: int
    uncached: int
    renewed: int


class World:
    def __init__(self, make_book: Callable[[SchedulerSettings], Any] = Book) -> None:
        self.make_book = make_book
        self.now = 1_000_000
        self.settings = SchedulerSettings()
        self.truths: dict[str, Truth] = {}
        self.runners: dict[str, dict[str, Stream]] = {name: {} for name in RUNNERS}
        self.ghosts: list[Stream] = []  # of processes that were paused, and wake up without knowing it
        self.peeked: dict[str, tuple[Head, ...]] = dict.fromkeys(RUNNERS, ())
        self.floors: dict[str, float] = {}
        self.lose_redis()

    # ---------------------------------------------------------------------------------------------- steps

    def advance(self, ms: int) -> None:
        self.now += ms
        for streams in self.runners.values():
            for stream in list(streams.values()):
                if self.now - stream.renewed >= self.settings.lease.abort_seconds * 1000:
                    del streams[stream.id]
                    self.ghosts.append(stream)

    def submit(self, lane: str, tenant: str, input: int, output: int, weight: float) -> None:
        truth = Truth(f"r{len(self.truths):05}", lane, tenant, input, output, weight, float(self.now))
        self.truths[truth.id] = truth
        self._enqueue(truth)

    def enqueue_again(self, number: int) -> None:
        truth = self._any(number)
        if truth and not truth.terminal and self.book.place(truth.id).state is not State.UNKNOWN:
            assert not self._enqueue(truth)

    def dispatch(self, runner: str, cached: float, repeat: bool, fresh: bool = True) -> None:
        """Places what it can, of what it sees now or of what it saw last time."""
        if fresh:
            self.peeked[runner] = self.book.peek(self.now, 3).heads
        for head in self.peeked[runner]:
            for replica in REPLICAS:
                uncached = max(1, int((head.input + head.emitted) * (1 - cached)))
                call = (self.now, head.id, replica, runner)
                said = {"uncached": uncached, "attempt": head.attempt, "passing": head.passing or not fresh}
                committed = self.book.commit(*call, **said)
                if committed.attempt and head.id not in self.runners[runner]:
                    if repeat:
                        assert self.book.commit(*call, **said) == committed
                    self._claim(runner, head.id, committed.attempt, replica, uncached)
                    break

    def generate(self, runner: str, tokens: int) -> None:
        """Each of its streams gets tokens, and appends them where its claim lets it."""
        for stream in self.runners[runner].values():
            truth = self.truths[stream.id]
            self.book.first_token(self.now, stream.id, stream.attempt)
            for _ in range(min(tokens, truth.output - stream.position)):
                if truth.attempt == stream.attempt and not truth.terminal:
                    truth.log.append(stream.position)
                stream.position += 1

    def beat(self, runner: str) -> None:
        streams = self.runners[runner]
        told = [(stream.id, stream.attempt, stream.position) for stream in streams.values()]
        for (id, *_), answer in zip(told, self.book.heartbeat(self.now, told), strict=True):
            self._heed(runner, streams[id], answer)

    def finish(self, runner: str) -> None:
        for stream in list(self.runners[runner].values()):
            truth = self.truths[stream.id]
            if truth.attempt == stream.attempt and len(truth.log) == truth.output:
                self._end(truth, "succeeded")
                del self.runners[runner][stream.id]

    def release(self, runner: str, failed: bool, repeat: bool) -> None:
        """One that has had the most attempts, so that some fail for good."""
        for stream in sorted(self.runners[runner].values(), key=lambda each: -each.attempt)[:1]:
            self._release(runner, stream, failed=failed)
            if repeat:
                again = self.book.release(self.now, stream.id, stream.attempt, emitted=stream.position, failed=failed)
                assert again is Released.STALE

    def set_aside(self, runner: str) -> None:
        """One of the batch lane that has not begun is to wait outside: the sweep enters it again."""
        for stream in list(self.runners[runner].values()):
            truth = self.truths[stream.id]
            assert not self.book.set_aside(self.now, stream.id, stream.attempt + 1)
            if truth.lane == "batch" and truth.attempt == stream.attempt and not truth.log:
                self.book.set_aside(self.now, stream.id, stream.attempt)
                truth.running = False
                del self.runners[runner][stream.id]

    def crash(self, runner: str) -> None:
        self.ghosts += self.runners[runner].values()
        self.runners[runner].clear()

    def haunt(self) -> None:
        """Calls of attempts that are over change nothing."""
        held = {lease.id: lease.attempt for lease in self.book.running()}
        before = self.book.running()
        for ghost in self.ghosts[-5:]:
            if held.get(ghost.id) != ghost.attempt:
                [answer] = self.book.heartbeat(self.now, [(ghost.id, ghost.attempt, ghost.position + 5)])
                assert answer in (Answer.STALE, Answer.UNKNOWN)
                assert self.book.first_token(self.now, ghost.id, ghost.attempt) is answer
                assert self.book.preempt(self.now, ghost.id, ghost.attempt) is answer
                released = self.book.release(self.now, ghost.id, ghost.attempt, emitted=ghost.position + 5)
                assert released is Released.STALE
                assert not self.book.set_aside(self.now, ghost.id, ghost.attempt)
        assert self.book.running() == before

    def cancel(self, number: int) -> None:
        truth = self._any(number)
        if truth and not truth.terminal:
            self.book.cancel(self.now, truth.id, waiting=number % 3 == 0)

    def preempt(self, runner: str) -> None:
        for stream in self.runners[runner].values():
            self.book.preempt(self.now, stream.id, stream.attempt)

    def reap(self, loading: bool) -> None:
        for id, outcome in self.book.reap(self.now, loading=loading):
            self._end(self.truths[id], outcome)

    def settle_again(self, number: int) -> None:
        truth = self._any(number)
        if truth and truth.terminal:
            assert not self.book.settle(self.now, truth.id, emitted=len(truth.log))

    def lose_redis(self) -> None:
        self.book = self.make_book(self.settings)
        for replica, (capn, capkv) in REPLICAS.items():
            self.book.describe(self.now, replica, capn=capn, capkv=capkv, peak_rate=PEAK_RATE)
        self.floors = {}

    def sweep(self) -> None:
        """Enters again what Redis does not know: what waits at once, what ran when its runner must have given up."""
        for truth in self.truths.values():
            if truth.terminal or self.book.place(truth.id).state is not State.UNKNOWN:
                truth.missing_since = None
            elif not truth.running:
                self._enqueue(truth)
            else:
                truth.missing_since = self.now if truth.missing_since is None else truth.missing_since
                if self.now - truth.missing_since >= MISSING_MS:
                    self._enqueue(truth)

    def settle_everything(self) -> None:
        for truth in self.truths.values():
            if not truth.terminal:
                self._end(truth, "cancelled")

    # ---------------------------------------------------------------------------------------------- inside

    def _any(self, number: int) -> Truth | None:
        return list(self.truths.values())[number % len(self.truths)] if self.truths else None

    def _enqueue(self, truth: Truth) -> bool:
        return self.book.enqueue(
            self.now,
            truth.id,
            truth.lane,
            truth.tenant,
            input=truth.input,
            uncached=truth.input,
            kv=truth.input + truth.output // 2,  # estimates are wrong
            deadline=self.now + 20_000,
            peak_rate=PEAK_RATE,
            weight=truth.weight,
            rank=truth.rank,
            attempt=truth.attempt,
            emitted=len(truth.log),
        )

    def _claim(self, runner: str, id: str, attempt: int, replica: str, uncached: int) -> None:
        truth = self.truths[id]
        assert not truth.terminal, "what has ended is settled, so nobody is given it"
        if attempt <= truth.attempt:  # the database knows that attempt already: this one has lost its stream
            self.book.release(self.now, id, attempt, emitted=len(truth.log))
            return
        truth.attempt, truth.running, truth.missing_since = attempt, True, None
        stream = Stream(id, attempt, replica, len(truth.log), uncached, self.now)
        self.runners[runner][id] = stream

    def _heed(self, runner: str, stream: Stream, answer: Answer) -> None:
        truth = self.truths[stream.id]
        if answer in (Answer.OK, Answer.CANCELLED, Answer.PREEMPTED):
            stream.renewed = self.now
        if answer is Answer.CANCELLED:
            self._end(truth, "cancelled")
            del self.runners[runner][stream.id]
        elif answer is Answer.PREEMPTED:
            self._release(runner, stream, preempted=True)
        elif answer is Answer.STALE or (answer is Answer.UNKNOWN and not self._reopen(runner, stream)):
            del self.runners[runner][stream.id]

    def _reopen(self, runner: str, stream: Stream) -> bool:
        truth = self.truths[stream.id]
        if truth.terminal or truth.attempt != stream.attempt:
            return False
        stream.renewed = self.now
        return self.book.reopen(
            self.now,
            stream.id,
            truth.lane,
            truth.tenant,
            attempt=stream.attempt,
            replica=stream.replica,
            runner=runner,
            input=truth.input,
            kv=truth.input + truth.output // 2,
            emitted=stream.position,
            uncached=0 if stream.position else stream.uncached,
            deadline=self.now,
            rank=truth.rank,
            weight=truth.weight,
        )

    def _release(self, runner: str, stream: Stream, *, failed: bool = False, preempted: bool = False) -> None:
        del self.runners[runner][stream.id]
        truth = self.truths[stream.id]
        how = {"failed": failed, "preempted": preempted, "avoid": stream.replica if failed else ""}
        released = self.book.release(self.now, stream.id, stream.attempt, emitted=stream.position, **how)
        if released in (Released.CANCELLED, Released.FAILED):
            self._end(truth, released)

    def _end(self, truth: Truth, how: str) -> None:
        if not truth.terminal:
            truth.terminal = how
            assert how not in (Outcome.EXPIRED,) or not any(truth.id in streams for streams in self.runners.values())
        self.book.settle(self.now, truth.id, emitted=len(truth.log))

    # ---------------------------------------------------------------------------------------------- what must hold

    def check(self) -> None:
        self.check_counters()
        self.check_single_streams()
        self.check_tokens()
        self.check_somebody_has_the_turn()
        self.check_floors()

    def check_counters(self) -> None:
        running = self.book.running()
        assert len({lease.id for lease in running}) == len(running)
        for replica, counters in self.book.peek(self.now, 0, list(REPLICAS)).replicas.items():
            here = [lease for lease in running if lease.replica == replica]
            sums = (
                sum(lease.qpf for lease in here),
                sum(lease.kv for lease in here),
                sum(lease.read for lease in here),
            )
            expected = (*sums, len(here))
            assert (counters.qpf, counters.kv, counters.read, counters.n) == expected
            assert min(expected) >= 0
        by_lane = {lane: sum(lease.lane == lane for lease in running) for lane in LANES}
        assert self.book.running_by_lane() == by_lane

    def check_single_streams(self) -> None:
        streams = [stream for each in self.runners.values() for stream in each.values()]
        for id in {stream.id for stream in streams}:
            held = [stream.attempt for stream in streams if stream.id == id]
            assert len(held) == 1, f"{id} is streamed by attempts {held}"

    def check_tokens(self) -> None:
        for truth in self.truths.values():
            assert truth.log == list(range(len(truth.log)))

    def check_somebody_has_the_turn(self) -> None:
        heads = self.book.peek(self.now, 1000).heads
        assert self.book.waiting() == {lane: sum(head.lane == lane for head in heads) for lane in LANES}
        assert not heads or any(head.turn for head in heads)
        assert len({head.id for head in heads}) == len(heads)
        lane = LANES[self.now % len(LANES)]
        for tenant in {head.tenant for head in heads[-1:]} | {"newcomer"}:
            assert 0 <= self.book.before_next(self.now, lane, tenant) <= self.book.waiting()[lane]

    def check_floors(self) -> None:
        floors = self.book.floors()
        for name, floor in floors.items():
            assert floor >= self.floors.get(name, 0.0)
        self.floors = floors
