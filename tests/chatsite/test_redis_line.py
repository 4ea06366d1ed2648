"""The connection to Redis that tasks share: each gets its own replies, whatever becomes of the others."""

import asyncio
import hashlib
import re
import socket
import struct
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import pytest
import pytest_asyncio
import redis.asyncio as aioredis
from django.conf import settings
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as LostConnection
from redis.exceptions import DataError, NoScriptError, RedisError, ResponseError
from redis.exceptions import TimeoutError as Late

from chatsite.concurrency import end_tasks
from chatsite.redis import Call, Script, async_client, run_pipeline, send, sync_client
from chatsite.redis_line import Arg, Line, SharedLine


@pytest_asyncio.fixture
async def line() -> AsyncIterator[Line]:
    line = await Line.open(async_client())
    yield line
    await line.close()


async def number_of(line: Line) -> int:
    [number] = await line.ask([("CLIENT", "ID")])
    return int(number)


def script(text: str) -> Script:
    return Script("made", text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


async def test_many_ask_at_once_and_each_gets_its_own_replies(line: Line) -> None:
    asked = [line.ask([("SET", f"key {number}", number), ("GET", f"key {number}")]) for number in range(200)]
    assert await asyncio.gather(*asked) == [[b"OK", str(number).encode()] for number in range(200)]


async def test_what_is_sent_arrives_as_it_is(line: Line) -> None:
    values: list[Arg] = [b"\x00\r\n\xff", "ä", 7, 0.1, "", "x" * 2_000_000]
    await line.ask([("RPUSH", "values", *values)])
    found = await line.ask([("LRANGE", "values", 0, -1)])
    assert found == [[b"\x00\r\n\xff", "ä".encode(), b"7", b"0.1", b"", b"x" * 2_000_000]]
    with pytest.raises(DataError):
        await line.ask([("SET", "a", None)])  # type: ignore[list-item]
    assert await line.ask([("PING",)]) == [b"PONG"]


async def test_an_error_is_one_commands_reply(line: Line) -> None:
    before, wrong, unknown, after = await line.ask([("PING",), ("GET",), ("EVALSHA", "0" * 40, 0), ("PING",)])
    assert (before, after) == (b"PONG", b"PONG")
    assert isinstance(wrong, ResponseError)
    assert isinstance(unknown, NoScriptError)


async def test_whoever_is_cancelled_takes_nobody_elses_reply(line: Line) -> None:
    waits = asyncio.create_task(line.ask([("BLPOP", "list", 0.2)]))
    await asyncio.sleep(0)
    after = asyncio.create_task(line.ask([("ECHO", "after")]))
    await asyncio.sleep(0)
    waits.cancel()
    assert await after == [b"after"]
    assert await line.ask([("ECHO", "more")]) == [b"more"]
    assert not line.lost


async def test_who_waits_on_a_lost_line_is_told_and_the_next_one_gets_another() -> None:
    shared, client = SharedLine(), async_client()
    [number] = await shared.ask(client, [("CLIENT", "ID")])
    waits = asyncio.create_task(shared.ask(client, [("BLPOP", "list", 0)]))
    await asyncio.sleep(0.01)
    sync_client().client_kill_filter(_id=number)
    with pytest.raises(LostConnection):
        await waits
    [again] = await shared.ask(client, [("CLIENT", "ID")])
    assert again != number
    await shared.close()


class Resetting:
    """A server that says OK to everything, and resets its newest connection when it is told to."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self.connections: list[socket.socket] = []
        self._tasks = [asyncio.create_task(self._accept())]

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def reset(self) -> None:
        """The other side learns of it by its next system call, and no sooner than its event loop turns."""
        newest = self.connections[-1]
        asyncio.get_running_loop().remove_reader(newest)  # its number may be the next one's
        newest.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        newest.close()

    async def close(self) -> None:
        await end_tasks(self._tasks)
        for each in (*self.connections, self._listener):
            each.close()

    async def _accept(self) -> None:
        while True:
            connection, _ = await asyncio.get_running_loop().sock_accept(self._listener)
            self.connections.append(connection)
            self._tasks.append(asyncio.create_task(self._answer(connection)))

    async def _answer(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while asked := await loop.sock_recv(connection, 65_536):
            await loop.sock_sendall(connection, b"+OK\r\n" * len(re.findall(rb"(?m)^\*\d+\r$", asked)))


async def test_nothing_is_written_to_a_connection_that_was_reset(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever asks before the event loop has said that it is lost gets another; asyncio has nothing to warn of."""
    server, shared = Resetting(), SharedLine()
    client = aioredis.Redis(host="127.0.0.1", port=server.port, socket_timeout=5, retry=Retry(NoBackoff(), 0))
    assert await shared.ask(client, [("SET", "a", 1)]) == [b"OK"]
    server.reset()
    asked = (shared.ask(client, [("SET", "a", number)]) for number in range(30))
    first, *others = await asyncio.gather(*asked, return_exceptions=True)
    assert isinstance(first, LostConnection)  # it may have been done
    assert others == [[b"OK"]] * 29 and len(server.connections) == 2
    assert [each.getMessage() for each in caplog.records if each.name == "asyncio"] == []
    await shared.close()
    await client.aclose()
    await server.close()


async def test_many_that_find_a_line_lost_open_one_together() -> None:
    shared, client = SharedLine(), async_client()
    answers = await asyncio.gather(*(shared.ask(client, [("CLIENT", "ID")]) for _ in range(20)))
    assert len({number for [number] in answers}) == 1
    await shared.close()


async def test_a_server_that_accepts_and_says_nothing_fails_all_that_wait_at_once() -> None:
    """And not one after the other, each after its own time."""
    held: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: held.append(writer), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    at_once = Retry(NoBackoff(), 0)
    client = aioredis.Redis(host="127.0.0.1", port=port, socket_timeout=0.5, socket_connect_timeout=0.5, retry=at_once)
    shared = SharedLine()
    asked = [asyncio.create_task(shared.ask(client, [("PING",)])) for _ in range(10)]
    done, _ = await asyncio.wait(asked, timeout=3)
    assert len(done) == 10 and all(isinstance(each.exception(), RedisError) for each in done)
    assert len(held) == 1
    for writer in held:
        writer.close()
    server.close()
    await client.aclose()


async def test_a_server_that_says_nothing_is_given_up() -> None:
    client = aioredis.Redis.from_url(settings.REDIS_URL, socket_timeout=0.2)
    line = await Line.open(client)
    number = await number_of(line)
    first = asyncio.create_task(line.ask([("BLPOP", "list", 0)]))
    second = asyncio.create_task(line.ask([("PING",)]))
    for waiting in (first, second):
        with pytest.raises(Late):
            await asyncio.wait_for(waiting, 5)
    assert line.lost
    connections: Any = sync_client().client_list()
    assert not [each for each in connections if int(each["id"]) == number]
    await line.close()
    await client.aclose()


async def test_what_is_no_reply_ends_the_line(line: Line) -> None:
    waits = asyncio.create_task(line.ask([("BLPOP", "list", 0)]))
    await asyncio.sleep(0)
    line.data_received(b"?nonsense\r\n")
    with pytest.raises(LostConnection):
        await waits
    with pytest.raises(LostConnection):
        await line.ask([("PING",)])


async def test_a_reply_that_nobody_asked_for_ends_the_line(line: Line) -> None:
    line.data_received(b"+OK\r\n")
    assert line.lost


async def test_nothing_can_be_asked_of_a_closed_line() -> None:
    line = await Line.open(async_client())
    waits = asyncio.create_task(line.ask([("BLPOP", "list", 0)]))
    await asyncio.sleep(0)
    await line.close()
    await line.close()
    with pytest.raises(LostConnection):
        await waits
    with pytest.raises(LostConnection):
        await line.ask([("PING",)])


async def test_a_server_that_is_not_there_is_an_error_each_time() -> None:
    client = aioredis.Redis(host="127.0.0.1", port=1, retry=Retry(NoBackoff(), 0))
    for _ in range(2):
        with pytest.raises(LostConnection):
            await send(client, [("PING",)])


@pytest.mark.parametrize("protocol", [2, 3])
async def test_either_protocol_is_spoken(protocol: int) -> None:
    client = aioredis.Redis.from_url(settings.REDIS_URL, protocol=protocol)
    line = await Line.open(client)
    assert await line.ask([("SET", "a", 1), ("GET", "a")]) == [b"OK", b"1"]
    await line.close()
    await client.aclose()


async def test_scripts_that_the_server_has_forgotten_are_sent_again() -> None:
    echo, count = script("return ARGV[1]"), script("return redis.call('INCR', KEYS[1])")
    sync_client().script_flush()
    calls = [Call(echo, "p", ("a",)), Call(count, "p", ()), Call(echo, "p", ("b",)), Call(count, "p", ())]
    assert await run_pipeline(async_client(), calls) == [b"a", 1, b"b", 2]
    sync_client().script_flush()
    assert await count(async_client(), "p") == 3


async def test_a_script_that_fails_raises() -> None:
    wrong: Awaitable[Any] = script("return redis.call('GET')")(async_client(), "p")
    with pytest.raises(ResponseError):
        await wrong
