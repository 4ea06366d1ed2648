"""What has to be in the database before the site starts: one process, since each costs seconds to load."""

from argparse import ArgumentParser
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand


class Command(BaseCommand):
    help = "Migrates the database, registers models.toml and makes the demo user. `up` runs it."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--url", required=True, help="Where this site is reached")
        parser.add_argument("--replica", action="append", default=[], metavar="NAME=URL", help="As for syncmodels")

    def handle(self, *args: Any, **options: Any) -> None:
        call_command("migrate", interactive=False, verbosity=0, skip_checks=True)
        call_command("syncmodels", replica=options["replica"], stdout=self.stdout)
        call_command("demo", url=options["url"])
