"""PostgreSQL and Valkey from wheels: they start, keep their data over a kill, and are open to their owner only."""

import os
import signal
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from chatsite.operations import embedded
from chatsite.operations.embedded import EmbeddedServer, EmbeddedServerError, postgres, valkey
from chatsite.operations.processes import GuardedProcess
from tests.services import TEMPLATE
from tests.waiting import wait_until_sync

Start = Callable[[EmbeddedServer], GuardedProcess]


@pytest.fixture
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that PostgreSQL's own user can reach."""
    folder = tmp_path_factory.mktemp("state")
    for place in (folder, *folder.parents):
        if place.stat().st_uid == os.geteuid():
            place.chmod(place.stat().st_mode | stat.S_IXOTH)
    return folder


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    running: list[GuardedProcess] = []

    def start_server(server: EmbeddedServer) -> GuardedProcess:
        process = GuardedProcess(server.command, tmp_path / "server.log")
        running.append(process)
        wait_until_sync(server.answers, within=60)
        return process

    yield start_server
    for process in running:
        process.end()


def test_postgres_keeps_its_data_over_a_kill(state: Path, start: Start) -> None:
    server = postgres(state, template=TEMPLATE)
    process = start(server)
    url = server.environment["DATABASE_URL"]
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 'grüße' AS text")
    os.kill(postmaster(state), signal.SIGKILL)
    process.end()
    assert not server.answers()

    start(postgres(state))
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT text FROM kept").fetchone() == ("grüße",)
        assert connection.execute("SHOW server_encoding").fetchone() == ("UTF8",)
        assert connection.execute("SHOW timezone").fetchone() == ("UTC",)
        assert connection.execute("SHOW fsync").fetchone() == ("on",)


def test_a_statement_that_fails_leaves_no_text_in_the_log(state: Path, start: Start, tmp_path: Path) -> None:
    server = postgres(state, volatile=True, template=TEMPLATE)
    start(server)
    with psycopg.connect(server.environment["DATABASE_URL"], autocommit=True) as connection:
        connection.execute("CREATE TABLE notes (text text UNIQUE CHECK (text <> 'a secret'), value jsonb)")
        connection.execute("INSERT INTO notes VALUES ('one secret')")
        for statement, values in (
            ("INSERT INTO notes VALUES ('one secret')", None),
            ("INSERT INTO notes VALUES (%s)", ["one secret"]),
            ("INSERT INTO notes VALUES (%s)", ["a secret"]),
            ("INSERT INTO notes (value) VALUES (%s)", [r'{"secret": "\u0000"}']),
        ):
            with pytest.raises(psycopg.Error):
                connection.execute(statement, values)
    log = (tmp_path / "server.log").read_text()
    assert log.count("ERROR:") == 4
    assert "secret" not in log


def test_postgres_is_open_to_its_owner_only(state: Path, start: Start) -> None:
    start(postgres(state, volatile=True, template=TEMPLATE))
    socket = state / "postgres" / embedded.POSTGRES_SOCKET
    assert stat.S_IMODE(socket.stat().st_mode) == 0o700
    assert stat.S_IMODE((state / "postgres" / "data").stat().st_mode) == 0o700


def test_postgres_starts_although_its_lock_names_another_program(state: Path, start: Start) -> None:
    server = postgres(state, volatile=True, template=TEMPLATE)
    (state / "postgres" / "data" / "postmaster.pid").write_text(f"{os.getpid()}\n")
    start(postgres(state, volatile=True))
    assert server.answers()


def test_an_interrupted_making_of_the_cluster_leaves_nothing(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(binaries: Path, data: Path, user: str | None, *, sync: bool) -> None:
        data.mkdir()
        (data / "PG_VERSION").write_text("18")
        raise KeyboardInterrupt

    monkeypatch.setattr(embedded, "_initialise", interrupted)
    with pytest.raises(KeyboardInterrupt):
        postgres(state)
    assert list((state / "postgres").iterdir()) == []


def test_a_cluster_that_cannot_be_made_says_why(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "DATABASE", "pg_reserved")
    with pytest.raises(
        EmbeddedServerError, match=r"(?s)initdb failed \(1\):.*superuser name \"pg_reserved\" is disallowed"
    ):
        postgres(state)


def test_a_long_path_gets_its_socket_elsewhere(state: Path, start: Start) -> None:
    deep = state / ("deep" * 30)
    deep.mkdir()
    server = valkey(deep)
    start(server)
    assert str(deep) not in server.environment["REDIS_URL"]
    database = postgres(deep, volatile=True, template=TEMPLATE)
    start(database)
    assert str(deep) not in database.environment["DATABASE_URL"]


def test_valkey_keeps_its_data_over_a_kill(state: Path, start: Start) -> None:
    server = valkey(state)
    process = start(server)
    with redis.Redis.from_url(server.environment["REDIS_URL"]) as client:
        client.set("kept", "yes")
        wait_until_sync(lambda: client.info("persistence")["aof_pending_bio_fsync"] == 0)
        os.kill(client.info("server")["process_id"], signal.SIGKILL)
    process.end()
    start(valkey(state))
    with redis.Redis.from_url(server.environment["REDIS_URL"]) as client:
        assert client.get("kept") == b"yes"
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}


def test_valkey_is_open_to_its_owner_only(state: Path, start: Start) -> None:
    start(valkey(state))
    assert stat.S_IMODE((state / "valkey" / "valkey.sock").stat().st_mode) == 0o700
    assert stat.S_IMODE((state / "valkey").stat().st_mode) == 0o700


def test_where_postgres_own_user_cannot_go_root_keeps_the_state_elsewhere(
    state: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    system, home = state / "system", state / "home"
    system.mkdir(mode=0o755)
    home.mkdir(mode=0o700)
    monkeypatch.setattr(embedded, "SYSTEM_STATE", system)
    monkeypatch.setattr(embedded, "_open_to_all", lambda path: False)
    process = start(postgres(home, volatile=True, template=TEMPLATE))
    process.end()
    start(postgres(home, volatile=True))
    root = os.geteuid() == 0
    assert (home / "postgres").is_symlink() == root
    assert (home / "postgres").resolve().is_relative_to(system if root else home)
    assert len(list(system.iterdir())) == (2 if root else 0)  # the programs, and one state


def test_a_state_that_was_removed_is_made_again(state: Path, start: Start) -> None:
    (state / "postgres").symlink_to(state / "removed")
    start(postgres(state, volatile=True, template=TEMPLATE))


def postmaster(state: Path) -> int:
    return int((state / "postgres" / "data" / "postmaster.pid").read_text().split("\n")[0])
