"""A server on this machine that gets webhooks, and behaves as it is told."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Receiver:
    """`behave`: a status, or `hang`, `drip`, `huge`. `location`: where it redirects to."""

    port: int = 0
    behave: int | str = 200
    location: str = ""
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    sent_bytes: int = 0
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"


@contextmanager
def receiver(**options: Any) -> Iterator[Receiver]:
    state = Receiver(**options)

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            return

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            state.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
            _answer(self, state)

        do_GET = do_POST

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        state.over.set()
        server.shutdown()
        server.server_close()
        thread.join()


def _answer(handler: BaseHTTPRequestHandler, state: Receiver) -> None:
    if state.behave == "hang":
        state.over.wait()
        return
    status = state.behave if isinstance(state.behave, int) else 500
    handler.send_response(status)
    if state.location:
        handler.send_header("location", state.location)
    handler.end_headers()
    try:
        if state.behave == "huge":
            while not state.over.is_set():
                handler.wfile.write(b"x" * 65536)
                state.sent_bytes += 65536
        if state.behave == "drip":
            while not state.over.wait(0.05):
                handler.wfile.write(b"x")
        if status >= 400:
            handler.wfile.write(b"no <b>thanks</b>\nreally")
    except OSError:  # the other side has left
        state.over.set()
