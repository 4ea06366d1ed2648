"""Mails that rows wait for: one after the other, each in a transaction of its own."""

from collections.abc import Callable
from typing import TypeVar

import structlog
from django.core.mail import EmailMessage
from django.db import transaction

from quotas.billing.models import BudgetAlert, SpendingFlag

MAILS_AT_ONCE = 200  # of one run; the next takes the rest
Row = TypeVar("Row", BudgetAlert, SpendingFlag)
log = structlog.stdlib.get_logger(__name__)


def send_due(rows: type[Row], mail_of: Callable[[Row], EmailMessage | None], mail: str) -> int:
    """Sends what `mail_of` makes of each row that is due, where it makes anything; returns how many rows.

    What cannot be sent is tried again by the next run. `mail`: which one, for the log.
    """
    for count in range(MAILS_AT_ONCE):
        try:
            if not _send_one(rows, mail_of):
                return count
        except OSError as error:  # which SMTP's own errors are too: the next mail would fail as well
            log.error("mail not sent", mail=mail, error=str(error))
            return count
    return MAILS_AT_ONCE


@transaction.atomic
def _send_one(rows: type[Row], mail_of: Callable[[Row], EmailMessage | None]) -> bool:
    """The row stays locked while the mail is sent, and is as before when that fails."""
    due = rows.objects.select_for_update(skip_locked=True, of=("self",)).select_related("organization")
    row = due.filter(mail_due=True).order_by("created_at").first()
    if row is None:
        return False
    row.mail_due = False
    row.save(update_fields=["mail_due"])
    mail = mail_of(row)
    if mail is not None:
        mail.send()
    return True
