"""Who is calling: passed from authentication to every service."""

from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from uuid import UUID

from chatsite.scopes import Scope


@dataclass(frozen=True)
class KeyLimits:
    """What one API key may use at most, within its organization's plan. None: no limit of its own.

    `chain_id` is shared by keys that replace one another: together they have these limits once.
    """

    chain_id: UUID
    name: str
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent: int | None = None
    monthly_tokens: int | None = None
    monthly_cost: Decimal | None = None


@dataclass(frozen=True)
class MemberLimits:
    """What one member may use at most in the organization, their sessions and keys together. None: no such limit.

    `name` is what people call them, for sentences. Months are those of UTC; a cost is in the currency of the prices.
    """

    user_id: UUID
    name: str
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent: int | None = None
    monthly_tokens: int | None = None
    monthly_cost: Decimal | None = None


@dataclass(frozen=True)
class Principal:
    """The caller of a request. `api_key_id` is None for a browser session, which has every scope.

    Without scopes a caller may do nothing over the API. `chain_id` is shared by API keys that replace one another: what
    they use is counted together, whether anything limits it now or not.
    """

    user_id: UUID
    organization_id: UUID
    api_key_id: UUID | None = None
    scopes: frozenset[Scope] = frozenset()
    key_limits: KeyLimits | None = None
    member_limits: MemberLimits | None = None
    chain_id: UUID | None = None

    @property
    def scope(self) -> UUID:
        """What an Idempotency-Key belongs to: the key, or the user of a session."""
        return self.api_key_id or self.user_id


class Via(StrEnum):
    """Where a change came from."""

    PAGE = "page"
    ADMIN = "admin"
    COMMAND = "command"
    SITE = "site"  # by itself


@dataclass(frozen=True)
class Actor:
    """Who changes something: a user, or None for a command or the site itself; `address` is the client's."""

    user_id: UUID | None
    via: Via
    address: str | None = None


COMMAND = Actor(None, Via.COMMAND)
SITE = Actor(None, Via.SITE)
