"""An unsafe installation does not start."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import connection, connections

from chatsite import checks
from chatsite.redis import sync_client

ROOT = Path(__file__).parent.parent.parent
SECRET = "kJ8" * 20
SAFE = {"CHATSITE_ENV": "production", "SECRET_KEY": SECRET, "ALLOWED_HOSTS": "chat.example.org"}


def ids(problems: list[Any]) -> set[str]:
    return {problem.id for problem in problems}


@pytest.fixture
def production(settings: Any) -> Any:
    """Settings that are safe but for the database, which a test may make so by `strict_database`."""
    settings.ENVIRONMENT, settings.PRODUCTION, settings.DEBUG = "production", True, False
    settings.SECRET_KEY, settings.ALLOWED_HOSTS = SECRET, ["chat.example.org"]
    settings.SITE_URL = "https://chat.example.org"
    settings.SESSION_COOKIE_SECURE = settings.CSRF_COOKIE_SECURE = True
    return settings


@pytest.fixture
def strict_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections["default"].settings_dict, "PASSWORD", "a password")
    monkeypatch.setattr(checks, "_accepts_any_password", lambda parameters: False)


def test_development_has_nothing_to_say() -> None:
    assert checks.check_installation() == []
    checks.refuse_unsafe_start()


def test_safe_production_starts(production: Any, strict_database: None) -> None:
    assert checks.check_installation() == []
    checks.refuse_unsafe_start()


@pytest.mark.parametrize(
    ("name", "value", "number"),
    [
        ("SECRET_KEY", "insecure-development-key-do-not-use-it-in-production", "chatsite.E001"),
        ("SECRET_KEY", "short", "chatsite.E001"),
        ("DEBUG", True, "chatsite.E002"),
        ("ALLOWED_HOSTS", [], "chatsite.E003"),
        ("ALLOWED_HOSTS", ["chat.example.org", "*"], "chatsite.E003"),
        ("ENVIRONMENT", "prod", "chatsite.E007"),
    ],
)
def test_each_unsafe_setting_stops_production(
    production: Any, strict_database: None, name: str, value: Any, number: str
) -> None:
    setattr(production, name, value)
    assert ids(checks.check_installation()) == {number}
    with pytest.raises(ImproperlyConfigured, match=number):
        checks.refuse_unsafe_start()


def test_a_mistyped_environment_stops_even_though_it_is_not_production(settings: Any) -> None:
    settings.ENVIRONMENT = "producton"
    with pytest.raises(ImproperlyConfigured, match=r"chatsite\.E007"):
        checks.refuse_unsafe_start()


def test_cookies_over_plain_http_are_a_warning_only(production: Any, strict_database: None) -> None:
    production.SESSION_COOKIE_SECURE = False
    assert ids(checks.check_installation()) == {"chatsite.W008"}
    checks.refuse_unsafe_start()


def test_a_database_without_a_password_stops_production(production: Any) -> None:
    with pytest.raises(ImproperlyConfigured, match=r"chatsite\.E004"):
        checks.refuse_unsafe_start()


def test_a_database_that_takes_any_password_stops_production(production: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        connections["default"].settings_dict, "PASSWORD", "a password"
    )  # the test server trusts everyone
    assert ids(checks.database_problems()) == {"chatsite.E005"}


def test_a_database_that_refuses_or_is_not_there_is_no_trusting_one() -> None:
    parameters = connection.get_connection_params()
    assert checks._accepts_any_password({**parameters, "dbname": "postgres"})
    assert not checks._accepts_any_password({**parameters, "host": "127.0.0.1", "port": 1})


def test_a_real_password_check_passes(production: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**parameters: Any) -> None:
        assert parameters["password"] != "a password"
        raise psycopg.OperationalError("password authentication failed")

    monkeypatch.setitem(connections["default"].settings_dict, "PASSWORD", "a password")
    monkeypatch.setattr(checks.psycopg, "connect", refuse)
    assert checks.database_problems() == []


def test_a_client_certificate_stands_for_a_password(production: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections["default"].settings_dict["OPTIONS"], "sslcert", "client.pem")
    assert checks.database_problems() == []


@pytest.fixture
def evicting_redis() -> Any:
    sync_client().config_set("maxmemory-policy", "allkeys-lru")
    yield
    sync_client().config_set("maxmemory-policy", "noeviction")


def test_an_evicting_redis_warns_in_development_and_stops_production(
    evicting_redis: None, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ids(checks.check_installation()) == {"chatsite.W006"}
    settings.PRODUCTION = True
    assert ids(checks.redis_problems()) == {"chatsite.E006"}


def test_a_redis_that_is_not_there_is_not_judged(settings: Any) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    assert checks.redis_problems() == []


def test_the_check_command_runs_them(production: Any, strict_database: None) -> None:
    production.DEBUG = True
    with pytest.raises(SystemCheckError, match=r"chatsite\.E002"):
        call_command("check", tags=[checks.TAG])


@pytest.mark.parametrize(
    ("change", "number"),
    [
        ({"SECRET_KEY": None}, "chatsite.E001"),
        ({"DEBUG": "on"}, "chatsite.E002"),
        ({"ALLOWED_HOSTS": "*"}, "chatsite.E003"),
        ({}, "chatsite.E004"),
    ],
)
def test_every_process_stops_as_it_starts(change: dict[str, str | None], number: str) -> None:
    environment = {**os.environ, **SAFE, "DJANGO_SETTINGS_MODULE": "chatsite.settings", **change}
    environment = {name: value for name, value in environment.items() if value is not None}
    started = subprocess.run(
        [sys.executable, "-c", "import django; django.setup(); print('serving')"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert started.returncode != 0
    assert "serving" not in started.stdout
    assert number in started.stderr


def test_a_process_of_a_safe_installation_starts() -> None:
    url = f"postgresql://ada:pw@127.0.0.1:1/{quote('x')}"  # not there yet, as when everything starts at once
    started = subprocess.run(
        [sys.executable, "-c", "import django; django.setup(); print('serving')"],
        cwd=ROOT,
        env={**os.environ, **SAFE, "DATABASE_URL": url},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (started.stdout.strip(), started.returncode) == ("serving", 0), started.stderr


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ({"OIDC_ISSUER": "https://login.example.org", "OIDC_CLIENT_ID": "a", "OIDC_CLIENT_SECRET": "b"}, set()),
        ({"OIDC_ISSUER": "http://login.example.org", "OIDC_CLIENT_ID": "a", "OIDC_CLIENT_SECRET": "b"}, set()),
        ({"OIDC_ISSUER": "https://login.example.org", "OIDC_CLIENT_ID": "a"}, {"chatsite.E009"}),
        ({"OIDC_ISSUER": "https://login.example.org", "OIDC_CLIENT_SECRET": "b"}, {"chatsite.E009"}),
        ({"OIDC_ISSUER": "login.example.org"}, {"chatsite.E009", "chatsite.E010"}),
        ({"OIDC_ISSUER": "file:///etc", "OIDC_CLIENT_ID": "a", "OIDC_CLIENT_SECRET": "b"}, {"chatsite.E010"}),
        ({"TRUSTED_PROXIES": -1}, {"chatsite.E012"}),
    ],
)
def test_accounts_are_checked_everywhere(settings: Any, values: dict[str, Any], found: set[str]) -> None:
    for name, value in values.items():
        setattr(settings, name, value)
    assert ids(checks.check_installation()) == found
    if found:
        with pytest.raises(ImproperlyConfigured):
            checks.refuse_unsafe_start()


def test_production_wants_https_to_the_provider_and_a_mail_server(production: Any, strict_database: None) -> None:
    production.OIDC_ISSUER, production.OIDC_CLIENT_ID, production.OIDC_CLIENT_SECRET = "http://a.example", "a", "b"
    production.EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"
    assert ids(checks.check_installation()) == {"chatsite.E010", "chatsite.W011"}


def test_a_site_without_an_address_of_its_own_is_warned_of(production: Any, strict_database: None) -> None:
    production.SITE_URL = ""
    assert ids(checks.check_installation()) == {"chatsite.W013"}
    checks.refuse_unsafe_start()


SMTP = "django.core.mail.backends.smtp.EmailBackend"


def test_production_that_sends_mails_has_an_address(production: Any, strict_database: None) -> None:
    production.SITE_URL, production.EMAIL_BACKEND = "", SMTP
    assert ids(checks.check_installation()) == {"chatsite.E015"}
    with pytest.raises(ImproperlyConfigured, match=r"SITE_URL is missing[^\n]* not sent.\n\tHINT: Set SITE_URL"):
        checks.refuse_unsafe_start()
    production.SITE_URL = "https://chat.example.org"
    assert checks.check_installation() == []


def test_for_trying_out_it_is_a_warning(settings: Any) -> None:
    settings.SITE_URL, settings.EMAIL_BACKEND = "", SMTP
    assert ids(checks.check_installation()) == {"chatsite.W013"}
    checks.refuse_unsafe_start()
    for kept in ("console", "filebased", "locmem", "dummy"):
        settings.EMAIL_BACKEND = f"django.core.mail.backends.{kept}.EmailBackend"
        assert checks.check_installation() == []


@pytest.mark.parametrize(
    "address", ["chat.example.org", "http://chat.example.org", "https://", "https://chat.example.org/chat", "x"]
)
def test_what_is_no_address_of_a_site(production: Any, strict_database: None, address: str) -> None:
    production.SITE_URL = address
    assert ids(checks.check_installation()) == {"chatsite.E014"}
    with pytest.raises(ImproperlyConfigured, match="SITE_URL"):
        checks.refuse_unsafe_start()
    production.PRODUCTION = False
    assert bool(checks.address_problems()) == (address != "http://chat.example.org")
