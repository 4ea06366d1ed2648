"""Signing in through the organisation's identity provider, a real one in small."""

import re
import urllib.request
from collections.abc import Iterator
from html import unescape
from typing import Any
from urllib.error import HTTPError

import pytest
from allauth.account.models import EmailAddress
from allauth.socialaccount.models import SocialAccount, SocialToken
from django.core import mail
from django.test import Client

from chatsite.accounts import services
from chatsite.accounts.models import User
from chatsite.accounts.selectors import personal_organization
from tests.chatsite.entering import NEW_PASSWORD, RESET, is_in, last_link, sign_in, sign_up, text_of
from tests.conftest import PASSWORD, Person
from tests.fakes.oidc import CLIENT_ID, CLIENT_SECRET, OidcProvider, oidc_provider

pytestmark = pytest.mark.django_db(transaction=True)
EMAIL = "ada@corp.example"
ENTER = "/accounts/oidc/oidc/login/"


@pytest.fixture(scope="module")
def _running() -> Iterator[OidcProvider]:
    with oidc_provider() as provider:
        yield provider


@pytest.fixture
def provider(_running: OidcProvider, settings: Any) -> OidcProvider:
    _running.__init__(_running.issuer)  # type: ignore[misc] # as new
    settings.OIDC_ISSUER, settings.OIDC_NAME = _running.issuer, "Corp"
    app = {**settings.OIDC_APP, "name": "Corp", "client_id": CLIENT_ID, "secret": CLIENT_SECRET}
    app["settings"] = {**app["settings"], "server_url": _running.issuer}
    settings.SOCIALACCOUNT_PROVIDERS = {"openid_connect": {"APPS": [app]}}
    return _running


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def leave(client: Client, **more: str) -> str:
    """Where the provider sends the browser back to."""
    page = client.post(ENTER, more)
    assert page.status_code == 200
    found = re.search(r'http-equiv="refresh"\s+content="0; url=([^"]+)"', page.content.decode())
    assert found, text_of(page)
    try:
        urllib.request.build_opener(_Stay).open(unescape(found[1]))
    except HTTPError as answer:
        return str(answer.headers["Location"]).removeprefix("http://testserver")
    raise AssertionError("the provider did not redirect")


def enter(client: Client, **more: str) -> Any:
    return client.get(leave(client, **more))


def test_the_button_is_there_when_a_provider_is_named(client: Client, provider: OidcProvider, settings: Any) -> None:
    assert "Sign in with Corp" in text_of(client.get("/accounts/login/"))
    settings.OIDC_ISSUER = ""
    assert "Sign in with" not in text_of(client.get("/accounts/login/"))


def test_no_form_is_answered_by_another_site(client: Client, provider: OidcProvider) -> None:
    """Chromium blocks such a redirect under form-action 'self', so the provider is reached by a page."""
    page = client.post(ENTER)
    assert page.status_code == 200 and "form-action 'self'" in page.headers["content-security-policy"]
    assert "Going to Corp" in text_of(page) and "no-store" in page.headers["cache-control"]
    assert "Continue" in text_of(client.get(ENTER)), "a link alone leads to a question"


def test_somebody_new_gets_an_account_with_sign_up_closed(
    client: Client, provider: OidcProvider, settings: Any
) -> None:
    settings.SIGNUP_OPEN = False
    provider.claims["name"] = "Ada\nLovelace " + "x" * 200
    assert enter(client, next="/account/").headers["location"] == "/account/"
    user = User.objects.get(email=EMAIL)
    assert user.name.startswith("AdaLovelace") and len(user.name) == 150
    assert not user.has_usable_password() and personal_organization(user) is not None
    assert EmailAddress.objects.get(user=user).verified and not mail.outbox
    page = text_of(client.get("/account/"))
    assert "Connected" in page and "Set password" in page
    assert not SocialToken.objects.exists()
    again = Client()
    assert enter(again).headers["location"] == "/"
    assert is_in(again) and User.objects.count() == 1


def test_a_new_address_at_the_provider_is_still_the_same_person(client: Client, provider: OidcProvider) -> None:
    enter(client)
    provider.claims["email"] = "ada@renamed.example"
    again = Client()
    enter(again)
    assert is_in(again) and User.objects.count() == 1


def test_a_verified_address_finds_the_account_that_is_there(client: Client, provider: OidcProvider) -> None:
    user = services.create_user(EMAIL, PASSWORD, name="Ada")
    provider.claims["email"] = EMAIL.upper()
    enter(client)
    assert is_in(client) and User.objects.count() == 1
    assert SocialAccount.objects.get(user=user).uid == "u1"
    assert mail.outbox[-1].subject == "A sign-in was connected"
    assert sign_in(Client(), EMAIL, PASSWORD).headers["location"] == "/", "the password is the owner's own, and stays"


@pytest.mark.parametrize("verified", [False, None, "false", 0, "no"])
def test_an_address_that_the_provider_has_not_verified_takes_nothing_over(
    client: Client, provider: OidcProvider, verified: Any
) -> None:
    user = services.create_user(EMAIL, PASSWORD)
    provider.claims["email_verified"] = verified
    answer = enter(client)
    assert answer.headers["location"] == "/accounts/confirm-email/"
    assert not is_in(client) and not SocialAccount.objects.exists()
    assert mail.outbox[-1].subject == "You have an account already"
    user.refresh_from_db()
    assert user.check_password(PASSWORD)


def test_an_unverified_newcomer_has_to_confirm_first(client: Client, provider: OidcProvider) -> None:
    provider.claims["email_verified"] = False
    enter(client)
    assert not is_in(client)
    client.post(last_link(EMAIL))
    enter(client)
    assert is_in(client)


def test_whoever_registered_the_address_before_its_owner_came_is_out(client: Client, provider: OidcProvider) -> None:
    attacker = Client()
    sign_up(attacker, EMAIL, NEW_PASSWORD)
    user = User.objects.get(email=EMAIL)
    organization = services.personal_organization(user)
    _, key = services.create_api_key(user, organization, "left behind")
    attacker.force_login(user)  # however they might have come by a session
    assert is_in(attacker)
    enter(client)
    assert is_in(client) and User.objects.count() == 1
    assert not is_in(attacker)
    assert sign_in(Client(), EMAIL, NEW_PASSWORD).status_code == 200, "the password is gone"
    assert not user.api_keys.filter(revoked_at=None).exists()
    assert attacker.get("/v1/conversations", headers={"authorization": f"Bearer {key}"}).status_code == 401


def test_who_only_means_to_change_to_an_address_does_not_hold_it(
    client: Client, provider: OidcProvider, stranger: Person
) -> None:
    EmailAddress.objects.create(user=stranger.user, email=EMAIL)
    enter(client)
    assert is_in(client)
    assert User.objects.get(email=EMAIL) != stranger.user
    stranger.user.refresh_from_db()
    assert stranger.user.check_password(PASSWORD)


def test_a_disabled_account_stays_out(client: Client, provider: OidcProvider) -> None:
    user = services.create_user(EMAIL, PASSWORD)
    user.is_active = False
    user.save()
    assert "disabled" in text_of(client.get(enter(client).headers["location"]))
    assert not is_in(client)


def test_connecting_and_disconnecting_ask_who_one_is(client: Client, provider: OidcProvider, person: Person) -> None:
    sign_in(client, person.user.email, PASSWORD)
    page = text_of(client.get("/accounts/3rdparty/"))
    assert "Connect Corp" in page
    who = "/accounts/reauthenticate/"
    client.post(who, {"password": PASSWORD})
    answer = enter(client, process="connect", next="/account/")
    assert answer.headers["location"] == "/account/"
    assert "Corp is connected." in text_of(client.get("/account/"))
    account = SocialAccount.objects.get(user=person.user)
    client.post("/accounts/3rdparty/", {"account": account.pk})
    assert not SocialAccount.objects.exists()
    assert "Corp is disconnected." in text_of(client.get("/account/"))


def test_the_last_way_in_is_not_removed(client: Client, provider: OidcProvider) -> None:
    enter(client)
    account = SocialAccount.objects.get()
    answer = client.post("/accounts/3rdparty/", {"account": account.pk})
    assert "password" in text_of(answer) and SocialAccount.objects.exists()


def test_somebody_elses_connection_is_not_removed(client: Client, provider: OidcProvider, person: Person) -> None:
    enter(client)
    other = Client()
    sign_in(other, person.user.email, PASSWORD)
    other.post("/accounts/3rdparty/", {"account": SocialAccount.objects.get().pk})
    assert SocialAccount.objects.exists()


def test_cancelled_at_the_provider(client: Client, provider: OidcProvider) -> None:
    provider.refuse = "access_denied"
    answer = enter(client)
    assert "cancelled" in text_of(client.get(answer.headers["location"]))
    provider.refuse = "server_error"
    answer = enter(client)
    assert answer.status_code == 401 and "did not confirm who you are" in text_of(answer)


def test_an_answer_that_nobody_asked_for_is_refused(client: Client, provider: OidcProvider) -> None:
    back = leave(client)
    for path, visitor in ((back, Client()), (back.replace("state=", "state=x"), client), (f"{ENTER}callback/", client)):
        answer = visitor.get(path)
        assert answer.status_code == 401 and "did not work" in text_of(answer), path
    assert client.get(back).status_code == 302
    assert client.get(back).status_code == 401, "used"
    assert User.objects.count() == 1


def test_tokens_that_speak_of_two_people_let_nobody_in(client: Client, provider: OidcProvider) -> None:
    provider.id_token_claims = {"sub": "u2"}
    answer = enter(client)
    assert answer.status_code == 503 and "identity provider" in text_of(answer)
    assert not User.objects.exists()


@pytest.mark.parametrize(
    ("path", "instead", "status"),
    [
        ("/.well-known/openid-configuration", 500, 503),
        ("/.well-known/openid-configuration", [], 503),
        ("/.well-known/openid-configuration", {}, 503),
        ("/token", 500, 401),
        ("/token", {"access_token": "x"}, 401),
        ("/token", [], 401),
        ("/userinfo", 401, 401),
        ("/userinfo", {"email": EMAIL}, 503),
        ("/userinfo", [1], 503),
        ("/userinfo", {"sub": "u1", "email": EMAIL, "name": "a\0b"}, 503),
    ],
)
def test_a_provider_that_fails_is_a_page_and_no_account(
    client: Client, provider: OidcProvider, path: str, instead: Any, status: int
) -> None:
    if path.startswith("/."):
        provider.broken[path] = instead
        answer = client.post(ENTER)
    else:
        back = leave(client)
        provider.broken[path] = instead
        answer = client.get(back)
    assert answer.status_code == status, text_of(answer)
    assert "provider" in text_of(answer) or "did not confirm" in text_of(answer)
    assert not User.objects.exists() and not is_in(client)


def test_a_provider_that_tells_no_address_leaves_a_question(client: Client, provider: OidcProvider) -> None:
    del provider.claims["email"]
    answer = enter(client)
    assert answer.headers["location"] == "/accounts/3rdparty/signup/"
    assert "did not tell your address" in text_of(client.get("/accounts/3rdparty/signup/"))
    client.post("/accounts/3rdparty/signup/", {"email": "ada@elsewhere.example"})
    user = User.objects.get(email="ada@elsewhere.example")
    assert user.name == "Ada" and not is_in(client)
    client.post(last_link("ada@elsewhere.example"))
    enter(client)
    assert is_in(client)


def test_unknown_providers_are_404(client: Client, provider: OidcProvider) -> None:
    assert client.post("/accounts/oidc/other/login/").status_code == 404
    assert client.get("/accounts/oidc/other/login/callback/").status_code == 404


def unverified_newcomer(provider: OidcProvider, way: str) -> Client:
    """Somebody who has an account with an address that they have not shown to be theirs."""
    attacker = Client()
    provider.claims.update(sub="evil", email=EMAIL, email_verified=False)
    if way == "asked":
        del provider.claims["email"]
    enter(attacker)
    if way == "asked":
        attacker.post("/accounts/3rdparty/signup/", {"email": EMAIL})
    assert SocialAccount.objects.get().user.email == EMAIL and not is_in(attacker)
    return attacker


def enter_as_evil(provider: OidcProvider) -> Client:
    provider.claims.update(sub="evil", email="evil@corp.example", email_verified=False)
    client = Client()
    enter(client)
    return client


@pytest.mark.parametrize("way", ["told", "asked"])
def test_whoever_came_first_with_an_unproven_address_does_not_share_the_account(
    client: Client, provider: OidcProvider, way: str
) -> None:
    unverified_newcomer(provider, way)
    provider.claims.update(sub="u1", email=EMAIL, email_verified=True)
    enter(client)
    assert is_in(client)
    assert [each.uid for each in SocialAccount.objects.filter(user__email=EMAIL)] == ["u1"]
    assert not is_in(enter_as_evil(provider)) and is_in(client)


@pytest.mark.parametrize("way", ["told", "asked"])
def test_a_reset_of_an_unproven_account_proves_it_and_takes_it_from_whoever_made_it(
    client: Client, provider: OidcProvider, way: str
) -> None:
    unverified_newcomer(provider, way)
    user = User.objects.get(email=EMAIL)
    services.create_api_key(user, services.personal_organization(user), "left behind")
    EmailAddress.objects.create(user=user, email="evil@corp.example", verified=False, primary=False)
    client.post(RESET, {"email": EMAIL})
    page = client.get(last_link(EMAIL), follow=True)
    client.post(page.request["PATH_INFO"], {"password1": NEW_PASSWORD})
    assert list(EmailAddress.objects.values_list("email", "verified", "primary")) == [(EMAIL, True, True)]
    assert not SocialAccount.objects.exists() and not user.api_keys.filter(revoked_at=None).exists()
    assert sign_in(client, EMAIL, NEW_PASSWORD).headers["location"] == "/"
    assert not is_in(enter_as_evil(provider)) and is_in(client)


def test_a_reset_of_a_proven_account_leaves_its_sign_ins(client: Client, provider: OidcProvider) -> None:
    enter(client)
    client.post(RESET, {"email": EMAIL})
    page = Client().get(last_link(EMAIL), follow=True)
    other = page.client
    other.post(page.request["PATH_INFO"], {"password1": NEW_PASSWORD})
    assert sign_in(Client(), EMAIL, NEW_PASSWORD).headers["location"] == "/"
    assert SocialAccount.objects.count() == 1


def test_a_name_that_the_provider_tells_is_one_line_that_can_be_seen(client: Client, provider: OidcProvider) -> None:
    provider.claims["name"] = "\u202eAda\u2028 \u200bL\n"
    enter(client)
    assert User.objects.get(email=EMAIL).name == "Ada \u200bL"
    provider.claims.update(sub="u2", email="other@corp.example", name="\u200b\u3164")
    enter(Client())
    assert User.objects.get(email="other@corp.example").name == ""
