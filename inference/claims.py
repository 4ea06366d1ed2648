"""The runner's hold on a request in PostgreSQL: `claim` fences every append, flush and settle."""

import json
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from psycopg.types.json import Jsonb

from inference.models import Request, RequestStatus
from inference.owners import owner

# In SQL, since the ORM needs four statements and a millisecond for it. It makes the two moves that are checked here.
_FIELDS = Request._meta.concrete_fields
_COLUMNS = ", ".join(f"request.{field.column}" for field in _FIELDS)
_CLAIM = (Path(__file__).parent / "sql" / "claim.sql").read_text().replace("{columns}", _COLUMNS)
assert Request.TRANSITIONS.allows(RequestStatus.QUEUED, RequestStatus.RUNNING)


def take(
    request_id: UUID,
    claim: UUID,
    attempt: int,
    replica_id: UUID,
    placement: Mapping[str, Any],
    owner_kind: str = "",
) -> Request | None:
    """Compare-and-set: this attempt has the request from now on. None when it is over, gone, or a later one has it.

    `placement`: why it is on that replica, for its record. `owner_kind`: where it is known; an owner that keeps no text
    does not hear of it, and one statement is all.
    """
    hears = not owner_kind or owner(owner_kind).keeps_text
    with transaction.atomic() if hears else nullcontext():
        with connection.cursor() as cursor:
            given: dict[str, Any] = {"id": request_id, "attempt": attempt, "claim": claim, "replica": replica_id}
            cursor.execute(_CLAIM, given | {"placement": Jsonb([placement])})
            row = cursor.fetchone()
        if row is None:
            return None
        *values, before = row
        request = Request.from_db(connection.alias, [field.attname for field in _FIELDS], values)
        request.sampling = json.loads(request.sampling)  # the cursor gives it as text
        request.decision = json.loads(request.decision)
        if hears and before == RequestStatus.QUEUED:
            owner(request.owner_kind).claimed(request.owner_id, request.id)
        return request


def held(request_id: UUID, claim: UUID) -> Request | None:
    """The request, when PostgreSQL still gives it to that claim."""
    return Request.objects.filter(id=request_id, claim=claim, status=RequestStatus.RUNNING).first()
