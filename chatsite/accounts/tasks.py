"""Background work on accounts: short and idempotent."""

from celery import shared_task
from django.core.management import call_command

from chatsite.accounts import expiry, idempotency


@shared_task
def forget_old_calls() -> None:
    """Clears out Idempotency-Keys that are past their day."""
    idempotency.forget_old()


@shared_task
def forget_old_sessions() -> None:
    """Clears out the rows of sessions that have expired."""
    call_command("clearsessions")


@shared_task
def tell_of_expiring_keys() -> None:
    """Mails those whose API keys end within a week."""
    expiry.tell_owners()
