"""Registers models.toml in the database."""

from argparse import ArgumentParser
from collections import defaultdict
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from inference.catalog import InvalidModelsFile, read_models
from inference.services import sync_models


class Command(BaseCommand):
    help = "Makes the models and replicas of the database those of models.toml."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--replica", action="append", default=[], metavar="NAME=URL", help="An engine that this installation starts"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        started: dict[str, list[str]] = defaultdict(list)
        for pair in options["replica"]:
            name, separator, url = pair.partition("=")
            if not separator or not url:
                raise CommandError(f"--replica {pair}: write NAME=URL")
            started[name].append(url)
        try:
            specs = read_models(settings.MODELS_FILE)
        except InvalidModelsFile as error:
            raise CommandError(str(error)) from error
        sync_models(specs, started)
        self.stdout.write(f"Models: {', '.join(spec.name for spec in specs)}")
