"""Background work on plans and use: short and idempotent."""

from celery import shared_task

from quotas import rollups, services, usage_checks


@shared_task(name="quotas.tasks.make_partitions")
def make_partitions() -> None:
    """The ledger's partitions of the months to come."""
    services.make_partitions()


@shared_task(name="quotas.tasks.roll_up_usage")
def roll_up_usage() -> None:
    """The ledger's new rows into usage by hour and day."""
    rollups.roll_up()


@shared_task(name="quotas.tasks.check_usage")
def check_usage() -> None:
    """Whether the ledger, its rollups and the counters in Redis agree."""
    usage_checks.check()
