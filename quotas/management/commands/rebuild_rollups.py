"""Makes usage by hour and by day again from the ledger."""

from typing import Any

from django.core.management.base import BaseCommand

from quotas import rollups


class Command(BaseCommand):
    help = "Makes usage by hour and by day again from the whole ledger. The site may run: what it shows stays exact."

    def handle(self, *args: Any, **options: Any) -> None:
        rollups.rebuild()
        self.stdout.write(f"Made again, up to row {rollups.mark():,} of the ledger.")
