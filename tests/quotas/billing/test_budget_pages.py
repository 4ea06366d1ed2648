"""The pages of budgets and the emergency stop: who may, what is wrong said in words, and what holds afterwards."""

from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from redis.exceptions import ConnectionError as RedisAway

from chatsite.accounts.models import Membership
from chatsite.ids import new_id, public_id
from quotas.billing import budgeting
from quotas.models import Budget, Plan, Stop
from quotas.selectors import known_plans, plan_of
from quotas.services import stop
from tests.chatsite.entering import text_of
from tests.chatsite.organizations import at_once, by, make_organization, signed_in
from tests.conftest import Person
from tests.quotas.billing.spending import has_budget, spend

pytestmark = pytest.mark.django_db(transaction=True)
PAGE, NEW = "/usage/budgets/", "/usage/budgets/new"


@pytest.fixture
def client(person: Person) -> Client:
    return signed_in(person)


def form(**changes: str) -> dict[str, str]:
    return {
        "whose": "organization",
        "amount": "20",
        "unit": "cost",
        "period": "month",
        "days": "",
        "when_spent": "hard",
        **changes,
    }


def of(budget: Budget, *more: str) -> str:
    return "/".join((f"{PAGE}{public_id('bud', budget.pk)}", *more))


def test_a_budget_is_added_changed_and_deleted(client: Client, person: Person) -> None:
    plan_of(person.organization.pk)
    assert client.get(NEW).status_code == 200
    assert "The budget holds now." in client.post(NEW, form(), follow=True).content.decode()
    budget = Budget.objects.get()
    assert (budget.limit_cost, budget.limit_tokens, budget.hard, budget.days) == (20, None, True, None)
    assert [each.limit for each in plan_of(person.organization.pk).budgets] == [20 * 10**10]
    html = client.get(of(budget)).content.decode()
    assert 'value="20.00"' in html
    changed = form(amount="1000", unit="tokens", period="rolling", days="7", when_spent="soft")
    assert "The budget is saved." in client.post(of(budget), changed, follow=True).content.decode()
    budget.refresh_from_db()
    assert (budget.limit_cost, budget.limit_tokens, budget.hard, budget.days) == (None, 1000, False, 7)
    assert client.get(of(budget, "delete")).status_code == 200
    assert Budget.objects.exists()
    client.post(of(budget, "delete"))
    assert not Budget.objects.exists()
    assert plan_of(person.organization.pk).budgets == ()


def test_the_page_shows_how_much_is_spent(client: Client, person: Person) -> None:
    Plan.objects.filter(name="demo").update(monthly_tokens=10_000_000)
    Membership.objects.filter(user=person.user).update(monthly_cost=Decimal(100))
    has_budget(person.organization, "10")
    has_budget(person.organization, "4", hard=False)
    spend(person, "4.2")
    page = text_of(client.get(PAGE))
    assert "The demo plan 42 %" in page
    assert "4,200,000 tokens of 10,000,000 tokens a month (42&nbsp;%)" in page
    assert "The budget of the organization 42 % 4.20 USD of 10.00 USD a month (42&nbsp;%)" in page
    assert "The budget of the organization only warns 105 % 4.20 USD of 4.00 USD a month (105&nbsp;%)" in page
    assert f"The limit of {person.user.called} 4 %" in page
    html = client.get(PAGE).content.decode()
    assert html.count(">Change</a>") == 2


def test_without_redis_the_page_says_so(client: Client, person: Person, monkeypatch: Any) -> None:
    has_budget(person.organization, "10")

    async def away(*_: Any) -> Any:
        raise RedisAway

    monkeypatch.setattr("quotas.selectors.STANDING", away)
    page = text_of(client.get(PAGE))
    assert "How much is spent cannot be told at the moment." in page
    assert "10.00 USD a month" in page


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"amount": "-5"}, "More than 0."),
        ({"amount": "0"}, "More than 0."),
        ({"amount": "0.001"}, "At most two digits after the point."),
        ({"amount": "900000.01"}, "At most 900,000 USD."),
        ({"amount": "9" * 41}, "This is too much."),
        ({"amount": "1" + "0" * 30}, "At most 900,000 USD."),
        ({"amount": "1e3"}, "Write a number such as 20 or 12.50."),
        ({"amount": "NaN"}, "Write a number such as 20 or 12.50."),
        ({"amount": "Infinity"}, "Write a number such as 20 or 12.50."),
        ({"amount": "x"}, "Write a number such as 20 or 12.50."),
        ({"amount": ""}, "How much?"),
        ({"amount": "1.5", "unit": "tokens"}, "Tokens are whole: write a number without a point."),
        ({"amount": "-1", "unit": "tokens"}, "More than 0."),
        ({"amount": "9" * 17, "unit": "tokens"}, "At most 9,007,199,254,740,991 tokens."),
        ({"unit": "gold"}, "Choose among what is offered."),
        ({"unit": ""}, "Choose one."),
        ({"period": "rolling"}, "How many days?"),
        ({"period": "rolling", "days": "0"}, "At least 1."),
        ({"period": "rolling", "days": "91"}, "At most 90."),
        ({"period": "rolling", "days": "1.5"}, "Write a whole number."),
        ({"period": "year"}, "Choose among what is offered."),
        ({"whose": "everybody"}, "Choose among what is offered."),
        ({"whose": "member:0197d000-0000-7000-8000-000000000001"}, "Choose among what is offered."),
        ({"when_spent": "never"}, "Choose among what is offered."),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_written(client: Client, changes: dict[str, str], message: str) -> None:
    page = client.post(NEW, form(**changes))
    assert page.status_code == 400
    assert message in page.content.decode()
    assert not Budget.objects.exists()


def test_a_second_of_the_same_kind_is_refused_and_another_kind_is_not(client: Client, person: Person) -> None:
    client.post(NEW, form())
    assert "There is such a budget already" in client.post(NEW, form(amount="30")).content.decode()
    for other in ({"unit": "tokens"}, {"period": "rolling", "days": "7"}, {"when_spent": "soft"},
                  {"whose": f"key:{person.key.chain_id}"}):  # fmt: skip
        assert client.post(NEW, form(**other)).status_code == 302
    soft = Budget.objects.get(hard=False)
    page = client.post(of(soft), form())
    assert page.status_code == 400
    assert "There is such a budget already" in page.content.decode()
    assert Budget.objects.count() == 5


def test_two_of_the_same_kind_at_once_make_one(person: Person) -> None:
    terms = budgeting.Terms(Budget.Scope.ORGANIZATION, None, None, None, Decimal(20), True)
    results = at_once(*[lambda: budgeting.add(person.organization.pk, terms, by(person.user))] * 3)
    assert sum(isinstance(each, Budget) for each in results) == 1
    assert sum(isinstance(each, budgeting.BudgetExists) for each in results) == 2


def test_there_are_at_most_so_many(client: Client, monkeypatch: Any) -> None:
    monkeypatch.setattr(budgeting, "MAX_BUDGETS", 1)
    client.post(NEW, form())
    assert "as many budgets as one may have" in client.post(NEW, form(unit="tokens")).content.decode()
    assert "as many budgets as an organization may have" in client.get(PAGE).content.decode()


def test_members_and_keys_are_offered_where_they_belong(make_person: Any) -> None:
    owner, member, stranger = (make_person(f"{name}@example.com") for name in ("owner", "member", "stranger"))
    acme = make_organization(owner, member=member)
    client = signed_in(owner)
    html = client.get(NEW, {"organization": acme.public_id}).content.decode()
    assert f"member:{member.user.pk}" in html
    assert str(stranger.user.pk) not in html
    assert str(member.key.chain_id) not in html  # of the member's own organization
    answer = client.post(NEW, form(whose=f"member:{member.user.pk}", organization=acme.public_id))
    assert answer.status_code == 302
    budget = Budget.objects.get()
    assert (budget.organization, budget.subject_id) == (acme, member.user.pk)
    Membership.objects.filter(user=member.user, organization=acme).delete()
    page = client.get(of(budget), {"organization": acme.public_id}).content.decode()
    assert "As it is: somebody or a key that is gone" in page
    kept = form(whose=f"member:{member.user.pk}", amount="5", organization=acme.public_id)
    assert client.post(of(budget), kept).status_code == 302
    assert Budget.objects.get().limit_cost == 5


def test_s32_roles_and_strangers(make_person: Any) -> None:
    people = {name: make_person(f"{name}@example.com") for name in ("owner", "admin", "member", "billing", "stranger")}
    acme = make_organization(people["owner"], admin=people["admin"], member=people["member"], billing=people["billing"])
    budget = has_budget(acme, "10")
    may_see = {"owner": 200, "admin": 200, "billing": 200, "member": 403, "stranger": 404}
    for name, status in may_see.items():
        client = signed_in(people[name])
        for address in (PAGE, NEW, of(budget), of(budget, "delete")):
            assert client.get(address, {"organization": acme.public_id}).status_code == status, (name, address)
        change = client.post(of(budget), form(organization=acme.public_id))
        assert change.status_code == (302 if status == 200 else status)
        stops = client.post(f"{PAGE}stop", {"organization": acme.public_id})
        assert stops.status_code == {"owner": 302, "stranger": 404}.get(name, 403)
    stranger = signed_in(people["stranger"])
    assert stranger.get(of(budget)).status_code == 404
    assert stranger.post(of(budget, "delete")).status_code == 404
    assert signed_in(people["owner"]).get(of(budget)).status_code == 404  # they work in their own one now
    for wrong in ("bud_x", f"bud_{new_id()}", "x"):
        assert signed_in(people["owner"]).get(f"{PAGE}{wrong}").status_code == 404
    assert Client().get(PAGE).status_code == 302


# The emergency stop


def test_the_owner_stops_and_goes_on(client: Client, person: Person) -> None:
    assert "Stop everything?" in client.get(f"{PAGE}stop").content.decode()
    assert not Stop.objects.exists()
    client.post(f"{PAGE}stop")
    client.post(f"{PAGE}stop")
    assert Stop.objects.get().organization == person.organization
    assert "its owner has stopped it" in plan_of(person.organization.pk).stopped
    page = text_of(client.get(PAGE))
    assert "Stopped. Nothing new is accepted" in page
    client.post(f"{PAGE}go-on")
    client.post(f"{PAGE}go-on")
    assert plan_of(person.organization.pk).stopped == ""


def test_what_the_operator_has_stopped_the_owner_cannot_start(client: Client, person: Person) -> None:
    stop(person.organization.pk, "Unpaid bills.")
    known_plans.clear()
    assert client.post(f"{PAGE}go-on").status_code == 409
    assert client.post(f"{PAGE}stop").status_code == 409
    assert Stop.objects.get().message == "Unpaid bills."
    page = text_of(client.get(PAGE))
    assert "Whoever runs this site has stopped this organization." in page
    assert "Let it work again" not in page
