"""Tables to which rows are only added."""

from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.db.migrations.state import ProjectState

from chatsite.append_only import append_only, not_emptied

pytestmark = pytest.mark.django_db


CHANGES = ["UPDATE notes_of_test SET text = 'b'", "DELETE FROM notes_of_test", "TRUNCATE notes_of_test"]
TABLES = [
    "accounts_keyevent",
    "accounts_organizationevent",
    "billing_refund",
    "conversations_textaccess",
    "inference_callreading",
    "quotas_ledgerentry",
]


@pytest.mark.parametrize("table", TABLES)
def test_no_table_of_the_site_s_is_emptied(table: str) -> None:
    with connection.cursor() as cursor, pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        cursor.execute(f"TRUNCATE {table} CASCADE")


def test_the_tables_above_are_all_there_are() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT tgrelid::regclass::text FROM pg_trigger WHERE tgname LIKE '%_append_only' AND tgparentid = 0 "
            "ORDER BY 1"
        )
        assert [row[0] for row in cursor.fetchall()] == TABLES


def test_a_table_from_before_is_not_emptied_either() -> None:
    """Once more for one that refuses already, it changes nothing."""
    operation, state = append_only("notes_of_test", "notes", "notes stay"), ProjectState()
    later = not_emptied("notes_of_test", "notes")
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE notes_of_test (text text)")
        run(operation.database_forwards, state)
        for _ in range(2):
            run(later.database_forwards, state)
            with pytest.raises(DatabaseError, match="notes stay"), transaction.atomic():
                cursor.execute("TRUNCATE notes_of_test")
        run(later.database_backwards, state)
        cursor.execute("TRUNCATE notes_of_test")
        run(operation.database_backwards, state)


@pytest.mark.parametrize("change", CHANGES)
def test_rows_are_added_and_nothing_else_until_it_is_undone(change: str) -> None:
    operation, state = append_only("notes_of_test", "notes", "notes stay"), ProjectState()
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE notes_of_test (text text)")
        run(operation.database_forwards, state)
        cursor.execute("INSERT INTO notes_of_test VALUES ('a')")
        with pytest.raises(DatabaseError, match="notes stay"), transaction.atomic():
            cursor.execute(change)
        run(operation.database_backwards, state)
        cursor.execute(change)
        cursor.execute("SELECT count(*) FROM notes_of_test WHERE text = 'a'")
        assert cursor.fetchone() == (0,)


def run(step: Any, state: ProjectState) -> None:
    with connection.schema_editor() as editor:
        step("app", editor, state, state)
