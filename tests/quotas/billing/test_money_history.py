"""What the history of an organization says of budgets, webhooks and stops."""

from decimal import Decimal
from typing import Any

import pytest
from django.core.management import call_command
from django.urls import reverse

from chatsite.accounts import history
from chatsite.accounts.models import OrganizationEvent
from chatsite.accounts.selectors import events_in
from chatsite.webhooks import services as webhooks
from chatsite.webhooks.events import Event
from chatsite.webhooks.models import Endpoint
from quotas.billing import budgeting
from quotas.billing.budgeting import Terms
from quotas.models import Budget, Stop
from tests.admin_rows import signed_in as staff_client
from tests.chatsite.organizations import address, by, events, make_organization, signed_in
from tests.conftest import Person
from tests.quotas.billing.spending import has_budget

pytestmark = pytest.mark.django_db
Told = tuple[str, str, tuple[str, ...]]


def terms(**changes: Any) -> Terms:
    of_all = {"scope": Budget.Scope.ORGANIZATION, "subject_id": None, "days": None, "tokens": None, "cost": Decimal(20)}
    return Terms(**{**of_all, "hard": True, **changes})


def told(organization: Any) -> list[Told]:
    """The newest first."""
    return [(line.done, line.who, line.changes) for line in history.lines(events_in(organization))]


def test_a_budget_that_is_added_changed_and_deleted(person: Person, stranger: Person) -> None:
    acme = make_organization(person, billing=stranger)
    budget = budgeting.add(acme.pk, terms(), by(person.user))
    budgeting.change(acme.pk, budget.pk, terms(tokens=5000, cost=None, days=7, hard=False), by(stranger.user))
    budgeting.delete(acme.pk, budget.pk, by(person.user))
    deleted, changed, added, *_ = told(acme)
    whose, who = "for: the whole organization", person.user.called
    assert added == (
        "Budget added",
        f"by {who}",
        (whose, "limit: 20.00 USD a month", "when it is spent: refuse"),
    )
    assert changed == (
        "Budget changed",
        f"by {stranger.user.called}",
        (
            whose,
            "limit: 20.00 USD a month → 5,000 tokens in 7 days",
            "when it is spent: refuse → only warn",
        ),
    )
    assert deleted == (
        "Budget deleted",
        f"by {who}",
        (whose, "limit: 5,000 tokens in 7 days", "when it is spent: only warn"),
    )


def test_a_budget_that_is_saved_as_it_was_is_no_change(person: Person) -> None:
    budget = budgeting.add(person.organization.pk, terms(), by(person.user))
    budgeting.change(person.organization.pk, budget.pk, terms(), by(person.user))
    assert events(person.organization) == ["budget_added"]


def test_budgets_of_members_and_keys_say_whose_they_are(person: Person, stranger: Person) -> None:
    acme = make_organization(person, member=stranger)
    of_member = terms(scope=Budget.Scope.MEMBER, subject_id=stranger.user.pk)
    own = terms(scope=Budget.Scope.MEMBER, subject_id=person.user.pk)
    budgeting.add(acme.pk, of_member, by(person.user))
    budgeting.add(acme.pk, own, by(person.user))
    mine, theirs, *_ = told(acme)
    assert theirs[:2] == (f"Budget of {stranger.user.called} added", f"by {person.user.called}")
    assert mine[:2] == (f"Budget of {person.user.called} added", f"by {person.user.called}")
    row = OrganizationEvent.objects.get(member_id=stranger.user.pk, kind="budget_added")
    assert stranger.user.called not in str(row.details)  # people are named by their ids alone
    of_key = terms(scope=Budget.Scope.KEY, subject_id=person.key.chain_id)
    budgeting.add(person.organization.pk, of_key, by(person.user))
    assert f"for: the API key “{person.key.name}”" in told(person.organization)[0][2]


def test_what_was_refused_is_not_in_the_history(person: Person) -> None:
    budgeting.add(person.organization.pk, terms(), by(person.user))
    with pytest.raises(budgeting.BudgetExists):
        budgeting.add(person.organization.pk, terms(cost=Decimal(30)), by(person.user))
    assert events(person.organization) == ["budget_added"]


def test_the_owners_stop_is_told_once(person: Person) -> None:
    for work in (budgeting.stop_all, budgeting.stop_all, budgeting.go_on, budgeting.go_on):
        work(person.organization.pk, by(person.user))
    resumed, stopped = told(person.organization)
    assert stopped == ("Everything stopped", f"by {person.user.called}", ())
    assert resumed == ("Stop taken back", f"by {person.user.called}", ())


def test_stops_by_whoever_runs_the_site(person: Person, make_person: Any) -> None:
    call_command("emergencystop", organization=person.organization.public_id, message="Unpaid bills.")
    call_command("emergencystop", organization=person.organization.public_id, message="Unpaid bills.")
    call_command("emergencystop", organization=person.organization.public_id, resume=True)
    call_command("emergencystop")  # of everybody: no organization's doing
    call_command("emergencystop", resume=True)
    resumed, stopped = told(person.organization)
    assert stopped == ("Everything stopped", "by a command on the server", ("callers are told: Unpaid bills.",))
    assert resumed[:2] == ("Stop taken back", "by a command on the server")

    staff = staff_client(make_person("root@example.com", superuser=True).user)
    staff.post(reverse("admin:quotas_stop_add"), {"organization": person.organization.pk, "message": ""})
    row = Stop.objects.get()
    staff.post(reverse("admin:quotas_stop_change", args=[row.pk]), {"message": "Later."})
    chosen = {"action": "delete_selected", "_selected_action": [str(row.pk)], "post": "yes"}
    staff.post(reverse("admin:quotas_stop_changelist"), chosen)
    assert events(person.organization)[2:] == ["stopped", "stopped", "resumed"]
    assert {who for _, who, _ in told(person.organization)[:3]} == {"by whoever runs this site"}


def test_budgets_that_the_staff_changes(person: Person, make_person: Any) -> None:
    staff = staff_client(make_person("root@example.com", superuser=True).user)
    form = {
        "organization": person.organization.pk, "scope": "organization", "period": "month", "limit_cost": "20",
        "hard": "on",
    }  # fmt: skip
    assert staff.post(reverse("admin:quotas_budget_add"), form).status_code == 302
    row = Budget.objects.get()
    change = reverse("admin:quotas_budget_change", args=[row.pk])
    assert staff.post(change, {**form, "limit_cost": "25.50"}).status_code == 302
    has_budget(person.organization, None, limit_tokens=7)
    chosen = {"action": "delete_selected", "_selected_action": [str(each.pk) for each in Budget.objects.all()]}
    assert staff.post(reverse("admin:quotas_budget_changelist"), {**chosen, "post": "yes"}).status_code == 302
    assert events(person.organization) == ["budget_added", "budget_changed", "budget_deleted", "budget_deleted"]
    _, _, changed, added = told(person.organization)
    assert added[1] == "by whoever runs this site"
    assert "limit: 20.00 USD a month → 25.50 USD a month" in changed[2]
    shown = staff.get(reverse("admin:accounts_organizationevent_changelist")).content.decode()
    assert "budget changed" in shown
    one = OrganizationEvent.objects.get(kind="budget_changed")
    page = staff.get(reverse("admin:accounts_organizationevent_change", args=[one.pk])).content.decode()
    assert "limit: 20.00 USD a month → 25.50 USD a month" in page


def test_webhooks_are_told_without_what_an_address_keeps_secret(person: Person, make_person: Any) -> None:
    organization, who = person.organization, by(person.user)
    hook = webhooks.add(organization.pk, "https://hooks.example.org/T0/secret", [Event.BUDGET_THRESHOLD], who)
    webhooks.change(
        organization.pk, hook.pk, "https://hooks.example.org/T0/other", [Event.BUDGET_THRESHOLD], who, active=True
    )
    webhooks.change(
        organization.pk, hook.pk, "https://example.com/x?token=1", [Event.SPENDING_UNUSUAL], who, active=False
    )
    webhooks.change(
        organization.pk, hook.pk, "https://example.com/x?token=1", [Event.SPENDING_UNUSUAL], who, active=False
    )
    webhooks.renew_secret(organization.pk, hook.pk, who)
    webhooks.delete(organization.pk, hook.pk, who)
    kinds = ["webhook_added", "webhook_changed", "webhook_changed", "webhook_secret", "webhook_deleted"]
    assert events(organization) == kinds
    deleted, secret, moved, path, added = told(organization)
    assert added == (
        "Webhook added",
        f"by {person.user.called}",
        ("address: https://hooks.example.org", "events: budget.threshold"),
    )
    assert path[2] == ("address: https://hooks.example.org, another path",)
    assert moved[2] == (
        "address: https://hooks.example.org → https://example.com",
        "events: budget.threshold → spending.unusual",
        "sending: on → off",
    )
    assert secret[:2] == ("Secret of a webhook replaced", f"by {person.user.called}")
    assert deleted[2] == ("address: https://example.com",)
    rows = str(list(OrganizationEvent.objects.values_list("details", flat=True)))
    assert not any(part in rows for part in ("T0", "token", "/x"))

    again = webhooks.add(organization.pk, "https://example.com/y", [Event.SPENDING_UNUSUAL], who)
    staff = staff_client(make_person("root@example.com", superuser=True).user)
    chosen = {"action": "switch_off", "_selected_action": [str(again.pk)]}
    for _ in range(2):
        staff.post(reverse("admin:webhooks_endpoint_changelist"), chosen)
    assert not Endpoint.objects.get(pk=again.pk).active
    assert [line[0] for line in told(organization)[:2]] == ["Webhook changed", "Webhook added"]
    assert told(organization)[0][1:] == (
        "by whoever runs this site",
        ("address: https://example.com", "sending: on → off"),
    )


def test_the_history_is_on_the_organizations_page(person: Person) -> None:
    acme = make_organization(person)
    budgeting.add(acme.pk, terms(), by(person.user))
    budgeting.stop_all(acme.pk, by(person.user))
    page = signed_in(person).get(address(acme)).content.decode()
    for words in ("Budget added", "limit: 20.00 USD a month", "Everything stopped"):
        assert words in page


def test_every_kind_has_a_sentence() -> None:
    assert set(history.SENTENCES) == set(OrganizationEvent.Kind)
