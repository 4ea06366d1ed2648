"""`Book` and the Lua operations side by side: every call goes to both, and both must answer the same."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from redis import Redis, RedisCluster
from redis.exceptions import NoScriptError

from chatsite.redis import Call, Script, sync_client
from inference.redis import keys, rules
from inference.redis.scheduler import FOLDER, NAMES, Scheduler, _running, committed, ended, peeked
from inference.scheduling.answers import Answer, Committed, Counters, Outcome, Peeked, Place, Released, Running, State
from inference.scheduling.book import Book
from inference.scheduling.settings import LANES, SchedulerSettings

MODEL = "property-test"
CLOCK = Path(__file__).parent / "stopped_clock.lua"
SCRIPTS = {name: Script.load(FOLDER / f"{name}.lua", CLOCK, FOLDER / "rules.lua") for name in NAMES}


class LuaBook:
    """The operations on a real server, with `Book`'s methods and a clock that is told the time."""

    def __init__(
        self,
        settings: SchedulerSettings | None = None,
        client: Redis | RedisCluster | None = None,
        *,
        model: str = MODEL,
        shard: int = 0,
        scripts: Mapping[str, Script] = SCRIPTS,
    ) -> None:
        self.client: Any = client or sync_client()
        self.scripts = scripts
        self.calls = Scheduler(None, model)  # type: ignore[arg-type]  # only builds calls
        self.prefix = self.calls.prefix = keys.scheduler(model, shard)
        self.settings = settings or SchedulerSettings()
        for key in self.client.scan_iter(f"{self.prefix}*"):
            self.client.delete(key)

    def run(self, now: int, call: Call) -> Any:
        script = self.scripts[call.script.name]
        if isinstance(self.client, RedisCluster):  # its pipelines take no scripts
            self.client.set(f"{self.prefix}:now", now)
            return script.call_sync(self.client, call.prefix, *call.args)  # type: ignore[arg-type]
        with self.client.pipeline(transaction=False) as pipe:  # one trip for both
            pipe.set(f"{self.prefix}:now", now)
            pipe.evalsha(script.sha, 1, call.prefix, *call.args)
            try:
                return pipe.execute()[1]
            except NoScriptError:
                return self.client.eval(script.text, 1, call.prefix, *call.args)

    def describe(
        self, now: int, replica: str, *, capn: int, capkv: int, peak_rate: float, open: bool = True
    ) -> Counters:
        said = {"capn": capn, "capkv": capkv, "rate": peak_rate, "open": int(open)}
        self.client.hset(f"{self.prefix}:rep:{replica}", mapping=said)
        return self.peek(now, 0, [replica]).replicas[replica]

    def enqueue(self, now: int, id: str, lane: str, tenant: str, **said: Any) -> bool:
        return bool(self.run(now, self.calls.enqueue_call(id, lane, tenant, **said)))

    def peek(self, now: int, k: int, replicas: Sequence[str] = ()) -> Peeked:
        return peeked(self.run(now, self.calls.peek_call(k, replicas)), replicas)

    def commit(
        self, now: int, id: str, replica: str, runner: str, *, uncached: int, attempt: int, passing: bool = False
    ) -> Committed:
        said = (rules.packed(), id, replica, runner, uncached, attempt, int(passing))
        return committed(self.run(now, self.calls.call("commit", *said)))

    def first_token(self, now: int, id: str, attempt: int) -> Answer:
        return Answer(self.run(now, self.calls.first_token_call(id, attempt)).decode())

    def heartbeat(self, now: int, running: Sequence[tuple[str, int, int]]) -> tuple[Answer, ...]:
        return tuple(Answer(answer.decode()) for answer in self.run(now, self.calls.heartbeat_call(running)))

    def cancel(self, now: int, id: str, *, waiting: bool = False) -> State:
        return State(self.run(now, self.calls.cancel_call(id, waiting=waiting)).decode())

    def preempt(self, now: int, id: str, attempt: int) -> Answer:
        return Answer(self.run(now, self.calls.call("preempt", id, attempt)).decode())

    def release(self, now: int, id: str, attempt: int, **how: Any) -> Released:
        return Released(self.run(now, self.calls.release_call(id, attempt, **how)).decode())

    def reap(self, now: int, *, loading: bool = False) -> tuple[tuple[str, Outcome], ...]:
        return tuple(ended(self.run(now, self.calls.reap_call(loading=loading))))

    def settle(self, now: int, id: str, *, emitted: int = 0) -> bool:
        return bool(self.run(now, self.calls.settle_call(id, emitted)))

    def set_aside(self, now: int, id: str, attempt: int) -> bool:
        return bool(self.run(now, self.calls.set_aside_call(id, attempt)))

    def reopen(self, now: int, id: str, lane: str, tenant: str, **said: Any) -> bool:
        return bool(self.run(now, self.calls.reopen_call(id, lane, tenant, **said)))

    def place(self, id: str) -> tuple[State, int]:
        state, ahead, *_ = self.run(0, self.calls.call("place", id))
        return State(state.decode()), int(ahead)

    def running(self) -> tuple[Running, ...]:
        return tuple(_running(raw) for raw in self.run(0, self.calls.call("running")))

    def floors(self) -> dict[str, float]:
        scopes = {"lanes": ""} | {lane: f":{lane}" for lane in LANES}
        with self.client.pipeline(transaction=False) as pipe:
            for scope in scopes.values():
                pipe.zrange(f"{self.prefix}:act{scope}", 0, 0, withscores=True)
                pipe.get(f"{self.prefix}:lastvt{scope}")
            found = pipe.execute()
        pairs = zip(scopes, found[::2], found[1::2], strict=True)
        return {name: float(first[0][1] if first else stopped or 0) for name, first, stopped in pairs}

    def waiting(self) -> dict[str, int]:
        found = self.client.hgetall(keys.lengths(self.prefix))
        return {lane: int(found.get(lane.encode(), 0)) for lane in LANES}

    def running_by_lane(self) -> dict[str, int]:
        found = self.client.hgetall(keys.running(self.prefix))
        return {lane: int(found.get(lane.encode(), 0)) for lane in LANES}

    def before_next(self, now: int, lane: str, tenant: str, coming: int = 0) -> int:
        return int(self.run(now, self.calls.before_next_call(lane, tenant, coming)))

    def left(self) -> set[str]:
        """The keys that are there."""
        return {key.decode().removeprefix(f"{self.prefix}:") for key in self.client.scan_iter(f"{self.prefix}:*")}


class Twin:
    """What `World` drives."""

    def __init__(
        self, settings: SchedulerSettings | None = None, client: Redis | RedisCluster | None = None, **where: Any
    ) -> None:
        self.book = Book(settings)
        self.lua = LuaBook(settings, client, **where)
        rules.use(self.book.settings)

    def _both(self, name: str, *args: Any, **named: Any) -> Any:
        expected = getattr(self.book, name)(*args, **named)
        answer = getattr(self.lua, name)(*args, **named)
        assert answer == expected, f"{name}{args}{named}: the book says {expected}, Lua says {answer}"
        return expected

    def __getattr__(self, name: str) -> Any:
        def operation(*args: Any, **named: Any) -> Any:
            return self._both(name, *args, **named)

        return operation

    def reap(self, now: int, *, loading: bool = False) -> tuple[tuple[str, Outcome], ...]:
        expected, answer = self.book.reap(now, loading=loading), self.lua.reap(now, loading=loading)
        assert sorted(answer) == sorted(expected)  # of what ended at the same moment, either may come first
        return expected

    def place(self, id: str) -> Place:
        expected = self.book.place(id)
        assert self.lua.place(id) == (expected.state, expected.ahead)
        return expected

    def running(self) -> tuple[Running, ...]:
        expected, answer = self.book.running(), self.lua.running()
        assert sorted(answer, key=lambda lease: lease.id) == sorted(expected, key=lambda lease: lease.id)
        return expected

    def floors(self) -> dict[str, float]:
        expected = self.book.floors()
        found = self.lua.floors()
        assert found == expected, f"the book says {expected}, Lua says {found}"
        return expected
