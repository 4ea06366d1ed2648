"""Mails that rows wait for: one after the other, each in a transaction of its own."""

from collections.abc import Callable

import structlog

MAILS_AT_ONCE = 200  # of one run; the next takes the rest
log = structlog.stdlib.get_logger(__name__)


def send_due(send_one: Callable[[], bool], mail: str) -> int:
    """Calls `send_one` until it says that nothing is due; returns how many mails. What cannot be sent is tried again by
    the next run. `mail`: which one, for the log."""
    for count in range(MAILS_AT_ONCE):
        try:
            if not send_one():
                return count
        except OSError as error:  # which SMTP's own errors are too: the next mail would fail as well
            log.error("mail not sent", mail=mail, error=str(error))
            return count
    return MAILS_AT_ONCE
