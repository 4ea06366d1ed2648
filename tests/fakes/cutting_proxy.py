"""Stands between a runner and its engines, and breaks a stream off behind an event that the test chooses."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from chatsite.concurrency import end_tasks

TOKEN = b'"token_ids":['


class CuttingProxy:
    """`cut_after`: so many events with tokens are passed on of the next stream, then it is broken off; 0: none is."""

    def __init__(self, engines: list[str]) -> None:
        self.engines = engines
        self.urls: list[str] = []
        self.cut_after = 0
        self.cuts = 0

    async def start(self) -> None:
        for engine in self.engines:
            port = int(engine.rsplit(":", 1)[1])
            server = await asyncio.start_server(lambda r, w, port=port: self._serve(r, w, port), "127.0.0.1", 0)
            self.urls.append(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")

    async def close(self) -> None:
        await end_tasks([each for each in asyncio.all_tasks() if each is not asyncio.current_task()])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
        try:
            upstream, engine = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.close()
            return
        both = [
            asyncio.create_task(self._pass_on(reader, engine, count=False)),
            asyncio.create_task(self._pass_on(upstream, writer, count=True)),
        ]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        writer.transport.abort()
        engine.transport.abort()
        await end_tasks(both)

    async def _pass_on(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, count: bool) -> None:
        seen = 0
        while True:
            try:
                data = await source.read(65536)
                if not data:
                    return
                if count and self.cut_after:
                    head, found = self._up_to_cut(data, seen)
                    seen += found
                    sink.write(head)
                    if seen >= self.cut_after:
                        self.cut_after = 0
                        self.cuts += 1
                        await asyncio.wait_for(sink.drain(), 5)
                        await asyncio.sleep(0.05)  # what was passed on is read before the connection is reset
                        return
                else:
                    sink.write(data)
                await sink.drain()
            except OSError:
                return

    def _up_to_cut(self, data: bytes, seen: int) -> tuple[bytes, int]:
        """What of `data` is passed on, whole events, and how many tokens' events are in it."""
        found, end = 0, 0
        while seen + found < self.cut_after:
            at = data.find(TOKEN, end)
            if at < 0:
                return data, found
            found += 1
            end = data.find(b"\n\n", at) + 2
            if end < 2:
                return data, found
        return data[:end], found


@contextmanager
def cutting_proxy(engines: list[str]) -> Iterator[CuttingProxy]:
    """One address for each engine, in `urls`."""
    proxy, loop = CuttingProxy(engines), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(proxy.start(), loop).result(10)
        yield proxy
    finally:
        asyncio.run_coroutine_threadsafe(proxy.close(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
