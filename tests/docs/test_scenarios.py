"""docs/scenarios.md tells the truth about the tests."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMED = re.findall(r"`(test_\w+)`", (ROOT / "docs" / "scenarios.md").read_text())
TESTS = "\n".join(file.read_text() for file in (ROOT / "tests").rglob("test_*.py"))


@pytest.mark.parametrize("name", NAMED)
def test_every_test_that_is_named_exists(name: str) -> None:
    assert re.search(rf"^\s*(async )?def {name}\(", TESTS, re.MULTILINE)


def test_every_link_of_the_readme_leads_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", (ROOT / "README.md").read_text())
    assert [link for link in links if not link.startswith("http") and not (ROOT / link).exists()] == []
