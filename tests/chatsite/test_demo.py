"""The demo user: made once, and told in a file for its owner only."""

import stat
from pathlib import Path

import pytest
from django.contrib.auth import authenticate
from django.core.management import call_command

from chatsite.accounts.models import ApiKey, User
from chatsite.accounts.selectors import key_holder, personal_organization
from chatsite.accounts.services import digest_of
from chatsite.management.commands.demo import read_env
from quotas.selectors import plan_of

pytestmark = pytest.mark.django_db
URL = "http://127.0.0.1:8000"


@pytest.fixture
def file(tmp_path: Path, settings: pytest.FixtureRequest) -> Path:
    settings.STATE_DIR = tmp_path
    return tmp_path / "demo.env"


def demo(file: Path, url: str = URL) -> dict[str, str]:
    call_command("demo", url=url)
    return read_env(file)


def test_the_file_lets_one_in(file: Path) -> None:
    told = demo(file)
    assert list(told) == ["CHATSITE_URL", "CHATSITE_EMAIL", "CHATSITE_PASSWORD", "CHATSITE_API_KEY"]
    assert told["CHATSITE_URL"] == URL
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    user = authenticate(username=told["CHATSITE_EMAIL"], password=told["CHATSITE_PASSWORD"])
    assert isinstance(user, User)
    assert user.is_superuser
    holder = key_holder(digest_of(told["CHATSITE_API_KEY"]))
    assert holder is not None
    assert holder.user == user


def test_the_demo_plan(file: Path) -> None:
    user = User.objects.get(email=demo(file)["CHATSITE_EMAIL"])
    organization = personal_organization(user)
    assert organization is not None
    plan = plan_of(organization.id)
    assert (plan.tokens_per_minute, plan.concurrent) == (10_000_000, 128)


def test_later_starts_change_nothing_but_the_address(file: Path) -> None:
    first = demo(file)
    written = file.stat()
    assert demo(file) == first
    assert file.stat().st_ino == written.st_ino
    assert demo(file, "http://127.0.0.1:9000") == {**first, "CHATSITE_URL": "http://127.0.0.1:9000"}
    assert User.objects.count() == ApiKey.objects.count() == 1


def test_a_lost_file_brings_new_secrets_and_ends_the_old_key(file: Path) -> None:
    first = demo(file)
    file.unlink()
    second = demo(file)
    assert second["CHATSITE_PASSWORD"] != first["CHATSITE_PASSWORD"]
    assert User.objects.count() == 1
    assert key_holder(digest_of(first["CHATSITE_API_KEY"])) is None
    assert key_holder(digest_of(second["CHATSITE_API_KEY"])) is not None


def test_an_emptied_database_brings_a_new_user(file: Path) -> None:
    first = demo(file)
    User.objects.all().delete()
    second = demo(file)
    assert second["CHATSITE_API_KEY"] != first["CHATSITE_API_KEY"]
    assert authenticate(username=second["CHATSITE_EMAIL"], password=second["CHATSITE_PASSWORD"])


def test_a_changed_password_is_left_alone(file: Path) -> None:
    first = demo(file)
    user = User.objects.get(email=first["CHATSITE_EMAIL"])
    user.set_password("my own")
    user.save()
    demo(file)
    assert authenticate(username=user.email, password="my own")
