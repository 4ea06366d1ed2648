"""Tables to which rows are only added. The database sees to it, so that not even the admin or a stray query can."""

from django.db.migrations import RunSQL

FORBID = """
CREATE FUNCTION {name}_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '{words}';
END
$$;
CREATE TRIGGER {name}_append_only BEFORE UPDATE OR DELETE ON {table}
    FOR EACH ROW EXECUTE FUNCTION {name}_is_append_only();
"""
# Rows are not what TRUNCATE takes, so the trigger above does not see it.
KEEP = """
DROP TRIGGER IF EXISTS {name}_not_emptied ON {table};
CREATE TRIGGER {name}_not_emptied BEFORE TRUNCATE ON {table}
    FOR EACH STATEMENT EXECUTE FUNCTION {name}_is_append_only();
"""
EMPTY = """
DROP TRIGGER IF EXISTS {name}_not_emptied ON {table};
"""
ALLOW = """
DROP TRIGGER {name}_append_only ON {table};
DROP FUNCTION {name}_is_append_only();
"""


def append_only(table: str, name: str, words: str) -> RunSQL:
    """An operation for a migration: from now on a change of a row of `table`, and emptying it, fails with `words`.

    `name` begins the names of the trigger and its function.
    """
    place = {"table": table, "name": name, "words": words}
    return RunSQL((FORBID + KEEP).format(**place), (EMPTY + ALLOW).format(**place))


def not_emptied(table: str, name: str) -> RunSQL:
    """For a table that became append-only before that meant TRUNCATE as well; does no harm where it did."""
    place = {"table": table, "name": name}
    return RunSQL(KEEP.format(**place), EMPTY.format(**place))
