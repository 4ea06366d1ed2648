"""The demo user, made once, and the file that says how to log in."""

import os
import secrets
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand
from django.db import transaction

from chatsite.accounts.models import User
from chatsite.accounts.services import (
    create_api_key,
    create_user,
    personal_organization,
    revoke_api_key,
    settle_user,
)
from quotas.services import subscribe

EMAIL = "demo@example.com"
NAME = "Demo"
PLAN = "demo"
KEY_NAME = "demo.env"
PASSWORD_BYTES = 12  # 16 characters


class Command(BaseCommand):
    help = "Makes the demo user, a superuser on the plan `demo`, and writes demo.env into the state folder."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--url", required=True, help="Where this site is reached")

    def handle(self, *args: Any, **options: Any) -> None:
        file = settings.STATE_DIR / "demo.env"
        known = read_env(file)
        if not {"CHATSITE_EMAIL", "CHATSITE_PASSWORD", "CHATSITE_API_KEY"} <= known.keys() or not _exists(known):
            known = _make_demo_user()
        write_env(file, {**known, "CHATSITE_URL": options["url"]})


def _exists(known: dict[str, str]) -> bool:
    """False when the database was emptied while the file stayed."""
    return User.objects.filter(email=known["CHATSITE_EMAIL"]).exists()


@transaction.atomic
def _make_demo_user() -> dict[str, str]:
    """New secrets, also where the user is there already but the file is not: what is stored cannot be read back."""
    password = secrets.token_urlsafe(PASSWORD_BYTES)
    user = User.objects.filter(email=EMAIL).first()
    if user is None:
        user = create_user(EMAIL, password, name=NAME, superuser=True)
    else:
        user.set_password(password)
        user.save(update_fields=["password"])
        settle_user(user)
        for old in user.api_keys.filter(name=KEY_NAME, revoked_at=None):
            revoke_api_key(old)
    organization = personal_organization(user)
    subscribe(organization.pk, PLAN)
    _, key = create_api_key(user, organization, KEY_NAME)
    return {"CHATSITE_EMAIL": EMAIL, "CHATSITE_PASSWORD": password, "CHATSITE_API_KEY": key}


def read_env(file: Path) -> dict[str, str]:
    """The `KEY=value` lines of the file; nothing where there is none."""
    if not file.exists():
        return {}
    pairs = (line.partition("=") for line in file.read_text().splitlines())
    return {key: value for key, separator, value in pairs if separator}


def write_env(file: Path, values: dict[str, str]) -> None:
    """Replaces the file at once, readable by its owner only."""
    keys = ("CHATSITE_URL", "CHATSITE_EMAIL", "CHATSITE_PASSWORD", "CHATSITE_API_KEY")
    text = "".join(f"{key}={values[key]}\n" for key in keys)
    if file.exists() and file.read_text() == text:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_name(f".{file.name}-{os.getpid()}")
    fresh.touch(mode=0o600)
    fresh.write_text(text)
    fresh.replace(file)
