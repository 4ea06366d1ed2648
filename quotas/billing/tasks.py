"""Background work on money: short and idempotent."""

from celery import shared_task

from quotas.billing import alerts, watch


@shared_task(name="quotas.billing.tasks.check_budgets")
def check_budgets() -> None:
    """Alerts of budgets, by mail and webhook."""
    alerts.check_active()
    alerts.send_mails()


@shared_task(name="quotas.billing.tasks.watch_spending")
def watch_spending() -> None:
    """Flags, and pauses, what spends ten times what is usual."""
    watch.check_active()
    watch.send_mails()
