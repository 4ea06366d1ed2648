"""Redis clients and Lua scripts.

Scripts live in named files with a header (KEYS, ARGV, return). They touch one hash slot each: KEYS[1] is a hash-tagged
prefix such as `v1:{m:smollm2/0}`, and every key a script uses is derived from it.
"""

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import redis
import redis.asyncio as aioredis
from django.conf import settings
from redis.exceptions import NoScriptError

from chatsite.redis_line import Arg as Arg
from chatsite.redis_line import SharedLine

SCHEMA = "v1"  # first part of every key: two releases with different layouts may run side by side

_async_clients: "WeakKeyDictionary[asyncio.AbstractEventLoop, aioredis.Redis]" = WeakKeyDictionary()
_lines: "WeakKeyDictionary[aioredis.Redis, SharedLine]" = WeakKeyDictionary()
_sync_clients: dict[str, redis.Redis] = {}


def async_client() -> aioredis.Redis:
    """The running event loop's client. `socket_timeout` is explicit: the default of 5 s kills longer blocking reads."""
    loop = asyncio.get_running_loop()
    client = _async_clients.get(loop)
    if client is None:
        client = _async_clients[loop] = aioredis.Redis.from_url(
            settings.REDIS_URL, socket_timeout=30, socket_connect_timeout=2
        )
    return client


def sync_client() -> redis.Redis:
    """A client for tasks, commands and tests."""
    if settings.REDIS_URL not in _sync_clients:
        _sync_clients[settings.REDIS_URL] = redis.Redis.from_url(
            settings.REDIS_URL, socket_timeout=30, socket_connect_timeout=2
        )
    return _sync_clients[settings.REDIS_URL]


async def close_async_client() -> None:
    """Closes the running loop's client, at the end of a process or a test."""
    client = _async_clients.pop(asyncio.get_running_loop(), None)
    if client is not None:
        if (line := _lines.pop(client, None)) is not None:
            await line.close()
        await client.aclose()


@dataclass(frozen=True)
class Script:
    """One Lua file. Calls go by hash; the text is sent only when the server does not know it."""

    name: str
    text: str
    sha: str

    @classmethod
    def load(cls, path: Path, *ahead: Path) -> "Script":
        """`ahead`: files with what several scripts share, which stand ahead of this one."""
        text = "\n".join(each.read_text() for each in (*ahead, path))
        return cls(path.stem, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())

    async def __call__(self, client: aioredis.Redis, prefix: str, *args: Arg) -> Any:
        """Raises RedisError."""
        [result] = await run_pipeline(client, [Call(self, prefix, args)])
        if isinstance(result, Exception):
            raise result
        return result

    def call_sync(self, client: redis.Redis, prefix: str, *args: Arg) -> Any:
        try:
            return client.evalsha(self.sha, 1, prefix, *args)
        except NoScriptError:
            return client.eval(self.text, 1, prefix, *args)


@dataclass(frozen=True)
class Call:
    """A script call to be sent in a pipeline."""

    script: Script
    prefix: str
    args: Sequence[Arg]


@dataclass(frozen=True)
class Put:
    """A value to be stored ahead of the calls of a pipeline, for `seconds`."""

    key: str
    value: bytes
    seconds: int


async def run_pipeline(client: aioredis.Redis, calls: Sequence[Call], put: Put | None = None) -> list[Any]:
    """Sends `put` and `calls` in one round trip; returns a result or an exception for each call, in order."""
    results = await _send(client, calls, put)
    missing = [index for index, result in enumerate(results) if isinstance(result, NoScriptError)]
    if missing:  # the server was restarted or flushed: send the texts, then repeat what was refused
        texts = {calls[index].script.text for index in missing}
        await send(client, [("SCRIPT", "LOAD", text) for text in texts])
        for index, result in zip(missing, await _send(client, [calls[index] for index in missing]), strict=True):
            results[index] = result
    return results


async def _send(client: aioredis.Redis, calls: Sequence[Call], put: Put | None = None) -> list[Any]:
    commands: list[Sequence[Arg]] = [("EVALSHA", call.script.sha, 1, call.prefix, *call.args) for call in calls]
    if put is None:
        return await send(client, commands)
    return (await send(client, [("SET", put.key, put.value, "EX", put.seconds), *commands]))[1:]


async def send(client: aioredis.Redis, commands: Sequence[Sequence[Arg]]) -> list[Any]:
    """Sends the commands in one go; returns each one's reply as it came (bytes, numbers, lists), or its ResponseError.

    Raises RedisError. By the client's `SharedLine`: commands that wait (BLOCK) would hold up all others, and need a
    `Line` of their own.
    """
    line = _lines.get(client)
    if line is None:
        line = _lines[client] = SharedLine()
    return await line.ask(client, commands)


async def ask(client: aioredis.Redis, *commands: Sequence[Arg]) -> list[Any]:
    """As `send`, for who can do nothing with an error among the replies. Raises RedisError."""
    replies = await send(client, commands)
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    return replies


def streams_of(reply: Any) -> list[tuple[bytes, list[tuple[bytes, list[bytes]]]]]:
    """What XREAD returned: of each stream its entries, with names and values in turn.

    The server gives a list of pairs (RESP2) or a mapping (RESP3); None is nothing.
    """
    return list(reply.items()) if isinstance(reply, dict) else list(reply or [])
