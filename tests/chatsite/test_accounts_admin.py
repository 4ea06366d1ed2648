"""The admin's pages for accounts and quotas: they open, obey the policy, and do what they say."""

import re
from typing import Any

import pytest
from django.contrib import admin
from django.test import Client
from django.urls import path, reverse

from chatsite.accounts.models import ApiKey, Membership, User
from quotas.models import Plan
from tests.conftest import PASSWORD, Person

pytestmark = pytest.mark.django_db
urlpatterns = [path("admin/", admin.site.urls)]


@pytest.fixture
def staff(settings: Any, make_person: Any) -> Client:
    settings.ROOT_URLCONF = __name__
    client = Client()
    client.force_login(make_person("root@example.com", superuser=True).user)
    return client


PAGES = [
    "accounts_user",
    "accounts_organization",
    "accounts_apikey",
    "quotas_plan",
    "quotas_subscription",
    "quotas_ledgerentry",
]


@pytest.mark.parametrize("name", PAGES)
def test_lists_open_without_inline_script(staff: Client, person: Person, name: str) -> None:
    page = staff.get(reverse(f"admin:{name}_changelist"))
    assert page.status_code == 200
    assert "unsafe" not in page["Content-Security-Policy"]
    html = page.content.decode()
    assert not re.search(r"<script(?![^>]*\bsrc=)(?![^>]*application/json)[^>]*>", html)
    assert not re.search(r"<style|\son\w+=", html)


def test_a_user_made_here_has_an_organization(staff: Client) -> None:
    form = {"email": "new@example.com", "usable_password": "true", "password1": PASSWORD, "password2": PASSWORD}
    assert staff.post(reverse("admin:accounts_user_add"), form).status_code == 302
    user = User.objects.get(email="new@example.com")
    assert user.check_password(PASSWORD)
    assert Membership.objects.filter(user=user, role="owner").count() == 1
    assert staff.get(reverse("admin:accounts_user_change", args=[user.pk])).status_code == 200


def test_s33_a_key_is_shown_by_its_prefix_and_can_only_be_revoked(staff: Client, person: Person) -> None:
    address = reverse("admin:accounts_apikey_change", args=[person.key.pk])
    html = staff.get(address).content.decode()
    assert person.key.prefix in html
    assert person.key.digest not in html
    assert staff.get(reverse("admin:accounts_apikey_add")).status_code == 403
    action = {"action": "revoke", "_selected_action": [str(person.key.pk)]}
    assert staff.post(reverse("admin:accounts_apikey_changelist"), action).status_code == 302
    assert ApiKey.objects.get(pk=person.key.pk).revoked_at is not None


def test_plans_can_be_changed_and_the_ledger_cannot(staff: Client) -> None:
    plan = Plan.objects.get(name="free")
    form = {"name": "free", "tier": "free", "tokens_per_minute": "5000", "concurrent": "2", "is_default": "on"}
    assert staff.post(reverse("admin:quotas_plan_change", args=[plan.pk]), form).status_code == 302
    plan.refresh_from_db()
    assert plan.tokens_per_minute == 5000
    assert staff.get(reverse("admin:quotas_ledgerentry_add")).status_code == 403


def test_s33_passwords_are_not_logged_when_somebody_signs_in(settings: Any, person: Person, caplog: Any) -> None:
    settings.ROOT_URLCONF = __name__
    with caplog.at_level("DEBUG"):
        for password in (PASSWORD, "hunter2 wrong"):
            form = {"username": person.user.email, "password": password}
            Client().post(reverse("admin:login"), form)
            Client().get(reverse("admin:login"), form)
    assert caplog.records
    logged = " ".join(
        f"{record.getMessage()} {record.__dict__}" for record in caplog.records if record.name != "django.db.backends"
    )
    assert PASSWORD not in logged
    assert "hunter2" not in logged
