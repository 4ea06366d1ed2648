"""A mail to the owner of an API key that is about to end: once for each end."""

from datetime import datetime, timedelta
from typing import Final

import structlog
from django.conf import settings
from django.core.mail import send_mail
from django.db import transaction
from django.db.models import F
from django.template.loader import render_to_string
from django.utils import timezone

from chatsite.accounts.models import ApiKey

AHEAD: Final = timedelta(days=7)
AT_ONCE: Final = 500  # mails of one run; the next takes the rest
log = structlog.stdlib.get_logger(__name__)


def tell_owners() -> int:
    """Mails everybody whose keys end within a week; returns how many mails. Several at once tell nobody twice.

    Not told: of keys that were made for no longer than that, that another has replaced, or that work no more. A mail
    that cannot be sent is tried again by the next run.
    """
    told = 0
    for _ in range(AT_ONCE):
        try:
            if not _tell_one():
                break
        except OSError as error:  # which SMTP's own errors are too: the next mail would fail as well
            log.error("mail not sent", mail="key_expires", error=str(error))
            break
        told += 1
    return told


@transaction.atomic
def _tell_one() -> bool:
    """The key stays locked while the mail is sent, and is as before when that fails."""
    now = timezone.now()
    key = (
        ApiKey.objects.select_for_update(skip_locked=True, of=("self",))
        .select_related("user")
        .filter(revoked_at=None, replaced_by=None, expiry_told_at=None, user__is_active=True)
        .filter(expires_at__gt=now, expires_at__lte=now + AHEAD)
        .filter(expires_at__gt=F("created_at") + AHEAD)
        .order_by("expires_at")
        .first()
    )
    if key is None:
        return False
    key.expiry_told_at = now
    key.save(update_fields=["expiry_told_at"])
    _mail(key, key.expires_at or now)
    return True


def _mail(key: ApiKey, end: datetime) -> None:
    page = f"{settings.SITE_URL}/account/keys/{key.public_id}" if settings.SITE_URL else ""
    context = {"key": key, "end": end, "page": page, "site_name": settings.SITE_NAME}
    subject = f"Your API key “{key.name}” expires on {end:%Y-%m-%d}"
    send_mail(subject, render_to_string("accounts/mail/key_expires.txt", context), None, [key.user.email])
