"""Usage events: one entry in the Redis stream `v1:usage` for each request that is settled, for consumers outside."""

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Final
from uuid import UUID

from django.conf import settings

from chatsite.ids import public_id
from chatsite.redis import SCHEMA, Arg, Call, Script

STREAM: Final = f"{SCHEMA}:usage"
KEPT: Final = 100_000  # entries, about
PUBLISH: Final = Script.load(Path(__file__).parent / "redis" / "publish_usage.lua")


@dataclass(frozen=True)
class UsageEvent:
    """What the ledger has of a request. `cost` is in the settings' currency."""

    request_id: UUID
    organization_id: UUID
    user_id: UUID
    api_key_id: UUID | None
    model: str
    lane: str
    input: int
    cached: int
    output: int
    cost: Decimal
    outcome: str


def publish_call(event: UsageEvent) -> Call:
    """To be sent with the other last steps of a request; a repeat adds another entry with the same request id."""
    fields: dict[str, Arg] = {
        "request": public_id("req", event.request_id),
        "organization": public_id("org", event.organization_id),
        "user": public_id("user", event.user_id),
        "key": public_id("key", event.api_key_id) if event.api_key_id else "",
        "model": event.model,
        "lane": event.lane,
        "input": event.input,
        "cached": event.cached,
        "output": event.output,
        "cost": f"{event.cost:f}",
        "currency": settings.CURRENCY,
        "outcome": event.outcome,
    }
    return Call(PUBLISH, STREAM, (KEPT, *(part for field in fields.items() for part in field)))
