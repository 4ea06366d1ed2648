"""Refunds by the staff: a row in the ledger, and beside it why."""

from decimal import Decimal
from uuid import UUID

from django.db import transaction

from chatsite.accounts.models import User
from chatsite.errors import Conflict
from chatsite.reasons import stated
from quotas.billing.models import Refund
from quotas.ledger import refund
from quotas.models import LedgerEntry


def refunded(request_id: UUID) -> int:
    """How many refunds the request has."""
    return LedgerEntry.objects.filter(request_id=request_id, kind=LedgerEntry.Kind.REFUND).count()


@transaction.atomic
def refund_with_reason(staff: User, request_id: UUID, amount: Decimal, reason: str, *, after: int) -> Refund:
    """Gives back a part of what a request cost. `after`: how many refunds it had when the form was made, so that a
    form that is sent twice pays once.

    Raises Conflict, and what `refund` and `stated` raise; then nothing was written.
    """
    row = refund(request_id, amount)
    if row.seq != after:
        raise Conflict("Something of this request was refunded meanwhile. Look at its entries, then send this again.")
    return Refund.objects.create(
        request_id=request_id,
        seq=row.seq,
        organization_id=row.organization_id,
        amount=amount,
        reason=stated(reason),
        staff_id=staff.pk,
        staff_email=staff.email,
    )
