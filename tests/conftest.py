"""Fixtures for every test: a clean Redis, a seeded database, people with keys.

Tests whose code reaches the database from other threads (everything behind `run_db`) take `database`, or mark
themselves `django_db(transaction=True)`; others use `db`.
"""

import importlib
import os
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from django.apps import apps

from chatsite import scopes
from chatsite.accounts import services as account_services
from chatsite.accounts import sessions as account_sessions
from chatsite.accounts.models import ApiKey, Organization, User
from chatsite.accounts.protocol import Principal
from chatsite.accounts.selectors import principal_of
from chatsite.redis import close_async_client, sync_client
from inference import keeping
from inference import selectors as inference_selectors
from inference.completions import crowd
from quotas import prices as quota_prices
from quotas import selectors as quota_selectors
from quotas.models import Plan
from quotas.services import subscribe
from tests import database as test_database
from tests import tuning

test_database.install()

PASSWORD = "correct horse battery staple"
FAST_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
SEEDS = [
    importlib.import_module(f"quotas.migrations.{name}").seed
    for name in ("0002_plans", "0005_requests_per_minute", "0007_plan_caps")
]


@dataclass(frozen=True)
class Person:
    """Somebody with an organization of their own and an API key."""

    user: User
    organization: Organization
    key: ApiKey
    secret: str

    @property
    def principal(self) -> Principal:
        """As the owner of the key."""
        return principal_of(self.key)

    @property
    def session_principal(self) -> Principal:
        """As somebody in a browser."""
        return Principal(self.user.id, self.organization.id, scopes=scopes.ALL)

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.secret}"}


@pytest.fixture(scope="session")
def django_db_keepdb(request: pytest.FixtureRequest) -> bool:
    """A server of the run's own goes away as a whole, with the connections that threads still have."""
    return "TEST_DATABASE_URL" not in os.environ or bool(request.config.getvalue("reuse_db"))


@pytest.fixture(autouse=True)
def _quick_passwords(settings: Any) -> None:
    settings.PASSWORD_HASHERS = FAST_HASHERS


@pytest.fixture(autouse=True)
def _static_files_as_they_are_asked_for(settings: Any) -> None:
    """Else each new test client reads the list of all of them, which takes a third of a second."""
    settings.WHITENOISE_AUTOREFRESH = True


@pytest.fixture(autouse=True)
def _fresh_caches() -> Iterator[None]:
    """What the process remembers for seconds must not outlive a test."""
    yield
    tuning.forget()
    account_services.known_keys.clear()
    account_sessions.seen_lately.clear()
    quota_selectors.known_plans.clear()
    quota_prices.known_prices.clear()
    inference_selectors.known_models.clear()
    keeping.known_days.clear()
    crowd.known_refused.clear()
    crowd.known_crowds.clear()


@pytest.fixture(autouse=True)
def _clean_redis() -> None:
    """The test run has a server of its own (tests.services)."""
    sync_client().flushdb()


@pytest_asyncio.fixture(autouse=True)
async def _closed_redis_client() -> AsyncIterator[None]:
    """Each test has its own event loop, and so its own client."""
    yield
    await close_async_client()


@pytest.fixture(autouse=True)
def _plans_are_there(request: pytest.FixtureRequest) -> None:
    """A transactional test empties every table at its end, the plans that a migration has seeded included."""
    uses_database = request.node.get_closest_marker("django_db") or {"db", "transactional_db"} & set(
        request.fixturenames
    )
    if uses_database:
        request.getfixturevalue("db")
        if not Plan.objects.exists():
            for seed in SEEDS:
                seed(apps, None)


@pytest.fixture
def database(transactional_db: None) -> None:
    """The database, as other threads see it too."""


@pytest.fixture
def make_person(db: None) -> Callable[..., Person]:
    """`make_person("ada@example.com", plan="demo")`. Passwords are PASSWORD."""

    def make(email: str, *, plan: str | None = "demo", superuser: bool = False) -> Person:
        user = account_services.create_user(email, PASSWORD, superuser=superuser)
        organization = account_services.personal_organization(user)
        if plan is not None:
            subscribe(organization.id, plan)
        key, secret = account_services.create_api_key(user, organization, "test")
        return Person(user, organization, key, secret)

    return make


@pytest.fixture
def person(make_person: Callable[..., Person]) -> Person:
    """The one who calls."""
    return make_person("ada@example.com")


@pytest.fixture
def stranger(make_person: Callable[..., Person]) -> Person:
    """Somebody else, with everything of their own."""
    return make_person("eve@example.com")
