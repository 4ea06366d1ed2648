"""The form with every setting of the scheduler, made from the settings themselves."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django import forms
from django.core.validators import MaxValueValidator, MinValueValidator

from chatsite import typed
from inference.scheduling.settings import LANES, InvalidSettings, SchedulerSettings
from inference.tuning_changes import SETTINGS, Setting, Value, differing_paths, in_words, nested, shown
from inference.tuning_texts import SECTIONS, text_of

WORD = re.compile(r"[a-z_]+")


def figure(value: Value) -> str:
    """A number to be read: thousands apart, four digits of a fraction."""
    if value is None or isinstance(value, bool):
        return shown(value)
    return f"{int(value):,}" if float(value).is_integer() else f"{value:.4g}"


@dataclass(frozen=True)
class Entry:
    """A field of the page. `differs`: what is stored is not the default."""

    bound: forms.BoundField
    setting: Setting
    differs: bool

    @property
    def is_switch(self) -> bool:
        return self.setting.kind is bool

    @property
    def default(self) -> str:
        return figure(self.setting.default)


@dataclass(frozen=True)
class LaneRow:
    """One setting of each lane."""

    title: str
    help: str
    entries: list[Entry]


@dataclass(frozen=True)
class Part:
    """A section of the settings: either `rows`, of lanes, or `entries`."""

    name: str
    title: str
    meaning: str
    entries: list[Entry]
    rows: list[LaneRow]


class TuningForm(forms.Form):
    """Starts with `current`, by dotted path. When it is valid, `wanted` are the settings as a whole."""

    wanted: SchedulerSettings

    def __init__(self, data: Any = None, *, current: Mapping[str, Value], may_change: bool = True) -> None:
        super().__init__(data, initial={path: _initial(value) for path, value in current.items()})
        self.current = current
        self._differing = set(differing_paths(current))
        for path, setting in SETTINGS.items():
            self.fields[path] = _field(setting, disabled=not may_change)

    def clean(self) -> dict[str, Any]:
        """What no field can know alone. A field that is wrong counts as it was."""
        given = {**self.current, **(self.cleaned_data or {})}
        try:
            self.wanted = SchedulerSettings.from_dict(nested(given))
        except InvalidSettings as error:
            for fault in error.faults:
                self._blame(fault)
        return self.cleaned_data

    def _blame(self, fault: str) -> None:
        """At each setting that it names; one that has an error of its own says enough."""
        paths, message = _read_fault(fault)
        for path in paths:
            if path not in self.errors:
                self.add_error(path, message)
        if not paths:
            self.add_error(None, message)

    def parts(self) -> list[Part]:
        """The page, in the order of the settings."""
        return [
            Part(name, in_words(name), text.meaning, [] if name == "lanes" else self._entries(name), self._rows(name))
            for name, text in SECTIONS.items()
        ]

    def wrong(self) -> dict[str, list[Entry]]:
        """For the summary: what is wrong, and where."""
        found: dict[str, list[Entry]] = {}
        for path in SETTINGS:
            if path in self.errors:
                found.setdefault(" ".join(map(str, self.errors[path])), []).append(self._entry(path))
        return found

    def _entries(self, section: str) -> list[Entry]:
        return [self._entry(path) for path, setting in SETTINGS.items() if setting.section == section]

    def _entry(self, path: str) -> Entry:
        return Entry(self[path], SETTINGS[path], path in self._differing)

    def _rows(self, section: str) -> list[LaneRow]:
        if section != "lanes":
            return []
        names = [each.name for each in SETTINGS.values() if each.lane == LANES[0]]
        return [
            LaneRow(in_words(name), _help(SETTINGS[f"lanes.{LANES[0]}.{name}"]), self._of_lanes(name)) for name in names
        ]

    def _of_lanes(self, name: str) -> list[Entry]:
        return [self._entry(f"lanes.{lane}.{name}") for lane in LANES]


def _initial(value: Value) -> object:
    return value if value is None or isinstance(value, bool) else shown(value)


def _field(setting: Setting, *, disabled: bool) -> forms.Field:
    given: dict[str, Any] = {"label": setting.title, "disabled": disabled, "help_text": _help(setting)}
    if setting.kind is bool:
        return forms.BooleanField(required=False, **given)
    whole = setting.kind is int
    attributes = {"inputmode": "numeric" if whole else "decimal", "autocomplete": "off", "spellcheck": "false"}
    if setting.optional:
        attributes["placeholder"] = shown(None)
    wrong = "Enter a whole number." if whole else "Enter a number."
    given |= {
        "required": not setting.optional,
        "widget": forms.TextInput(attributes),
        "error_messages": {"invalid": wrong, "required": wrong},
    }
    made = typed.WholeField(**given) if whole else typed.FigureField(**given)
    outside = f"Must be within {figure(setting.low)} and {figure(setting.high)}."
    made.validators += [MinValueValidator(setting.low, outside), MaxValueValidator(setting.high, outside)]
    return made


def _help(setting: Setting) -> str:
    """What it is, and the range with its unit. A default is shown only where it is that of one setting."""
    text = text_of(setting.path)
    if setting.kind is bool:
        return text.meaning
    limits = f"{figure(setting.low)} to {figure(setting.high)} {text.unit}".rstrip()
    default = "" if setting.lane else f", default {figure(setting.default)}"
    return f"{text.meaning} {limits}{default}."


def _read_fault(fault: str) -> tuple[Iterable[str], str]:
    """The settings that a fault names, and the fault in words.

    "lease.abort_seconds and heartbeat_seconds together must not exceed lease_seconds" names three.
    """
    first, _, rest = fault.partition(" ")
    group, _, name = first.rpartition(".")
    words = WORD.findall(f"{name} {rest}")
    paths = dict.fromkeys(path for word in words if (path := f"{group}.{word}") in SETTINGS)
    text = WORD.sub(lambda found: _title(group, found[0]), f"{name} {rest}")
    return list(paths), f"{text[:1].upper()}{text[1:]}."


def _title(group: str, word: str) -> str:
    setting = SETTINGS.get(f"{group}.{word}")
    return setting.words if setting else word
