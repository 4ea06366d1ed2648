"""Filters by age."""

from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from chatsite.accounts.models import User
from chatsite.admin_filters import made_since
from chatsite.ids import first_id, new_id
from tests.conftest import Person


def test_ids_of_a_moment_are_not_before_its_first_id() -> None:
    before = first_id(datetime.now(UTC))
    assert before <= new_id() < first_id(datetime.now(UTC) + timedelta(seconds=1))
    assert first_id(datetime(1960, 1, 1, tzinfo=UTC)).int == 0


@pytest.mark.django_db
def test_rows_from_a_moment_on(person: Person) -> None:
    assert person.user in made_since(User.objects.all(), timezone.now() - timedelta(hours=1))
    User.objects.update(created_at=timezone.now() - timedelta(hours=2))
    assert not made_since(User.objects.all(), timezone.now() - timedelta(hours=1)).exists()
