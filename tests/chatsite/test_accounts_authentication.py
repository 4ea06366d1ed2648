"""Who is let in, by key and by session, on ASGI scopes and in API views."""

from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import pytest
from django.conf import settings as site_settings
from django.contrib.auth import login
from django.contrib.sessions.backends.cached_db import SessionStore
from django.db import connection
from django.http import HttpRequest
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import path
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from chatsite.accounts import authentication, keys
from chatsite.accounts.authentication import Authenticated, authenticate_scope
from chatsite.accounts.errors import KeyExpired
from chatsite.accounts.keys import Terms
from chatsite.accounts.models import Membership
from chatsite.accounts.protocol import COMMAND, KeyLimits
from chatsite.database import run_db
from chatsite.errors import NotAuthenticated
from chatsite.scopes import ALL, Scope
from tests.asgi_client import http_scope
from tests.conftest import PASSWORD, Person

pytestmark = pytest.mark.usefixtures("database")


class WhoAmI(APIView):
    required_scopes: ClassVar = {"GET": Scope.READ, "POST": Scope.CHAT}

    def get(self, request: Request) -> Response:
        return Response({"user": request.user.id, "organization": request.auth.organization_id})

    post = get
    put = get  # nobody has said what it needs, and there is no DELETE


urlpatterns = [path("v1/whoami", WhoAmI.as_view())]


@pytest.fixture(autouse=True)
def _own_routes(settings: Any) -> None:
    settings.ROOT_URLCONF = __name__


async def authenticate(**headers: str) -> Authenticated:
    return await authenticate_scope(http_scope("GET", "/", headers))


def sign_in(person: Person) -> str:
    request = HttpRequest()
    request.session = SessionStore()
    login(request, person.user, site_settings.AUTHENTICATION_BACKENDS[0])
    request.session.save()
    return f"a=b; sessionid={request.session.session_key}"


async def test_a_key_names_its_user_and_organization(person: Person) -> None:
    assert await authenticate(**person.headers) == Authenticated(person.principal, by_cookie=False)
    assert await authenticate(authorization=f"bearer  {person.secret} ") == Authenticated(
        person.principal, by_cookie=False
    )


async def test_a_session_acts_for_its_own_organization(person: Person) -> None:
    cookie = await run_db(sign_in, person)
    assert await authenticate(cookie=cookie) == Authenticated(person.session_principal, by_cookie=True)


async def test_websocket_scopes_are_authenticated_alike(person: Person) -> None:
    scope = {**http_scope("GET", "/", {"cookie": await run_db(sign_in, person)}), "type": "websocket"}
    assert (await authenticate_scope(scope)).principal == person.session_principal


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"cookie": "sessionid=unknown"},
        {"cookie": "a=b"},
        {"authorization": ""},
        {"authorization": "Basic YTpi"},
        {"authorization": "Bearer"},
        {"authorization": "Bearer sk-short"},
        {"authorization": "Bearer sk-" + "x" * 43},
        {"authorization": "Bearer sk-" + "\u00e9" * 43},
        {"authorization": "Bearer " + "x" * 100_000},
    ],
)
async def test_nobody_else_is_let_in(person: Person, headers: dict[str, str]) -> None:
    with pytest.raises(NotAuthenticated):
        await authenticate(**headers)


async def test_a_known_key_costs_no_query(person: Person) -> None:
    await authenticate(**person.headers)
    await run_db(Membership.objects.all().delete)  # would be refused if it were looked up again
    assert (await authenticate(**person.headers)).principal == person.principal


def test_a_new_key_costs_one_query_and_notes_its_use(person: Person) -> None:
    digest = keys.digest_of(person.secret)
    authentication._find_holder(digest)
    person.key.refresh_from_db()
    assert person.key.last_used_at is not None
    with CaptureQueriesContext(
        connection,
    ) as queries:
        authentication._find_holder(digest)
    assert len(queries) == 1


async def test_a_revoked_key_is_refused_at_once_here_and_soon_elsewhere(person: Person) -> None:
    await authenticate(**person.headers)
    await run_db(keys.revoke_api_key, person.key)
    with pytest.raises(NotAuthenticated):
        await authenticate(**person.headers)
    assert keys.known_keys.seconds <= 5  # how long another process may go on letting it in


async def test_a_disabled_user_is_refused_by_key_and_by_session(person: Person) -> None:
    cookie = await run_db(sign_in, person)
    person.user.is_active = False
    await run_db(person.user.save)
    for headers in (person.headers, {"cookie": cookie}):
        with pytest.raises(NotAuthenticated):
            await authenticate(**headers)


async def test_a_key_ends_with_the_membership(person: Person) -> None:
    await run_db(Membership.objects.filter(user=person.user).delete)
    with pytest.raises(NotAuthenticated):
        await authenticate(**person.headers)


async def test_a_changed_password_ends_the_sessions(person: Person) -> None:
    cookie = await run_db(sign_in, person)
    person.user.set_password("another good password")
    await run_db(person.user.save)
    with pytest.raises(NotAuthenticated):
        await authenticate(cookie=cookie)


def test_views_know_the_key_s_user(person: Person) -> None:
    expected = {"user": str(person.user.id), "organization": str(person.organization.id)}
    for _ in range(2):
        assert Client().get("/v1/whoami", headers=person.headers).json() == expected
    assert Client(enforce_csrf_checks=True).post("/v1/whoami", headers=person.headers).json() == expected


def test_views_know_the_session_s_user(person: Person) -> None:
    client = Client()
    assert client.login(email=person.user.email, password=PASSWORD)
    assert client.get("/v1/whoami").json()["user"] == str(person.user.id)


def test_views_protect_sessions_from_other_sites(person: Person) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(person.user)
    client.cookies["csrftoken"] = token = "x" * 32
    assert client.get("/v1/whoami").status_code == 200
    assert client.post("/v1/whoami").json()["code"] == "permission_denied"
    assert client.post("/v1/whoami", headers={"x-csrftoken": token}).status_code == 403
    both = {"x-csrftoken": token, "origin": "http://testserver"}
    assert client.post("/v1/whoami", headers={**both, "origin": "http://evil.example"}).status_code == 403
    assert client.post("/v1/whoami", headers=both).status_code == 200


@pytest.mark.parametrize("authorization", ["Bearer sk-wrong", "Bearer sk-" + "x" * 43])
def test_views_refuse_a_bad_key_even_with_a_session(person: Person, authorization: str) -> None:
    client = Client()
    client.force_login(person.user)
    answer = client.get("/v1/whoami", headers={"authorization": authorization})
    assert (answer.status_code, answer.json()["code"]) == (401, "not_authenticated")


def test_views_refuse_nobody_and_the_disabled(person: Person) -> None:
    assert Client().get("/v1/whoami").json()["code"] == "not_authenticated"
    client = Client()
    client.force_login(person.user)
    person.user.is_active = False
    person.user.save()
    assert client.get("/v1/whoami").status_code == 401
    assert client.get("/v1/whoami", headers=person.headers).status_code == 401


def test_the_use_of_a_key_is_noted_once_a_minute(person: Person) -> None:
    person.key.last_used_at = seen = timezone.now()
    person.key.save()
    authentication._find_holder(keys.digest_of(person.secret))
    person.key.refresh_from_db()
    assert person.key.last_used_at == seen


# Scopes, limits and the end of a key


async def test_a_key_s_caller_has_its_scopes_and_limits(person: Person) -> None:
    principal = (await authenticate(**person.headers)).principal
    assert (principal.scopes, principal.key_limits) == ({Scope.CHAT, Scope.READ}, None)
    keys.known_keys.clear()
    terms = Terms("test", (Scope.READ,), tokens_per_minute=500)
    await run_db(keys.change_api_key, person.user, person.key.id, terms, COMMAND)
    principal = (await authenticate(**person.headers)).principal
    assert (principal.scopes, principal.key_limits) == (
        {Scope.READ},
        KeyLimits(person.key.chain_id, "test", tokens_per_minute=500),
    )


async def test_changed_terms_count_at_once_here(person: Person) -> None:
    await authenticate(**person.headers)
    await run_db(keys.change_api_key, person.user, person.key.id, Terms("test", (Scope.READ,)), COMMAND)
    assert (await authenticate(**person.headers)).principal.scopes == {Scope.READ}


async def test_a_session_has_every_scope(person: Person) -> None:
    cookie = await run_db(sign_in, person)
    assert (await authenticate(cookie=cookie)).principal.scopes == ALL


async def test_an_expired_key_is_told_when_it_expired(person: Person) -> None:
    person.key.expires_at = datetime(2026, 1, 31, 14, 5, tzinfo=UTC)
    await run_db(person.key.save)
    with pytest.raises(KeyExpired, match=r"This API key expired at 2026-01-31 14:05 UTC\."):
        await authenticate(**person.headers)
    await run_db(person.key.refresh_from_db)
    assert person.key.last_used_at is None, "a refusal is no use"


async def test_a_known_key_ends_on_time(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long before what is remembered of it would be forgotten."""
    person.key.expires_at = timezone.now() + timedelta(hours=1)
    await run_db(person.key.save)
    await authenticate(**person.headers)
    monkeypatch.setattr(authentication.timezone, "now", lambda: person.key.expires_at)
    with pytest.raises(KeyExpired):
        await authenticate(**person.headers)
    assert keys.known_keys.get(keys.digest_of(person.secret)) is not None


def test_views_refuse_an_expired_key_in_words(person: Person) -> None:
    person.key.expires_at = timezone.now()
    person.key.save()
    for _ in range(2):
        answer = Client().get("/v1/whoami", headers=person.headers)
        assert (answer.status_code, answer.json()["code"]) == (401, "not_authenticated")
        assert "expired at" in answer.json()["detail"]


def test_views_refuse_a_key_without_the_scope(person: Person) -> None:
    person.key.scopes = ["read"]
    person.key.save()
    for method in ("get", "head", "options"):
        assert getattr(Client(), method)("/v1/whoami", headers=person.headers).status_code == 200
    answer = Client().post("/v1/whoami", headers=person.headers)
    assert (answer.status_code, answer.json()["code"]) == (403, "insufficient_scope")
    assert answer.json()["detail"] == "This needs the scope “chat”, which this API key does not have. It has read."


def test_a_method_that_says_no_scope_is_for_nobody(person: Person) -> None:
    assert Client().put("/v1/whoami", headers=person.headers).json()["code"] == "permission_denied"
    client = Client()
    assert client.login(email=person.user.email, password=PASSWORD)
    assert client.put("/v1/whoami").status_code == 403
    assert Client().delete("/v1/whoami", headers=person.headers).status_code == 405
