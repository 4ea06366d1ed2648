"""Saving the text of running replies: one statement for all streams of a runner."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from uuid import UUID

import structlog
from django.db import DatabaseError, OperationalError, connection, transaction

_SAVE = (Path(__file__).parent / "sql" / "save_partials.sql").read_text()

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class PartialRow:
    """Tokens `[from_token, to_token)` of an owner's text; `ids` packed."""

    request_id: UUID
    claim: UUID
    attempt: int
    from_token: int
    to_token: int
    from_char: int
    ids: bytes
    text: str


def save(rows: Sequence[PartialRow]) -> set[UUID]:
    """Saves the rows; returns the requests that the database refused. Raises OperationalError when it is away.

    One bad row fails a whole statement, so a refused batch is halved until the bad rows stand alone.
    """
    if not rows:
        return set()
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(_SAVE, [list(column) for column in zip(*map(astuple, rows), strict=True)])
    except OperationalError:
        raise
    except DatabaseError as error:
        if len(rows) == 1:
            log.warning("partial text refused", request=str(rows[0].request_id), error=str(error))
            return {rows[0].request_id}
        middle = len(rows) // 2
        return save(rows[:middle]) | save(rows[middle:])
    return set()
