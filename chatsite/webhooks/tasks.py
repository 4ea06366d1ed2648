"""Background work on webhooks: short and idempotent."""

from celery import shared_task

from chatsite.webhooks import delivering


@shared_task(name="chatsite.webhooks.tasks.deliver")
def deliver() -> None:
    """Sends what is due."""
    delivering.deliver_due()


@shared_task(name="chatsite.webhooks.tasks.forget_old")
def forget_old() -> None:
    """Clears out deliveries that ended a month ago."""
    delivering.forget_old()
