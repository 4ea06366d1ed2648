"""The quiet figures under the message box: how full the context is, and what is left of the plan's minute."""

from dataclasses import dataclass
from uuid import UUID

from django.db import connection

from chatsite.accounts.protocol import Principal
from chatsite.database import run_db
from chatsite.errors import Unavailable
from conversations.context import TURN_OVERHEAD
from conversations.models import Conversation
from conversations.selectors import read_sql
from quotas import selectors as quota_selectors
from quotas.protocol import Remaining


@dataclass(frozen=True)
class Meters:
    """Ready-made text, each empty when there is nothing to say, and the numbers behind it, in tokens."""

    context: str = ""  # 12 % of 4,096 tokens
    quota: str = ""  # 58,000 of 60,000 tokens left this minute
    context_used: int = 0
    context_length: int = 0  # 0: the model is not known
    quota_left: int | None = None  # None while the limits cannot be read
    quota_limit: int = 0

    @property
    def context_percent(self) -> int:
        """0 to 100, rounded up: what is not empty does not say 0 %."""
        if not self.context_length:
            return 0
        return min(100, -(-100 * self.context_used // self.context_length))

    @property
    def context_short(self) -> str:
        """For a narrow screen."""
        return f"{self.context_percent} %" if self.context else ""

    @property
    def quota_short(self) -> str:
        """For a narrow screen."""
        return f"{self.quota_left:,} tokens left this minute" if self.quota else ""


async def load_meters(principal: Principal, conversation: Conversation | None, context_length: int) -> Meters:
    """`conversation` None: a new chat. `context_length`: of its model, in tokens; 0 when there is none."""
    used = await run_db(context_used, conversation.id) if conversation else 0
    left = await _remaining(principal)
    return meters_of(used, context_length, left)


def context_used(conversation_id: UUID) -> int:
    """About how many tokens of the active branch the model sees. A reply that still runs counts when it has ended."""
    leaf = Conversation.objects.filter(id=conversation_id).values_list("active_leaf_id", flat=True).first()
    if leaf is None:
        return 0
    with connection.cursor() as cursor:
        cursor.execute(read_sql("meter"), {"conversation": conversation_id, "leaf": leaf})
        tokens, turns = cursor.fetchone()
    return int(tokens) + int(turns) * TURN_OVERHEAD


def meters_of(used: int, context_length: int, left: Remaining | None) -> Meters:
    """Pure. `left` None: the limits cannot be read."""
    tokens = left.tokens if left else None
    found = Meters(
        context_used=used,
        context_length=context_length,
        quota_left=tokens.remaining if tokens else None,
        quota_limit=tokens.limit if tokens else 0,
    )
    return Meters(
        _context_text(found),
        _quota_text(found),
        found.context_used,
        found.context_length,
        found.quota_left,
        found.quota_limit,
    )


async def _remaining(principal: Principal) -> Remaining | None:
    plan = await quota_selectors.aplan_of(principal.organization_id)
    try:
        return await quota_selectors.remaining(principal, plan)
    except Unavailable:
        return None  # a page without this figure is better than none


def _context_text(meters: Meters) -> str:
    if not meters.context_used or not meters.context_length:
        return ""
    return f"{meters.context_percent} % of {meters.context_length:,} tokens"


def _quota_text(meters: Meters) -> str:
    if meters.quota_left is None:
        return ""
    return f"{meters.quota_left:,} of {meters.quota_limit:,} tokens left this minute"
