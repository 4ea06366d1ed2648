"""The error tree, and the page that documents it."""

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

from chatsite.errors import AppError

PAGE = Path(__file__).parent.parent.parent / "docs" / "errors.md"
for module in ("chatsite.raw", "quotas.errors", "inference.errors", "conversations.errors"):
    importlib.import_module(module)


def tree(kind: type[AppError]) -> Iterator[type[AppError]]:
    if kind.__module__.split(".")[0] != "tests":
        yield kind
    for each in kind.__subclasses__():
        yield from tree(each)


def test_every_code_is_documented_with_its_status_and_no_other() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([\d, ]+) \|", PAGE.read_text(), re.MULTILINE)
    documented = {(code, int(status)) for code, statuses in rows for status in statuses.split(",")}
    assert documented == {(kind.code, kind.status) for kind in tree(AppError)}


def test_every_error_has_a_message_of_its_own() -> None:
    for kind in tree(AppError):
        assert kind.__doc__ and "\n\n" not in kind.__doc__, kind
