"""The scheduler's settings one by one: what each may be, what is stored of them, and storing what was changed."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from decimal import Decimal
from typing import Any, get_type_hints

from django.db import IntegrityError, transaction

from inference.models import SchedulerTuning
from inference.scheduling.settings import InvalidSettings, SchedulerSettings, Section

Value = bool | int | float | None


class Outdated(Exception):
    """Somebody else has changed the settings meanwhile."""


@dataclass(frozen=True)
class Setting:
    """One number or switch. `path`: dotted, as in `InvalidSettings.faults`; `low` and `high` are 0 for a switch."""

    path: str
    kind: type[bool] | type[int] | type[float]
    low: float
    high: float
    optional: bool
    default: Value

    @property
    def section(self) -> str:
        return self.path.partition(".")[0]

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]

    @property
    def lane(self) -> str:
        """Whose setting it is, or nothing."""
        return self.path.split(".")[1] if self.section == "lanes" else ""

    @property
    def title(self) -> str:
        return in_words(self.name)

    @property
    def words(self) -> str:
        """The title within a sentence."""
        return self.title if self.title.startswith("KV") else self.title[:1].lower() + self.title[1:]

    @property
    def place(self) -> str:
        """Title and where it is: "Lease, lease seconds"."""
        return f"{in_words(self.lane or self.section)}, {self.words}"


@dataclass(frozen=True)
class Change:
    """A setting that got another value."""

    setting: Setting
    before: Value
    after: Value

    @property
    def old(self) -> str:
        return shown(self.before)

    @property
    def new(self) -> str:
        return shown(self.after)

    def __str__(self) -> str:
        return f"{self.setting.place}: {self.old} → {self.new}"


def in_words(name: str) -> str:
    """ "kv_from" is "KV from"."""
    words = ["KV" if word == "kv" else word for word in name.split("_")]
    return " ".join([words[0][:1].upper() + words[0][1:], *words[1:]])


def shown(value: Value) -> str:
    """For people: exact, but no ".0", and no exponent."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(int(value)) if float(value).is_integer() else f"{Decimal(repr(value)):f}"


def _walk(section: Section, path: str = "") -> Iterator[Setting]:
    hints = get_type_hints(type(section))
    for each in fields(section):
        value = getattr(section, each.name)
        if isinstance(value, Section):
            yield from _walk(value, f"{path}{each.name}.")
            continue
        kind = hints[each.name] if hints[each.name] in (bool, int) else float
        limits = {"low": 0.0, "high": 0.0, "optional": False, **each.metadata}
        yield Setting(f"{path}{each.name}", kind, limits["low"], limits["high"], limits["optional"], value)


SETTINGS = {each.path: each for each in _walk(SchedulerSettings())}


def flat(values: object, path: str = "") -> dict[str, Any]:
    """What nested dicts say, by dotted path. What is no setting is left out."""
    if not isinstance(values, Mapping):
        return {path: values} if path in SETTINGS else {}
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= flat(value, f"{path}.{name}" if path else str(name))
    return found


def nested(values: Mapping[str, Value]) -> dict[str, Any]:
    """The opposite of `flat`, as `SchedulerSettings.from_dict` takes it."""
    made: dict[str, Any] = {}
    for path, value in values.items():
        *groups, name = path.split(".")
        place = made
        for group in groups:
            place = place.setdefault(group, {})
        place[name] = value
    return made


@dataclass(frozen=True)
class Stored:
    """What the row says, or the defaults. `version` tells it from what is stored later; `faults`: why it is refused."""

    values: Mapping[str, Value]
    changed_at: datetime | None
    version: str
    faults: list[str]


def load() -> Stored:
    """What is stored now."""
    return _stored(SchedulerTuning.objects.first())


def store(wanted: SchedulerSettings, version: str | None = None) -> list[Change]:
    """Keeps what differs from the defaults, and says what that changed.

    Raises Outdated when `version` is given and is not that of what is stored by now.
    """
    try:
        with transaction.atomic():
            return _store(wanted, version)
    except IntegrityError as error:  # the first row, made at the same time by somebody else
        raise Outdated from error


def _store(wanted: SchedulerSettings, version: str | None) -> list[Change]:
    row = SchedulerTuning.objects.select_for_update().first()
    before = _stored(row)
    if version is not None and version != before.version:
        raise Outdated
    after = flat(wanted.to_dict())
    changes = changes_between(before.values, after)
    differing = nested({path: after[path] for path in differing_paths(after)})
    if differing != (row.values if row else {}):
        new = row or SchedulerTuning()
        new.values = differing
        new.save(force_insert=row is None)
    return changes


def changes_between(before: Mapping[str, Value], after: Mapping[str, Value]) -> list[Change]:
    """In the order of the settings."""
    paths = [path for path in SETTINGS if before[path] != after[path]]
    return [Change(SETTINGS[path], before[path], after[path]) for path in paths]


def differing_paths(values: Mapping[str, Value]) -> list[str]:
    """Of what is not as by default."""
    return [path for path, setting in SETTINGS.items() if values[path] != setting.default]


def _stored(row: SchedulerTuning | None) -> Stored:
    values = {path: each.default for path, each in SETTINGS.items()} | flat(row.values if row else {})
    faults: list[str] = []
    try:
        SchedulerSettings.from_dict(row.values if row else {})
    except InvalidSettings as error:
        faults = error.faults
    changed_at = row.changed_at if row else None
    return Stored(values, changed_at, changed_at.isoformat() if changed_at else "", faults)
