"""The command that stops the acceptance of new work."""

from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from quotas.models import Stop
from quotas.selectors import plan_of
from tests.conftest import Person

pytestmark = pytest.mark.django_db


def say(*args: str) -> str:
    out = StringIO()
    call_command("emergencystop", *args, stdout=out)
    return out.getvalue()


def test_everybody_and_one_organization_are_stopped_and_let_in_again(person: Person) -> None:
    name = person.organization.public_id
    assert say("--organization", name) == f"Stopped: nothing new from {name}.\n"
    assert "this organization" in plan_of(person.organization.id).stopped
    assert say("--message", "Back at noon.") == "Stopped: nothing new from everybody.\n"
    assert plan_of(person.organization.id).stopped == "Back at noon."
    assert say("--resume") == "Accepted again from everybody.\n"
    assert say("--organization", name, "--resume") == f"Accepted again from {name}.\n"
    assert say("--resume") == "There was no stop of everybody.\n"
    assert plan_of(person.organization.id).stopped == ""


@pytest.mark.parametrize("wrong", [["--organization", "x"], ["--organization", "org_0"], ["--message", "x" * 201]])
def test_what_is_wrong_is_said(wrong: list[str]) -> None:
    with pytest.raises(CommandError):
        say(*wrong)
    assert not Stop.objects.exists()
