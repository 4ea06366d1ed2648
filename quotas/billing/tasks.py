"""Background work on money: short and idempotent."""

from celery import shared_task

from quotas.billing import alerts


@shared_task(name="quotas.billing.tasks.check_budgets")
def check_budgets() -> None:
    """Alerts of budgets, by mail and webhook."""
    alerts.check_active()
    alerts.send_mails()
