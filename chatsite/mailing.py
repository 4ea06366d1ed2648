"""Whether mails leave this machine."""

from typing import Final

from django.conf import settings

PRINTED: Final = "django.core.mail.backends.console.EmailBackend"
KEPT: Final = {
    PRINTED,
    *(f"django.core.mail.backends.{name}.EmailBackend" for name in ("dummy", "filebased", "locmem")),
}


def is_sent() -> bool:
    """Not so where they are printed, or kept in files or in memory, for trying out: who runs the site reads them."""
    return settings.EMAIL_BACKEND not in KEPT
