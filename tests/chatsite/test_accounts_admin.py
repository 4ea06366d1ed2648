"""Users, organizations, keys and sessions in the admin do what they say."""

from datetime import timedelta
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from allauth.usersessions.models import UserSession
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from chatsite.accounts import keys
from chatsite.accounts.keys import Terms
from chatsite.accounts.models import ApiKey, KeyEvent, Membership, User
from chatsite.accounts.protocol import Actor, Via
from chatsite.ids import new_id
from chatsite.scopes import Scope
from tests.admin_rows import grant, signed_in
from tests.chatsite.entering import NEW_PASSWORD
from tests.conftest import PASSWORD, Person

pytestmark = pytest.mark.django_db


@pytest.fixture
def root(make_person: Any) -> Person:
    return make_person("root@example.com", superuser=True)  # type: ignore[no-any-return]


@pytest.fixture
def staff(root: Person) -> Client:
    return signed_in(root.user)


def act(client: Client, name: str, action: str, *keys: object) -> int:
    data = {"action": action, "_selected_action": [str(key) for key in keys]}
    return client.post(reverse(f"admin:{name}_changelist"), data).status_code


def form_of(client: Client, user: User, **changes: Any) -> dict[str, Any]:
    """What the page of the user would send."""
    membership = user.memberships.get()
    inline = {"TOTAL_FORMS": 1, "INITIAL_FORMS": 1, "MIN_NUM_FORMS": 0, "MAX_NUM_FORMS": 1000}
    form = {f"memberships-{name}": value for name, value in inline.items()}
    form |= {
        "memberships-0-id": membership.pk,
        "memberships-0-user": user.pk,
        "memberships-0-organization": membership.organization_id,
        "memberships-0-role": membership.role,
        "email": user.email,
        "name": user.name,
        "is_active": "on" if user.is_active else "",
    }
    return {name: value for name, value in {**form, **changes}.items() if value != ""}


def save(client: Client, user: User, **changes: Any) -> Any:
    return client.post(reverse("admin:accounts_user_change", args=[user.pk]), form_of(client, user, **changes))


def test_a_user_made_here_has_an_organization_and_is_verified(staff: Client) -> None:
    form = {"email": "New@Example.com", "usable_password": "true", "password1": PASSWORD, "password2": PASSWORD}
    assert staff.post(reverse("admin:accounts_user_add"), form).status_code == 302
    user = User.objects.get(email="new@example.com")
    assert user.check_password(PASSWORD)
    assert Membership.objects.filter(user=user, role="owner").count() == 1
    assert EmailAddress.objects.get(user=user).verified
    page = staff.get(reverse("admin:accounts_user_change", args=[user.pk]))
    assert page.status_code == 200
    assert PASSWORD not in page.content.decode()


def test_an_address_that_is_taken_is_said_so(staff: Client, person: Person) -> None:
    form = {"email": person.user.email.upper(), "usable_password": "true", "password1": PASSWORD, "password2": PASSWORD}
    page = staff.post(reverse("admin:accounts_user_add"), form)
    assert page.status_code == 200
    assert "already exists" in page.content.decode()


def test_an_address_changed_here_counts_as_verified(staff: Client, person: Person) -> None:
    assert save(staff, person.user, email="ada.new@example.com").status_code == 302
    assert list(EmailAddress.objects.filter(user=person.user).values_list("email", "verified", "primary")) == [
        ("ada.new@example.com", True, True)
    ]


def test_whether_an_address_is_verified_is_seen(staff: Client, person: Person, stranger: Person) -> None:
    EmailAddress.objects.filter(user=stranger.user).update(verified=False)
    address = reverse("admin:accounts_user_changelist")
    found = {answer: staff.get(address, {"verified": answer}).context["cl"].result_list for answer in ("yes", "no")}
    assert person.user in found["yes"]
    assert list(found["no"]) == [stranger.user]


def test_a_deactivated_user_is_signed_out_and_their_keys_are_refused(staff: Client, person: Person) -> None:
    theirs = Client()
    theirs.force_login(person.user)
    theirs.get("/")
    key = theirs.session.session_key
    UserSession.objects.get_or_create(session_key=key, defaults={"user": person.user, "ip": "127.0.0.1"})
    assert save(staff, person.user, is_active="").status_code == 302
    person.user.refresh_from_db()
    assert not person.user.is_active and person.user.disabled_at is not None
    assert not theirs.session.exists(key)
    assert Client().get("/v1/conversations", headers=person.headers).status_code == 401
    assert act(staff, "accounts_user", "activate", person.user.pk) == 302
    assert Client().get("/v1/conversations", headers=person.headers).status_code == 200
    assert User.objects.get(pk=person.user.pk).disabled_at is None


def test_a_user_is_activated_in_the_form_too(staff: Client, person: Person) -> None:
    assert save(staff, person.user, is_active="").status_code == 302
    assert save(staff, person.user, is_active="on").status_code == 302
    person.user.refresh_from_db()
    assert person.user.is_active and person.user.disabled_at is None


def test_nobody_deactivates_themselves(staff: Client, root: Person, person: Person) -> None:
    assert act(staff, "accounts_user", "deactivate", root.user.pk, person.user.pk) == 302
    assert User.objects.get(pk=root.user.pk).is_active
    assert not User.objects.get(pk=person.user.pk).is_active
    save(staff, root.user, is_active="", is_staff="on", is_superuser="on")
    assert User.objects.get(pk=root.user.pk).is_active


def test_a_password_that_is_set_here_ends_sessions(staff: Client, person: Person) -> None:
    theirs = signed_in(person.user)
    UserSession.objects.create(session_key=theirs.session.session_key, user=person.user, ip="127.0.0.1")
    address = reverse("admin:auth_user_password_change", args=[person.user.pk])
    form = {"usable_password": "true", "password1": f"{PASSWORD} 2", "password2": f"{PASSWORD} 2"}
    assert staff.post(address, form).status_code == 302
    assert User.objects.get(pk=person.user.pk).check_password(f"{PASSWORD} 2")
    assert not UserSession.objects.filter(user=person.user).exists()


def test_rights_are_given_by_superusers_alone(root: Person, person: Person, stranger: Person) -> None:
    helper = signed_in(grant(stranger.user, "accounts.view_user", "accounts.change_user"))
    assert save(helper, person.user, is_superuser="on", is_staff="on", name="Renamed").status_code == 302
    person.user.refresh_from_db()
    assert (person.user.name, person.user.is_superuser, person.user.is_staff) == ("Renamed", False, False)
    assert save(helper, root.user, name="Taken over").status_code == 403
    address = reverse("admin:auth_user_password_change", args=[root.user.pk])
    assert helper.post(address, {"password1": PASSWORD, "password2": PASSWORD}).status_code == 403
    assert act(helper, "accounts_user", "deactivate", root.user.pk) == 302
    assert User.objects.get(pk=root.user.pk).is_active
    assert helper.get(reverse("admin:auth_group_changelist")).status_code == 403


def test_staff_do_not_take_over_other_staff(person: Person, stranger: Person, make_person: Any) -> None:
    """Whoever sets a password can be that user, with all of that user's rights."""
    reader = grant(person.user, "conversations.read_text")
    helper = grant(stranger.user, "accounts.view_user", "accounts.change_user")
    client = signed_in(helper)
    assert client.get(reverse("admin:accounts_user_change", args=[reader.pk])).status_code == 200, "to look at"
    assert save(client, reader, email="mine@example.com").status_code == 403
    address = reverse("admin:auth_user_password_change", args=[reader.pk])
    form = {"usable_password": "true", "password1": NEW_PASSWORD, "password2": NEW_PASSWORD}
    assert client.get(address).status_code == client.post(address, form).status_code == 403
    assert act(client, "accounts_user", "deactivate", reader.pk) == 302
    reader.refresh_from_db()
    assert reader.is_active and reader.email == person.user.email and reader.check_password(PASSWORD)
    assert save(client, helper, name="Myself").status_code == 302
    root = signed_in(make_person("root@example.com", superuser=True).user)
    assert save(root, reader, is_staff="on", name="By a superuser").status_code == 302


@pytest.mark.parametrize("key", ["{}", "user_{}"])
@pytest.mark.parametrize("method", ["get", "post"])
def test_ones_own_password_is_changed_on_the_accounts_page(staff: Client, root: Person, key: str, method: str) -> None:
    """Which asks for the old one, and keeps the list of sessions right."""
    address = reverse("admin:auth_user_password_change", args=[key.format(root.user.pk)])
    answer = getattr(staff, method)(address, {"password1": NEW_PASSWORD, "password2": NEW_PASSWORD})
    assert (answer.status_code, answer["Location"]) == (302, reverse("account_change_password"))
    root.user.refresh_from_db()
    assert root.user.check_password(PASSWORD)


@pytest.mark.parametrize("name", ["\u202eabc", "a\nb", "a\u2028b", "\u200b\u200b", "\u3164", "a\0b"])
def test_names_that_cannot_be_shown_are_refused(staff: Client, person: Person, name: str) -> None:
    answer = save(staff, person.user, name=name)
    assert answer.status_code == 200 and answer.context["adminform"].form.errors["name"]
    inline = {f"memberships-{part}": "0" for part in ("TOTAL_FORMS", "INITIAL_FORMS")}
    address = reverse("admin:accounts_organization_change", args=[person.organization.pk])
    answer = staff.post(address, {"name": name, **inline})
    assert answer.status_code == 200 and answer.context["adminform"].form.errors["name"]
    person.user.refresh_from_db()
    assert person.user.name != name


@pytest.mark.parametrize("value", ["\0", "x", "9" * 50, "%"])
def test_hand_made_members_change_nothing(staff: Client, person: Person, value: str) -> None:
    for place, key in (("user", person.user.pk), ("organization", person.organization.pk)):
        other = "organization" if place == "user" else "user"
        for field in ({f"memberships-0-{other}": value}, {"memberships-0-id": value, "memberships-INITIAL_FORMS": "1"}):
            form = {"memberships-TOTAL_FORMS": "1", "memberships-INITIAL_FORMS": "0", "memberships-0-role": "owner"}
            address = reverse(f"admin:accounts_{place}_change", args=[key])
            answer = staff.post(address, {"name": "o", "email": person.user.email, **form, **field})
            assert answer.status_code in (200, 302, 400), (place, field)
    assert Membership.objects.get(user=person.user).organization_id == person.organization.pk


def test_who_only_looks_sees_no_hash_of_a_password(person: Person, stranger: Person) -> None:
    looker = signed_in(grant(stranger.user, "accounts.view_user"))
    page = looker.get(reverse("admin:accounts_user_change", args=[person.user.pk]))
    assert page.status_code == 200
    assert person.user.password not in page.content.decode()
    assert person.user.password.rpartition("$")[2] not in page.content.decode()
    assert save(looker, person.user, name="Renamed").status_code == 403


def test_neither_users_nor_organizations_are_deleted(staff: Client, person: Person) -> None:
    for name, key in (("accounts_user", person.user.pk), ("accounts_organization", person.organization.pk)):
        assert staff.post(reverse(f"admin:{name}_delete", args=[key]), {"post": "yes"}).status_code == 403
        act(staff, name, "delete_selected", key)
    assert User.objects.filter(pk=person.user.pk).exists()
    assert Membership.objects.filter(organization=person.organization).exists()


def test_s33_a_key_is_shown_by_its_prefix_and_can_only_be_revoked(staff: Client, person: Person) -> None:
    address = reverse("admin:accounts_apikey_change", args=[person.key.pk])
    html = staff.get(address).content.decode()
    assert person.key.prefix in html
    assert person.key.digest not in html
    assert staff.post(address, {"name": "renamed", "revoked_at": ""}).status_code == 403
    assert staff.get(reverse("admin:accounts_apikey_add")).status_code == 403
    assert act(staff, "accounts_apikey", "revoke", person.key.pk) == 302
    assert ApiKey.objects.get(pk=person.key.pk).revoked_at is not None
    assert Client().get("/v1/conversations", headers=person.headers).status_code == 401


def test_who_revoked_a_key_is_in_its_history(staff: Client, root: Person, person: Person) -> None:
    staff.defaults["REMOTE_ADDR"] = "203.0.113.9"
    act(staff, "accounts_apikey", "revoke", person.key.pk)
    event = KeyEvent.objects.get(key_id=person.key.pk, kind="revoked")
    assert (event.actor_id, event.via, event.address) == (root.user.pk, "admin", "203.0.113.9")
    act(staff, "accounts_apikey", "revoke", person.key.pk)
    assert KeyEvent.objects.filter(key_id=person.key.pk, kind="revoked").count() == 1


def test_the_history_of_keys_is_to_look_at(staff: Client, root: Person, person: Person) -> None:
    keys.change_api_key(person.user, person.key.pk, Terms("renamed"), Actor(root.user.pk, Via.ADMIN, "203.0.113.9"))
    event = KeyEvent.objects.filter(key_id=person.key.pk).latest("id")
    address = reverse("admin:accounts_keyevent_changelist")

    def found(**query: str) -> list[int]:
        return [each.pk for each in staff.get(address, query).context["cl"].result_list]

    for query in (
        {"q": f"key_{person.key.pk}", "kind__exact": "changed"},
        {"q": f"user_{person.user.pk}", "via__exact": "admin"},
        {"q": f"user_{root.user.pk}", "via__exact": "admin"},
        {"q": "203.0.113.9"},
    ):
        assert found(**query) == [event.pk], query
    page = reverse("admin:accounts_keyevent_change", args=[event.pk])
    html = staff.get(page).content.decode()
    assert "name: test → renamed" in html and root.user.email in html and person.user.email in html
    for what in ("change", "delete"):
        assert staff.post(page.replace("/change/", f"/{what}/"), {"post": "yes", "via": "page"}).status_code == 403
    assert staff.get(reverse("admin:accounts_keyevent_add")).status_code == 403


def test_a_key_s_page_leads_along_its_chain(staff: Client, person: Person) -> None:
    old = person.key
    new, _ = keys.rotate_api_key(person.user, old.pk, new_id(), timedelta(days=1), None, Actor(None, Via.SITE))
    for one, other in ((old, new), (new, old)):
        html = staff.get(reverse("admin:accounts_apikey_change", args=[one.pk])).content.decode()
        assert other.public_id in html
    listed = staff.get(reverse("admin:accounts_apikey_changelist"), {"q": new.public_id}).context["cl"].result_list
    assert {key.pk for key in listed} == {old.pk, new.pk}


def test_keys_by_scope_and_limits(staff: Client, person: Person) -> None:
    terms = Terms("batches", (Scope.BATCH,), concurrent=3)
    keys.create_api_key(person.user, person.organization, terms)
    address = reverse("admin:accounts_apikey_changelist")
    for query in ({"scope": "batch"}, {"limits": "yes"}):
        listed = staff.get(address, {"q": person.user.email, **query}).context["cl"].result_list
        assert [key.name for key in listed] == ["batches"]
    listed = staff.get(address, {"q": person.user.email, "limits": "no"}).context["cl"].result_list
    assert [key.name for key in listed] == ["test"]
    assert (
        "3 replies at once"
        in staff.get(
            reverse("admin:accounts_apikey_change", args=[ApiKey.objects.get(name="batches").pk])
        ).content.decode()
    )


def test_keys_by_their_state(staff: Client, person: Person) -> None:
    used, _ = keys.create_api_key(person.user, person.organization, "used")
    keys.note_key_used(used)
    revoked, _ = keys.create_api_key(person.user, person.organization, "revoked")
    keys.revoke_api_key(revoked)
    keys.create_api_key(person.user, person.organization, Terms("expired", expires_at=timezone.now()))
    keys.rotate_api_key(person.user, used.pk, new_id(), timedelta(days=1), None, Actor(None, Via.SITE))
    ApiKey.objects.filter(replaced_by=None, name="used").update(name="successor")
    address = reverse("admin:accounts_apikey_changelist")

    def names(state: str) -> set[str]:
        return {
            key.name for key in staff.get(address, {"state": state, "q": person.user.email}).context["cl"].result_list
        }

    assert names("active") == {"test", "used", "successor"}
    assert names("unused") == {"test", "successor"}
    assert (names("replaced"), names("expired"), names("revoked")) == ({"used"}, {"expired"}, {"revoked"})


def test_a_session_is_ended_and_its_key_is_not_shown(staff: Client, person: Person) -> None:
    theirs = signed_in(person.user)
    key = theirs.session.session_key
    row = UserSession.objects.create(session_key=key, user=person.user, ip="203.0.113.7", user_agent="Firefox/1 Linux")
    for address in ("changelist", "change"):
        arguments = [row.pk] if address == "change" else []
        html = staff.get(reverse(f"admin:usersessions_usersession_{address}", args=arguments)).content.decode()
        assert "Firefox on Linux" in html
        assert str(key) not in html
    assert act(staff, "usersessions_usersession", "end", row.pk) == 302
    assert not theirs.session.exists(key)
    helper = signed_in(grant(person.user, "usersessions.view_usersession"))
    assert "End the selected" not in helper.get(reverse("admin:usersessions_usersession_changelist")).content.decode()


def test_links_lead_from_a_user_to_what_is_theirs(staff: Client, person: Person) -> None:
    html = staff.get(reverse("admin:accounts_user_change", args=[person.user.pk])).content.decode()
    for name in ("accounts_organization", "accounts_apikey", "inference_request", "conversations_conversation"):
        address = f"{reverse(f'admin:{name}_changelist')}?q=user_{person.user.pk}"
        assert address in html
        assert staff.get(address).status_code == 200


def test_s33_passwords_that_are_typed_are_not_logged(staff: Client, person: Person, caplog: Any) -> None:
    with caplog.at_level("DEBUG"):
        form = {"email": "new@example.com", "usable_password": "true", "password1": PASSWORD, "password2": PASSWORD}
        staff.post(reverse("admin:accounts_user_add"), form)
        for password in (PASSWORD, "hunter2 wrong"):
            Client().post(reverse("account_login"), {"login": person.user.email, "password": password})
            Client().post(reverse("admin:login"), {"username": person.user.email, "password": password})
    assert caplog.records
    records = [record for record in caplog.records if record.name != "django.db.backends"]
    logged = " ".join(f"{record.getMessage()} {record.__dict__}" for record in records)
    assert PASSWORD not in logged
    assert "hunter2" not in logged


def test_s33_nobody_signs_in_here(person: Person) -> None:
    answer = Client().post(reverse("admin:login"), {"username": person.user.email, "password": PASSWORD})
    assert answer.status_code == 302
    assert answer["Location"].startswith("/accounts/login/")
