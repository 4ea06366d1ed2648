"""The list of conversations beside the page."""

from dataclasses import dataclass
from datetime import date, timedelta

from django.utils import timezone

from chatsite.accounts.protocol import Principal
from chatsite.ids import public_id
from conversations import selectors
from conversations.models import Conversation

SIDEBAR_SIZE = 100
UNTITLED = "New chat"


@dataclass(frozen=True)
class Row:
    id: str
    title: str


@dataclass(frozen=True)
class Group:
    """Conversations of a time, such as Today."""

    label: str
    rows: list[Row]


def title_of(conversation: Conversation) -> str:
    return conversation.title or UNTITLED


def load_groups(principal: Principal) -> list[Group]:
    """The conversations that were used last."""
    today = timezone.now().date()
    groups: dict[str, Group] = {}
    for conversation in selectors.list_conversations(principal, limit=SIDEBAR_SIZE).data:
        label = age_label(conversation.updated_at.date(), today)
        row = Row(public_id("conv", conversation.id), title_of(conversation))
        groups.setdefault(label, Group(label, [])).rows.append(row)
    return list(groups.values())


def age_label(day: date, today: date) -> str:
    """Today, Yesterday, Previous 7 days, or the month."""
    if day >= today:
        return "Today"
    if day == today - timedelta(days=1):
        return "Yesterday"
    if day >= today - timedelta(days=7):
        return "Previous 7 days"
    return f"{day:%B %Y}"
