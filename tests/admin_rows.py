"""Rows to look at in the admin, and who looks."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.contrib.auth.models import Permission
from django.test import Client
from django.utils import timezone

from chatsite.accounts import history
from chatsite.accounts.models import Invitation, KeyEvent, OrganizationEvent, User
from chatsite.accounts.protocol import Actor, Via
from chatsite.ids import new_id
from chatsite.webhooks.models import Delivery, Endpoint
from conversations.models import Conversation, Message, Share, TextAccess
from inference.models import CallReading, KeptCall, Model, Replica, Request, TextKeeping
from inference.protocol import Usage
from quotas import rollups
from quotas.billing.models import BudgetAlert, Grant, Refund, SpendingFlag
from quotas.models import Budget, LedgerEntry, Plan, Price, Stop, UsageCheck, UsageDay, UsageFinding, UsageHour
from quotas.services import Prices, record_usage, sync_price
from tests.conftest import Person

SECRET = "what nobody may see without a reason"
HOSTILE = "<script>window.ran = 1</script>"
LISTS = [
    "accounts_user",
    "accounts_organization",
    "accounts_membership",
    "accounts_invitation",
    "accounts_organizationevent",
    "accounts_apikey",
    "accounts_keyevent",
    "usersessions_usersession",
    "socialaccount_socialaccount",
    "auth_group",
    "inference_request",
    "inference_model",
    "inference_replica",
    "inference_keptcall",
    "inference_callreading",
    "inference_textkeeping",
    "quotas_ledgerentry",
    "quotas_usageday",
    "quotas_usagehour",
    "quotas_usagecheck",
    "quotas_usagefinding",
    "quotas_plan",
    "quotas_subscription",
    "quotas_budget",
    "quotas_price",
    "quotas_stop",
    "billing_statement",
    "billing_refund",
    "billing_grant",
    "billing_budgetalert",
    "billing_spendingflag",
    "webhooks_endpoint",
    "webhooks_delivery",
    "conversations_conversation",
    "conversations_message",
    "conversations_share",
    "conversations_textaccess",
]
SINGLE_PAGES = ["inference_schedulertuning", "quotas_topspender"]  # one page, no list


def make_model(name: str = "small", **changes: Any) -> Model:
    values = {"title": name, "context_length": 4096, "path": "nowhere", "tiers": ["free", "paid", "enterprise"]}
    prices = {"price_input": Decimal("0.1"), "price_cached": Decimal("0.01"), "price_output": Decimal("0.4")}
    return Model.objects.create(name=name, **{**values, **prices, **changes})


@dataclass(frozen=True)
class Rows:
    """One row of everything, all of one person."""

    person: Person
    model: Model
    replica: Replica
    conversation: Conversation
    question: Message
    reply: Message
    request: Request
    share: Share
    access: TextAccess

    @property
    def ledger(self) -> LedgerEntry:
        return LedgerEntry.objects.get(request_id=self.request.id)

    def pages(self) -> Iterator[tuple[str, Any]]:
        """What has a page of its own: the admin's name for it, and the key."""
        yield from [
            ("accounts_user", self.person.user.pk),
            ("accounts_organization", self.person.organization.pk),
            ("accounts_membership", self.person.user.memberships.get().pk),
            ("accounts_invitation", Invitation.objects.get(organization=self.person.organization).pk),
            ("accounts_organizationevent", OrganizationEvent.objects.latest("id").pk),
            ("accounts_apikey", self.person.key.pk),
            ("accounts_keyevent", KeyEvent.objects.filter(key_id=self.person.key.pk).latest("id").pk),
            ("inference_request", self.request.pk),
            ("inference_model", self.model.pk),
            ("inference_replica", self.replica.pk),
            ("inference_keptcall", KeptCall.objects.get(organization=self.person.organization).pk),
            ("inference_callreading", CallReading.objects.latest("id").pk),
            ("inference_textkeeping", self.person.organization.pk),
            ("quotas_ledgerentry", self.ledger.pk),
            ("quotas_usageday", UsageDay.objects.get(organization_id=self.person.organization.pk).pk),
            ("quotas_usagehour", UsageHour.objects.filter(organization_id=self.person.organization.pk).latest("id").pk),
            ("quotas_usagecheck", UsageCheck.objects.latest("id").pk),
            ("quotas_usagefinding", UsageFinding.objects.get(organization_id=self.person.organization.pk).pk),
            ("quotas_plan", Plan.objects.get(name="free").pk),
            ("quotas_subscription", self.person.organization.pk),
            ("quotas_budget", self.person.organization.budgets.get().pk),
            ("quotas_price", Price.objects.get(model=self.model.name).pk),
            ("quotas_stop", Stop.objects.get(organization=self.person.organization).pk),
            *self._money(),
            ("conversations_conversation", self.conversation.pk),
            ("conversations_message", self.reply.pk),
            ("conversations_share", self.share.pk),
            ("conversations_textaccess", self.access.pk),
        ]

    def _money(self) -> Iterator[tuple[str, Any]]:
        organization = self.person.organization
        yield "billing_statement", organization.pk
        yield "billing_refund", Refund.objects.get(organization_id=organization.pk).pk
        yield "billing_grant", Grant.objects.get(organization=organization).pk
        yield "billing_budgetalert", BudgetAlert.objects.get(organization=organization).pk
        yield "billing_spendingflag", SpendingFlag.objects.get(organization=organization).pk
        yield "webhooks_endpoint", Endpoint.objects.get(organization=organization).pk
        yield "webhooks_delivery", Delivery.objects.get(endpoint__organization=organization).pk


def make_money(person: Person) -> None:
    """A grant, a refund's reason, an alert, a flag, and a webhook that was told of the alert."""
    owner = {"organization": person.organization}
    day = timezone.now().date()
    Grant.objects.create(**owner, tokens=1000, last_day=day, reason="Ticket 4713.", granted_by="root@example.com")
    BudgetAlert.objects.create(
        **owner, scope="organization", subject="org", unit="tokens", days=0, hard=True, limit=100, period_start=day,
        threshold=80, spent=81, title="The budget of the organization",
    )  # fmt: skip
    SpendingFlag.objects.create(**owner, scope="key", subject_id=person.key.chain_id, spent=20, usual=1, paused=False)
    Refund.objects.create(
        request_id=new_id(), seq=0, organization_id=person.organization.pk, amount=1, reason="Ticket 4714.",
        staff_id=person.user.pk, staff_email=person.user.email,
    )  # fmt: skip
    hook = Endpoint.objects.create(**owner, url="https://example.org/hook", events=["budget.threshold"])
    Delivery.objects.create(endpoint=hook, event="budget.threshold", body="{}")


def make_rows(person: Person, model: Model, **request: Any) -> Rows:
    """A conversation of one turn, answered ten seconds ago."""
    replica, _ = Replica.objects.get_or_create(model=model, url="http://127.0.0.1:8100")
    owner = {"organization": person.organization, "user": person.user}
    conversation = Conversation.objects.create(**owner, model=model, title=SECRET, system_prompt=SECRET)
    question = Message.objects.create(conversation=conversation, role="user", content=SECRET)
    reply = Message.objects.create(
        conversation=conversation, parent=question, role="assistant", content=SECRET, model=model
    )
    row = make_request(person, model, owner_id=reply.id, replica=replica, **request)
    reply.request_id = row.id
    reply.save()
    conversation.active_leaf = reply
    conversation.save()
    share = Share.objects.create(conversation=conversation, leaf=reply)
    access = TextAccess.objects.create(
        staff_id=person.user.id, staff_email=person.user.email, conversation_id=conversation.id, reason="Ticket 4711."
    )
    make_kept(person, model)
    make_limits(person, model)
    make_money(person)
    make_usage(person)
    make_invited(person)
    return Rows(person, model, replica, conversation, question, reply, row, share, access)


def make_limits(person: Person, model: Model) -> None:
    """A budget that is far from spent, a price list, and a stop: nobody sends anything here."""
    Budget.objects.create(organization=person.organization, limit_cost=Decimal(100))
    sync_price(model.name, Prices(model.price_input, model.price_cached, model.price_output))
    Stop.objects.create(organization=person.organization)


def make_usage(person: Person) -> None:
    """Rollups, and a check that found something wrong with them."""
    rollups.roll_up()
    check = UsageCheck.objects.create(since="2026-01-01", ended_at=timezone.now(), findings=1)
    UsageFinding.objects.create(
        of_check=check, organization_id=person.organization.pk, what="counter", subject="org", unit="tokens",
        in_ledger=12, found=13,
    )  # fmt: skip


def make_invited(person: Person) -> Invitation:
    """Somebody who was asked to join the person's organization."""
    invitation = Invitation.objects.create(
        organization=person.organization,
        email="grace@example.com",
        digest=str(person.organization.pk),
        invited_by=person.user,
        expires_at=timezone.now() + timedelta(days=7),
    )
    by = Actor(person.user.pk, Via.PAGE, "192.0.2.1")
    history.record(person.organization.pk, OrganizationEvent.Kind.INVITED, by, invitation_id=invitation.pk)
    return invitation


def make_kept(person: Person, model: Model) -> KeptCall:
    """A call of the API whose text is kept, and has been read."""
    TextKeeping.objects.create(organization=person.organization)
    call = KeptCall.objects.create(
        request_id=new_id(),
        organization=person.organization,
        user_id=person.user.id,
        api_key_id=person.key.id,
        model=model.name,
        prompt=[{"role": "user", "content": SECRET}],
        answer=SECRET,
    )
    CallReading.objects.create(
        staff_id=person.user.id, staff_email=person.user.email, call_id=call.id, reason="Ticket 4712."
    )
    return call


def make_request(person: Person, model: Model, **changes: Any) -> Request:
    """One that has succeeded and is settled, unless `changes` say otherwise."""
    begun = timezone.now() - timedelta(seconds=10)
    values: dict[str, Any] = {
        "id": new_id(),
        "organization": person.organization,
        "user_id": person.user.id,
        "api_key_id": person.key.id,
        "model": model,
        "lane": "paid",
        "owner_kind": "message",
        "owner_id": new_id(),
        "status": "succeeded",
        "finish_reason": "stop",
        "sampling": {"max_tokens": 1024, "temperature": 0.7, "stop": []},
        "cache_salt": "salt",
        "prompt_tokens": 812,
        "cached_tokens": 640,
        "output_tokens": 245,
        "attempt": 1,
        "created_at": begun,
        "deadline": begun + timedelta(seconds=60),
        "claimed_at": begun + timedelta(seconds=1),
        "first_token_at": begun + timedelta(seconds=1.5),
        "finished_at": begun + timedelta(seconds=5),
        "released_at": begun + timedelta(seconds=5.03),
    }
    row = Request.objects.create(**{**values, **changes})
    if row.finished_at:
        record_usage(
            request_id=row.id,
            organization_id=row.organization_id,
            user_id=row.user_id,
            api_key_id=row.api_key_id,
            model=row.model_id,
            prices=Prices(model.price_input, model.price_cached, model.price_output),
            usage=Usage(row.prompt_tokens, row.cached_tokens, row.output_tokens),
            outcome=row.status,
            source="engine",
        )
    return row


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def grant(user: User, *permissions: str) -> User:
    """Makes the user one of the staff, with these rights alone: `conversations.view_conversation`."""
    user.is_staff = True
    user.save()
    for each in permissions:
        app, codename = each.split(".")
        user.user_permissions.add(Permission.objects.get(content_type__app_label=app, codename=codename))
    return User.objects.get(pk=user.pk)  # rights are remembered by the object
