"""Callers with limits a minute and at once, and what they reserve, settle and have taken."""

from uuid import UUID

from chatsite.accounts.protocol import KeyLimits, Principal
from chatsite.ids import new_id
from chatsite.redis import async_client
from quotas import selectors, services
from quotas.protocol import PlanLimits, Remaining, Standing, Used, Want

TTL = 10.0


def plan(tokens: int = 1000, concurrent: int = 1000, requests: int | None = None) -> PlanLimits:
    return PlanLimits("test", "free", tokens, concurrent, requests)


def caller(organization: UUID, key: KeyLimits | None = None) -> Principal:
    return Principal(new_id(), organization, key_limits=key)


def key(
    requests: int | None = None, tokens: int | None = None, concurrent: int | None = None, chain: UUID | None = None
) -> KeyLimits:
    return KeyLimits(chain or new_id(), "Billing", requests, tokens, concurrent)


async def reserve(
    organization: UUID, request: UUID, limits: PlanLimits, tokens: int, key: KeyLimits | None = None
) -> Remaining:
    return await services.reserve(caller(organization, key), limits, {request: Want(tokens)}, TTL)


async def settle(organization: UUID, request: UUID, tokens: int) -> None:
    assert await services.settle(organization, request, Used(tokens))


async def standing(organization: UUID, limits: PlanLimits, key: KeyLimits | None = None) -> Standing:
    """Of the key's bucket where there is one, else of the plan's."""
    return (await selectors.remaining(caller(organization, key), limits)).standings[-1]


async def expire(organization: UUID, request: UUID) -> None:
    """As if the request had not been renewed in time."""
    await async_client().zadd(f"{selectors.quota_prefix(organization)}:live", {str(request): 1})
