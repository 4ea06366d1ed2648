"""While processes are replaced one after the other, older ones write into tables that have new columns already."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.apps import apps
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations import AddField, CreateModel
from django.db.migrations.operations.base import Operation
from django.db.migrations.operations.special import SeparateDatabaseAndState

from chatsite.accounts.models import ApiKey
from chatsite.ids import new_id
from tests.conftest import Person

OURS = {"accounts", "webhooks", "quotas", "billing", "inference", "conversations"}


def _operations(migration: Any) -> Iterator[Operation]:
    for each in migration.operations:
        if isinstance(each, SeparateDatabaseAndState):
            yield from [*each.state_operations, *each.database_operations]
        else:
            yield each


def _added_later() -> Iterator[tuple[str, str]]:
    """Tables and columns that are there now, and were added to a table that had been there before."""
    for (app, _), migration in MigrationLoader(None).disk_migrations.items():
        if app not in OURS:
            continue
        found = list(_operations(migration))
        made = {each.name_lower for each in found if isinstance(each, CreateModel)}
        for each in found:
            if isinstance(each, AddField) and each.model_name_lower not in made:
                model = apps.get_model(app, each.model_name)
                field = next((field for field in model._meta.fields if field.name == each.name), None)
                if field is not None:
                    yield model._meta.db_table, str(field.column)


@pytest.mark.django_db
def test_every_column_that_came_later_may_be_left_out() -> None:
    later = set(_added_later())
    assert ("accounts_apikey", "scopes") in later and ("quotas_plan", "weight") in later
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT table_name, column_name FROM information_schema.columns"
            " WHERE table_schema = current_schema() AND is_nullable = 'NO' AND column_default IS NULL"
        )
        needed = set(cursor.fetchall())
    assert later & needed == set()


@pytest.mark.django_db
def test_a_process_from_before_there_were_scopes_makes_a_key(person: Person) -> None:
    id = new_id()
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO accounts_apikey (id, user_id, organization_id, name, prefix, digest, created_at)"
            " VALUES (%s, %s, %s, 'old', 'sk-x', 'x', now()), (%s, %s, %s, 'older', 'sk-y', 'y', now())",
            [id, person.user.pk, person.organization.pk, new_id(), person.user.pk, person.organization.pk],
        )
    old, older = ApiKey.objects.get(pk=id), ApiKey.objects.get(name="older")
    assert old.scopes == older.scopes == ["chat", "read"]
    assert len({old.chain_id, older.chain_id, person.key.chain_id}) == 3
    assert (old.pause_when_unusual, old.is_working, old.is_limited) == (False, True, False)
