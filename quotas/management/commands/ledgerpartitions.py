"""Makes the ledger's partitions of the months to come."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from chatsite import typed
from quotas.services import make_partitions


class Command(BaseCommand):
    help = "Makes the ledger's partitions of this month and the next ones. Celery does it each day."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--ahead", type=typed.whole, default=3, choices=range(25), metavar="MONTHS", help="0 to 24")

    def handle(self, *args: Any, **options: Any) -> None:
        made = make_partitions(options["ahead"])
        self.stdout.write(f"Made: {', '.join(f'{each:%Y-%m}' for each in made)}" if made else "All are there.")
