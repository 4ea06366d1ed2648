"""The Lua scripts and SQL of this room, and where an organization's keys are in Redis."""

from functools import cache
from pathlib import Path
from typing import Final
from uuid import UUID

from chatsite.redis import SCHEMA, Script

_FOLDER: Final = Path(__file__).parent
_SHARED: Final = (_FOLDER / "redis" / "buckets.lua", _FOLDER / "redis" / "counters.lua")  # ahead of every script
REMEMBER_MS: Final = 300_000  # a settled request is known as such: longer than any repeat of its last steps takes


def _script(name: str) -> Script:
    return Script.load(_FOLDER / "redis" / f"{name}.lua", *_SHARED)


RESERVE: Final = _script("reserve")
RENEW: Final = _script("renew")
SETTLE: Final = _script("settle")
STANDING: Final = _script("standing")
LOAD: Final = _script("load")


@cache
def read_sql(name: str) -> str:
    return (_FOLDER / "sql" / f"{name}.sql").read_text()


def quota_prefix(organization_id: UUID) -> str:
    """Where everything of an organization is in Redis: one hash slot."""
    return f"{SCHEMA}:{{o:{organization_id}}}"
