"""Stops the acceptance of new work, from everybody or from one organization, and takes that back."""

from argparse import ArgumentParser
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError

from chatsite.accounts.models import Organization
from chatsite.ids import parse_id
from quotas.models import Stop
from quotas.services import resume, stop


class Command(BaseCommand):
    help = "Nothing new is accepted (503), within five seconds; what runs goes on. --resume takes it back."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--organization", metavar="ID", help="Only from this one: org_... ; else from everybody")
        parser.add_argument("--message", default="", help="What callers are told, in a sentence")
        parser.add_argument("--resume", action="store_true", help="Accept again")

    def handle(self, *args: Any, **options: Any) -> None:
        organization_id = _organization(options["organization"])
        who = options["organization"] or "everybody"
        if options["resume"]:
            done = resume(organization_id)
            self.stdout.write(f"Accepted again from {who}." if done else f"There was no stop of {who}.")
            return
        if len(options["message"]) > (most := Stop._meta.get_field("message").max_length or 0):
            raise CommandError(f"--message may have {most} characters.")
        stop(organization_id, options["message"])
        self.stdout.write(f"Stopped: nothing new from {who}.")


def _organization(text: str | None) -> UUID | None:
    if text is None:
        return None
    found = parse_id("org", text)
    if found is None or not Organization.objects.filter(id=found).exists():
        raise CommandError(f"--organization {text}: there is none with that id.")
    return found
