"""The whole site on one machine: what runs, in which order it starts and ends. `manage.py up` runs it."""

import asyncio
import errno
import fcntl
import os
import secrets
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

from chatsite.operations.embedded import EmbeddedServer, EmbeddedServerError, postgres, valkey
from chatsite.operations.engines import (
    LOOPBACK,
    Engine,
    NoFreePortError,
    needs_bundled_model,
    plan_engines,
    set_up_is_complete,
)
from chatsite.operations.output import Output
from chatsite.operations.processes import Command
from chatsite.operations.supervisor import Service, Supervisor
from inference.catalog import ModelSpec

START_SECONDS = 60.0  # for the stores, and for the web server
TAKEN_SECONDS = 3.0  # a port may still be held by what an earlier start leaves behind
ENGINE_RETRY_SECONDS = 60.0
MAX_MESSAGE = 2 * 1024 * 1024  # bytes of a WebSocket message that a server buffers; the page's own limit is lower
SECOND_SIGNAL_AFTER = 1.0  # seconds; `make` forwards the signal that it got too, and that is no impatience
# The order of the end: no new requests, then hand over and finish what runs, then what that needed. With what a guard
# takes to leave nothing behind, all of it stays under 10 s on a busy machine.
WEB, WORKERS, ENGINES, STORES = range(4)
WEB_SECONDS, WORKER_SECONDS, ENGINE_SECONDS, STORE_SECONDS = 1.0, 3.5, 1.0, 1.5


class CannotStartError(RuntimeError):
    """The site cannot be started; the message says why and what to do."""


@dataclass(frozen=True)
class SiteOptions:
    """`state`: the folder of all that is kept; `follow_parent`: end with the process that started this one."""

    root: Path
    state: Path
    host: str
    port: int
    models: list[ModelSpec]
    asgi_server: str = "daphne"
    follow_parent: bool = False

    @property
    def url(self) -> str:
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"


class Site:
    """Starts everything, then waits for a signal and ends everything."""

    def __init__(self, options: SiteOptions) -> None:
        self.options = options
        self.supervisor = Supervisor(Output())
        self.environment = _environment(options)
        self._parent = os.getppid()
        self._stopping_since = 0.0

    async def run(self) -> int:
        """Returns the exit status: 0 after a signal, 1 where the site cannot start."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal)
        stopping = asyncio.create_task(self.supervisor.stopping.wait())
        starting = asyncio.create_task(self._start())
        following = asyncio.create_task(self._follow_parent())
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        failure = starting.exception() if starting.done() else None
        if failure is None:
            await stopping
        elif isinstance(failure, CannotStartError | EmbeddedServerError | NoFreePortError):
            self.supervisor.say(str(failure))
        starting.cancel()
        following.cancel()
        self.supervisor.say("stopping")
        await self.supervisor.stop()
        self.supervisor.say("stopped")
        await asyncio.to_thread(self.supervisor.output.close)
        if failure and not isinstance(failure, CannotStartError | EmbeddedServerError | NoFreePortError):
            raise failure
        return 1 if failure else 0

    def _on_signal(self) -> None:
        now = asyncio.get_running_loop().time()
        if not self.supervisor.stopping.is_set():
            self._stopping_since = now
            self.supervisor.stopping.set()
        elif now - self._stopping_since > SECOND_SIGNAL_AFTER:
            self.supervisor.hurry.set()

    async def _follow_parent(self) -> None:
        while self.options.follow_parent:
            if os.getppid() != self._parent:
                self.supervisor.say("the process that started this one is gone")
                self.supervisor.stopping.set()
                return
            await asyncio.sleep(1)

    async def _start(self) -> None:
        options = self.options
        (options.state / "static").mkdir(parents=True, exist_ok=True)
        self._lock = _lock_state(options.state)
        engines = await asyncio.to_thread(plan_engines, options.models)
        await self._wait_for_port()
        self.environment["SECRET_KEY"] = os.environ.get("SECRET_KEY") or _secret_key(options.state)
        await self._start_stores()
        await self._prepare(engines)
        for service in self._services():
            self.supervisor.start(service)
        await self._announce(engines)
        await self._start_engines(engines)

    async def _start_stores(self) -> None:
        servers: list[EmbeddedServer] = []
        for variable, make in (("DATABASE_URL", postgres), ("REDIS_URL", valkey)):
            if os.environ.get(variable):
                continue
            server = await asyncio.to_thread(make, self.options.state)
            servers.append(server)
            self.environment |= {key: url for key, url in server.environment.items() if not os.environ.get(key)}
            self.supervisor.start(Service(server.name, server.command, STORES, STORE_SECONDS))
        for server in servers:
            if not await self._until(server.answers):
                raise CannotStartError(
                    f"{server.name} does not answer after {START_SECONDS:.0f} s; see its output above"
                )

    async def _until(self, check: Callable[[], bool]) -> bool:
        clock = asyncio.get_running_loop().time
        deadline = clock() + START_SECONDS
        while clock() < deadline:
            if await asyncio.to_thread(check):
                return True
            await asyncio.sleep(0.05)
        return False

    async def _prepare(self, engines: list[Engine]) -> None:
        replicas = [f"--replica={engine.model.name}={engine.url}" for engine in engines]
        prepare = self._python("manage.py", "prepare", f"--url={self.options.url}", *replicas)
        if await self.supervisor.run("prepare", prepare):
            raise CannotStartError("the database could not be prepared; see the output above")

    def _python(self, *arguments: str, **changes: Any) -> Command:
        return Command([sys.executable, *arguments], self.environment, self.options.root, **changes)

    def _services(self) -> list[Service]:
        schedule = f"--schedule={self.options.state / 'celerybeat-schedule'}"
        celery = ["-m", "celery", "--app=chatsite", "--quiet"]
        quiet = ["-W", "ignore:You're running the worker with superuser privileges"]
        pool = ["--concurrency=2", "--without-gossip", "--without-mingle", "--without-heartbeat"]
        return [
            Service("web", self._python(*_web_arguments(self.options)), WEB, WEB_SECONDS),
            Service("runner", self._python("manage.py", "runinference"), WORKERS, WORKER_SECONDS),
            Service("worker", self._python(*quiet, *celery, "worker", *pool), WORKERS, WORKER_SECONDS),
            Service("beat", self._python(*celery, "beat", "--pidfile=", schedule), WEB, WEB_SECONDS),
        ]

    async def _announce(self, engines: list[Engine]) -> None:
        address = (self.options.host, self.options.port)
        if not await self._until(lambda: _accepts(address)):
            self.supervisor.say(f"web has not answered within {START_SECONDS:.0f} s; see its output above")
            return
        secrets_file = self.options.state / "demo.env"
        self.supervisor.say(f"The site is up: {self.options.url}/")
        self.supervisor.say(f"Log in with the address, the password and the API key in {secrets_file} (CHATSITE_...)")
        if engines:
            self.supervisor.say("The model is loading; the site says when it is ready")

    async def _start_engines(self, engines: list[Engine]) -> None:
        options = [] if needs_bundled_model(engines) else ["--no-model"]
        install = self._python("-m", "chatsite.operations.engine_setup", *options)
        while not await asyncio.to_thread(set_up_is_complete, engines):
            if await self.supervisor.run("engine", install):
                self.supervisor.say(f"trying again in {ENGINE_RETRY_SECONDS:.0f} s", "engine")
                await self.supervisor.pause(ENGINE_RETRY_SECONDS)
        for engine in engines:
            command = replace(engine.command, cwd=self.options.root)
            self.supervisor.start(Service(engine.name, command, ENGINES, ENGINE_SECONDS))
        await asyncio.gather(*map(self._announce_engine, engines))

    async def _announce_engine(self, engine: Engine) -> None:
        clock = asyncio.get_running_loop().time
        started = clock()
        while not await asyncio.to_thread(_accepts, (LOOPBACK, engine.port)):
            await asyncio.sleep(0.5)
        self.supervisor.say(
            f"{engine.model.name} is loaded, after {clock() - started:.0f} s: {engine.url}", engine.name
        )

    async def _wait_for_port(self) -> None:
        clock = asyncio.get_running_loop().time
        deadline = clock() + TAKEN_SECONDS
        while problem := _bind_problem(self.options.host, self.options.port):
            if clock() > deadline:
                raise CannotStartError(problem)
            await asyncio.sleep(0.2)


def _environment(options: SiteOptions) -> dict[str, str]:
    """What every process of the site is told, but for the stores' addresses."""
    environment = {"CHATSITE_STATE": str(options.state), "PYTHONUNBUFFERED": "1"}
    if sys.stdout.isatty():
        environment["LOG_FORMAT"] = os.environ.get("LOG_FORMAT", "console")  # a person reads along
    known_elsewhere = os.environ.get("SITE_URL") or os.environ.get("ALLOWED_HOSTS")
    if not known_elsewhere and options.host not in ("0.0.0.0", "::"):
        environment["SITE_URL"] = options.url
    if not os.environ.get("ALLOWED_HOSTS") and options.host not in ("127.0.0.1", "localhost", "::1"):
        own = [] if options.host in ("0.0.0.0", "::") else [options.host]
        environment["ALLOWED_HOSTS"] = ",".join(["localhost", "127.0.0.1", "[::1]", socket.gethostname(), *own])
    return environment


def _web_arguments(options: SiteOptions) -> list[str]:
    application = "chatsite.asgi:application"
    if options.asgi_server == "uvicorn":
        limits = ["--timeout-graceful-shutdown=1", "--ws-ping-interval=15", "--no-access-log", "--log-level=warning"]
        limits.append(f"--ws-max-size={MAX_MESSAGE}")
        return ["-m", "uvicorn", f"--host={options.host}", f"--port={options.port}", *limits, application]
    limits = ["--ping-interval=15", "--verbosity=0", "--no-server-name", f"--websocket-max-message-size={MAX_MESSAGE}"]
    return ["-m", "daphne", f"--bind={options.host}", f"--port={options.port}", *limits, application]


def _lock_state(state: Path) -> TextIO:
    """One supervisor a state folder; the kernel frees the lock however this process ends."""
    lock = (state / "up.lock").open("a+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        raise CannotStartError(
            f"it runs already, as process {lock.read().strip()}, with the state in {state}"
        ) from None
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    return lock


def _secret_key(state: Path) -> str:
    """This installation's own key, made once, readable by its owner only."""
    file = state / "secret_key"
    if not file.exists():
        fresh = file.with_name(f".secret_key-{os.getpid()}")
        fresh.touch(mode=0o600)
        fresh.write_text(secrets.token_urlsafe(48))
        fresh.replace(file)
    return file.read_text().strip()


def _bind_problem(host: str, port: int) -> str:
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[
            0
        ]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return (
                f"port {port} of {host} is taken by another program; choose another, such as PORT={port + 1} make run"
            )
        return f"cannot listen on port {port} of {host}: {error.strerror or error}"
    return ""


def _accepts(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, timeout=1).close()
    except OSError:
        return False
    return True
