"""System checks, numbered; in production an error stops every process before it serves.

| id | what |
|---|---|
| chatsite.E001 | SECRET_KEY is the default, or short |
| chatsite.E002 | DEBUG is on |
| chatsite.E003 | ALLOWED_HOSTS is empty or allows every host |
| chatsite.E004 | the database account has no password |
| chatsite.E005 | the database lets that account in with any password (trust authentication) |
| chatsite.E006 | Redis may evict what the scheduler keeps in it (W006 in development) |
| chatsite.E007 | CHATSITE_ENV is not a known kind of installation |
| chatsite.W008 | cookies are sent over plain HTTP |
| chatsite.E009 | OIDC_ISSUER is set, but not OIDC_CLIENT_ID or OIDC_CLIENT_SECRET |
| chatsite.E010 | OIDC_ISSUER is not an address, or in production not HTTPS |
| chatsite.W011 | mails are printed instead of sent |
| chatsite.E012 | TRUSTED_PROXIES is negative |
| chatsite.W013 | SITE_URL is missing: mails with links are printed, with the host and port of a request, or not sent |
| chatsite.E014 | SITE_URL is not the address of a site, or in production not HTTPS while cookies are |
| chatsite.E015 | in production SITE_URL is missing, and mails are sent |
"""

import secrets
from collections.abc import Sequence
from typing import Any, cast
from urllib.parse import urlsplit

import psycopg
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from redis import Redis
from redis.exceptions import RedisError

from chatsite import mailing

TAG = "chatsite"
ENVIRONMENTS = ("development", "production")
MINIMUM_SECRET_LENGTH = 32
CONNECT_SECONDS = 2
NO_LINKS = "SITE_URL is missing, so mails with links, as sign-up and password resets need them, are not sent."
SET_SITE_URL = "Set SITE_URL to the site's address, such as https://chat.example.org."


@register(TAG)
def check_installation(app_configs: Sequence[Any] | None = None, **_: Any) -> list[CheckMessage]:
    """Every check of this table that applies here."""
    return [
        *environment_problems(),
        *settings_problems(),
        *account_problems(),
        *database_problems(),
        *redis_problems(),
    ]


def refuse_unsafe_start() -> None:
    """Raises ImproperlyConfigured when this process must not serve. Called as the apps load: servers run no checks."""
    problems = environment_problems() + account_problems()
    if settings.PRODUCTION:
        problems += [*settings_problems(), *database_problems(), *redis_problems()]
    errors = [problem for problem in problems if isinstance(problem, Error)]
    if errors:
        raise ImproperlyConfigured("\n".join(["This installation is not safe to start:", *map(str, errors)]))


def environment_problems() -> list[CheckMessage]:
    if settings.ENVIRONMENT in ENVIRONMENTS:
        return []
    hint = f"Use one of: {', '.join(ENVIRONMENTS)}."
    return [Error(f"CHATSITE_ENV is {settings.ENVIRONMENT!r}.", hint=hint, id="chatsite.E007")]


def settings_problems() -> list[CheckMessage]:
    if not settings.PRODUCTION:
        return []
    problems: list[CheckMessage] = []
    if settings.SECRET_KEY == settings.INSECURE_SECRET_KEY or len(settings.SECRET_KEY) < MINIMUM_SECRET_LENGTH:
        hint = "Set SECRET_KEY to a random text, such as the output of `openssl rand -base64 48`."
        problems.append(Error("SECRET_KEY is the default or too short.", hint=hint, id="chatsite.E001"))
    if settings.DEBUG:
        problems.append(
            Error("DEBUG is on: errors would show source and settings.", hint="Unset DEBUG.", id="chatsite.E002")
        )
    if not settings.ALLOWED_HOSTS or any(host.strip() in {"*", ".", ""} for host in settings.ALLOWED_HOSTS):
        hint = "Name the hosts that this site answers to, separated by commas."
        problems.append(Error("ALLOWED_HOSTS is empty or allows every host.", hint=hint, id="chatsite.E003"))
    if not (settings.SESSION_COOKIE_SECURE and settings.CSRF_COOKIE_SECURE):
        hint = "Serve the site over HTTPS and leave SECURE_COOKIES on."
        problems.append(Warning("Session and CSRF cookies are sent over plain HTTP.", hint=hint, id="chatsite.W008"))
    return problems


def address_problems() -> list[CheckMessage]:
    """Of the site's own address, which is in mails."""
    if not settings.SITE_URL:
        return _without_an_address()
    address = urlsplit(settings.SITE_URL)
    schemes = {"https"} if settings.PRODUCTION and settings.SESSION_COOKIE_SECURE else {"http", "https"}
    if address.scheme in schemes and address.hostname and not (address.path or address.query or address.fragment):
        return []
    hint = "Give the scheme, the host and, if need be, the port, such as https://chat.example.org."
    return [Error(f"SITE_URL is {settings.SITE_URL!r}.", hint=hint, id="chatsite.E014")]


def _without_an_address() -> list[CheckMessage]:
    if not mailing.is_sent():
        missing = Warning("SITE_URL is missing.", hint=SET_SITE_URL, id="chatsite.W013")
        return [missing] if settings.PRODUCTION else []
    kind, number = (Error, "chatsite.E015") if settings.PRODUCTION else (Warning, "chatsite.W013")
    return [kind(NO_LINKS, hint=SET_SITE_URL, id=number)]


def account_problems() -> list[CheckMessage]:
    """What would shut people out, or let them in by a way that others can read."""
    problems = address_problems()
    if settings.OIDC_ISSUER:
        if not (settings.OIDC_CLIENT_ID and settings.OIDC_CLIENT_SECRET):
            hint = "Set both to what the identity provider gave you for this site."
            problems.append(Error("OIDC_CLIENT_ID or OIDC_CLIENT_SECRET is missing.", hint=hint, id="chatsite.E009"))
        address = urlsplit(settings.OIDC_ISSUER)
        if not address.hostname or address.scheme not in ({"https"} if settings.PRODUCTION else {"http", "https"}):
            hint = "Give the whole address, such as https://login.example.org/realms/main."
            problems.append(Error(f"OIDC_ISSUER is {settings.OIDC_ISSUER!r}.", hint=hint, id="chatsite.E010"))
    if settings.TRUSTED_PROXIES < 0:
        hint = "Say how many proxies of yours are in front of the site; 0 for none."
        problems.append(Error("TRUSTED_PROXIES is negative.", hint=hint, id="chatsite.E012"))
    if settings.PRODUCTION and settings.EMAIL_BACKEND == mailing.PRINTED:
        hint = "Set EMAIL_URL; until then, links that let people in are in the logs."
        problems.append(Warning("Mails are printed instead of sent.", hint=hint, id="chatsite.W011"))
    return problems


def database_problems() -> list[CheckMessage]:
    """No password, or any password: either lets in whoever reaches the port."""
    if not settings.PRODUCTION:
        return []
    database = connections["default"].settings_dict
    options = database["OPTIONS"]
    if not database["PASSWORD"] and not any(options.get(name) for name in ("passfile", "service", "sslcert")):
        hint = "Put the password into DATABASE_URL."
        return [Error("The database account has no password.", hint=hint, id="chatsite.E004")]
    if not options.get("sslcert") and _accepts_any_password(connections["default"].get_connection_params()):
        hint = "Let pg_hba.conf ask for scram-sha-256 instead of trust."
        return [Error("The database lets this account in with any password.", hint=hint, id="chatsite.E005")]
    return []


def _accepts_any_password(parameters: dict[str, Any]) -> bool:
    """Tries a random password. False when the server refuses it, and when it is not there to be asked."""
    attempt = {**parameters, "password": secrets.token_urlsafe(24), "connect_timeout": CONNECT_SECONDS}
    try:
        psycopg.connect(**attempt).close()
    except psycopg.OperationalError:
        return False
    return True


def redis_problems() -> list[CheckMessage]:
    """Queues and reservations must not be evicted like a cache. Silent when Redis cannot be asked."""
    client = Redis.from_url(settings.REDIS_URL, socket_timeout=CONNECT_SECONDS, socket_connect_timeout=CONNECT_SECONDS)
    try:
        memory = cast(dict[str, Any], client.info("memory"))
    except RedisError:
        return []
    finally:
        client.close()
    policy = memory.get("maxmemory_policy", "noeviction")
    if policy == "noeviction":
        return []
    kind, number = (Error, "chatsite.E006") if settings.PRODUCTION else (Warning, "chatsite.W006")
    hint = "Set maxmemory-policy to noeviction, and give caches a server of their own in CACHE_URL."
    return [kind(f"Redis evicts keys under memory pressure (maxmemory-policy {policy}).", hint=hint, id=number)]
