"""Everything on one machine, under one supervisor. `make run` calls it after the set-up."""

import asyncio
import os
import sys
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from chatsite import checks, mailing
from chatsite.operations.site import Site, SiteOptions
from inference.catalog import InvalidModelsFile, read_models

ASGI_SERVERS = ("daphne", "uvicorn")


class Command(BaseCommand):
    help = "Runs the whole site: stores, web, runner, worker, beat, engines. HOST and PORT say where it listens."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--follow-parent", action="store_true", help="End when the process that started this one ends"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            models = read_models(settings.MODELS_FILE)
        except InvalidModelsFile as error:
            raise CommandError(str(error)) from error
        server = os.environ.get("ASGI_SERVER") or ASGI_SERVERS[0]
        if server not in ASGI_SERVERS:
            raise CommandError(f"ASGI_SERVER is {server!r}: use one of {', '.join(ASGI_SERVERS)}")
        options_of_site = SiteOptions(
            root=settings.BASE_DIR,
            state=settings.STATE_DIR.absolute(),
            host=os.environ.get("HOST") or "127.0.0.1",
            port=_port(os.environ.get("PORT") or "8000"),
            models=models,
            asgi_server=server,
            follow_parent=options["follow_parent"],
        )
        site = Site(options_of_site)
        if mailing.is_sent() and not {**os.environ, **site.environment}.get("SITE_URL"):
            self.stderr.write(f"{checks.NO_LINKS} {checks.SET_SITE_URL}")  # servers run no checks
        sys.exit(asyncio.run(site.run()))


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 65536:
        raise CommandError(f"PORT is {text!r}: use a number from 1 to 65535")
    return int(text)
