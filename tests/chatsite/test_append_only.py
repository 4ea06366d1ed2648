"""Tables to which rows are only added."""

from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.db.migrations.state import ProjectState

from chatsite.append_only import append_only

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("change", ["UPDATE notes_of_test SET text = 'b'", "DELETE FROM notes_of_test"])
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
