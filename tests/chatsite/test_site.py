"""The site on one machine: what it refuses, what it tells its processes."""

import os
import socket
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from chatsite.operations import site as site_module
from chatsite.operations.site import CannotStartError, Site, SiteOptions

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def options(tmp_path: Path) -> SiteOptions:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return SiteOptions(ROOT, tmp_path, "127.0.0.1", port, [])


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8000"),
        ("0.0.0.0", "http://127.0.0.1:8000"),
        ("::1", "http://[::1]:8000"),
        ("::", "http://[::1]:8000"),
        ("chat.example", "http://chat.example:8000"),
    ],
)
def test_the_address_that_is_told(options: SiteOptions, host: str, url: str) -> None:
    assert replace(options, host=host, port=8000).url == url


def test_the_secret_key_is_made_once_for_its_owner_only(tmp_path: Path) -> None:
    key = site_module._secret_key(tmp_path)
    assert len(key) >= 50
    assert stat.S_IMODE((tmp_path / "secret_key").stat().st_mode) == 0o600
    assert site_module._secret_key(tmp_path) == key


async def test_a_port_that_is_taken(
    options: SiteOptions, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_module, "TAKEN_SECONDS", 0.1)
    with socket.socket() as other:
        other.bind((options.host, options.port))
        other.listen()
        assert await Site(options).run() == 1
    assert f"port {options.port} of 127.0.0.1 is taken by another program" in capsys.readouterr().out


async def test_an_address_that_is_not_this_machines(options: SiteOptions, capsys: pytest.CaptureFixture[str]) -> None:
    assert "cannot listen on port" in site_module._bind_problem("192.0.2.1", options.port)


def test_one_supervisor_a_state_folder(tmp_path: Path) -> None:
    held = site_module._lock_state(tmp_path)
    with pytest.raises(CannotStartError, match=f"runs already, as process {os.getpid()}"):
        site_module._lock_state(tmp_path)
    held.close()
    site_module._lock_state(tmp_path).close()


def test_hosts_are_allowed_by_where_it_listens(options: SiteOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ALLOWED_HOSTS", raising=False)
    assert "ALLOWED_HOSTS" not in site_module._environment(options)
    assert "chat.example" in site_module._environment(replace(options, host="chat.example"))["ALLOWED_HOSTS"].split(",")
    everywhere = site_module._environment(replace(options, host="0.0.0.0"))["ALLOWED_HOSTS"].split(",")
    assert socket.gethostname() in everywhere
    assert "0.0.0.0" not in everywhere
    monkeypatch.setenv("ALLOWED_HOSTS", "chat.example")
    assert "ALLOWED_HOSTS" not in site_module._environment(replace(options, host="0.0.0.0"))


@pytest.mark.parametrize("server", ["daphne", "uvicorn"])
def test_the_web_server(options: SiteOptions, server: str) -> None:
    arguments = site_module._web_arguments(replace(options, asgi_server=server, port=8001))
    assert arguments[:2] == ["-m", server]
    assert "--port=8001" in arguments
    assert arguments[-1] == "chatsite.asgi:application"


@pytest.mark.parametrize(
    ("host", "given", "url"),
    [
        ("127.0.0.1", {}, "http://127.0.0.1:8000"),
        ("::1", {}, "http://[::1]:8000"),
        ("0.0.0.0", {}, None),  # people know it by another address
        ("127.0.0.1", {"ALLOWED_HOSTS": "chat.example"}, None),  # as above, behind a proxy
        ("127.0.0.1", {"SITE_URL": "https://chat.example"}, None),  # which the processes have from the environment
    ],
)
def test_the_address_in_mails_is_where_it_listens(
    options: SiteOptions, monkeypatch: pytest.MonkeyPatch, host: str, given: dict[str, str], url: str | None
) -> None:
    for name in ("SITE_URL", "ALLOWED_HOSTS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert site_module._environment(replace(options, host=host, port=8000)).get("SITE_URL") == url


@pytest.mark.parametrize(
    ("host", "backend", "said"),
    [
        ("0.0.0.0", "smtp", True),
        ("127.0.0.1", "smtp", False),
        ("0.0.0.0", "console", False),
        ("127.0.0.1", "console", False),
    ],
)
def test_where_mails_would_have_no_address_to_link_to_it_is_said_at_the_start(
    monkeypatch: pytest.MonkeyPatch,
    settings: Any,
    capsys: pytest.CaptureFixture[str],
    host: str,
    backend: str,
    said: bool,
) -> None:
    async def run(site: Site) -> int:
        return 0

    for name in ("SITE_URL", "ALLOWED_HOSTS", "PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOST", host)
    monkeypatch.setattr(Site, "run", run)
    settings.EMAIL_BACKEND = f"django.core.mail.backends.{backend}.EmailBackend"
    with pytest.raises(SystemExit):
        call_command("up")
    assert ("SITE_URL is missing" in capsys.readouterr().err) == said
