"""The texts of stateless calls, for organizations that asked for them to be kept: written, forgotten, read."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import structlog
from django.db import transaction
from django.utils import timezone

from chatsite.accounts.models import User
from chatsite.accounts.protocol import Principal
from chatsite.caching import ShortCache
from chatsite.database import run_db
from chatsite.errors import NotFound, PermissionDenied
from chatsite.reasons import stated
from inference.models import CallReading, KeptCall, TextKeeping
from inference.protocol import Turn

PERMISSION: Final = "inference.read_call"
known_days: ShortCache[UUID, int] = ShortCache(5.0)  # a changed setting holds everywhere after this long
log = structlog.get_logger(__name__)


async def keeps(organization_id: UUID) -> bool:
    """Whether texts of its calls are kept. A thread is used only when that is not known."""
    known = known_days.get(organization_id)
    return (known if known is not None else await run_db(_days, organization_id)) > 0


def _days(organization_id: UUID) -> int:
    found = TextKeeping.objects.filter(organization_id=organization_id).values_list("days", flat=True).first() or 0
    known_days.put(organization_id, found)
    return found


def setting_of(organization_id: UUID) -> TextKeeping | None:
    """As it is now. None: nothing is kept."""
    return TextKeeping.objects.filter(organization_id=organization_id).first()


def keep(request_id: UUID, principal: Principal, model: str, prompt: str | Sequence[Turn] | Sequence[int]) -> UUID:
    """Writes what was asked, in the transaction that accepts the request; the kept call's id."""
    row = KeptCall.objects.create(
        request_id=request_id,
        organization_id=principal.organization_id,
        user_id=principal.user_id,
        api_key_id=principal.api_key_id,
        model=model,
        prompt=_plain(prompt),
    )
    return row.id


def _plain(prompt: str | Sequence[Turn] | Sequence[int]) -> Any:
    if isinstance(prompt, str):
        return prompt
    return [{"role": str(one.role), "content": one.content} if isinstance(one, Turn) else one for one in prompt]


def note_answer(call_id: UUID, answer: str) -> None:
    """In the transaction that ends the request. Nothing happens where the call is forgotten already."""
    KeptCall.objects.filter(id=call_id).update(answer=answer)


def forget_old() -> int:
    """Deletes what is older than its organization wishes, and all of those that wish it no more; how many."""
    now, count = timezone.now(), 0
    keepings = list(TextKeeping.objects.all())
    for keeping in keepings:
        old = now - timedelta(days=keeping.days)
        count += KeptCall.objects.filter(organization_id=keeping.pk, created_at__lt=old).delete()[0]
    return count + KeptCall.objects.exclude(organization_id__in=[each.pk for each in keepings]).delete()[0]


@dataclass(frozen=True)
class Reading:
    """A kept call, and the record of who looks at it. `turns`: (who, text)."""

    record: CallReading
    call: KeptCall

    @property
    def turns(self) -> list[tuple[str, str]]:
        prompt = self.call.prompt
        if isinstance(prompt, list) and prompt and isinstance(prompt[0], dict):
            asked = [(turn["role"], turn["content"]) for turn in prompt]
        else:
            asked = [("prompt", prompt if isinstance(prompt, str) else f"Token ids {prompt}")]
        return [*asked, ("answer", self.call.answer)]


def may_read(staff: User) -> bool:
    return staff.is_active and staff.is_staff and staff.has_perm(PERMISSION)


def read_with_reason(staff: User, call_id: UUID, reason: str) -> Reading:
    """Writes the record, then reads; without a record there is no text.

    Raises PermissionDenied, NotFound, and InvalidInput for a reason that is none; then nothing was written.
    """
    if not may_read(staff):
        raise PermissionDenied("You may not read kept calls.")
    reason = stated(reason)
    with transaction.atomic():
        call = KeptCall.objects.filter(id=call_id).first()
        if call is None:
            raise NotFound
        record = CallReading.objects.create(staff_id=staff.id, staff_email=staff.email, call_id=call_id, reason=reason)
    log.info("kept call read", staff=str(staff.id), call=str(call_id), record=str(record.id))
    return Reading(record, call)
