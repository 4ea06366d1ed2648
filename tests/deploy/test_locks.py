"""The locks: pinned, hashed, without addresses, and those of pyproject.toml."""

import json
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
LOCKS = ROOT / "deploy" / "locks"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
HASHED = ("app", "dev", "engine-cpu", "engine-cuda", "uv", "node")


def entries(name: str) -> dict[str, str]:
    """Each package's entry in the lock."""
    text = (LOCKS / f"{name}.txt").read_text()
    found = re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)[1:]
    return {entry.partition("==")[0]: entry for entry in found}


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^A-Za-z0-9._-]", requirement)[0].lower().replace("_", "-") for requirement in requirements}


@pytest.mark.parametrize("name", HASHED)
def test_every_package_is_pinned_with_hashes(name: str) -> None:
    for entry in entries(name).values():
        assert re.match(r"[a-z0-9.-]+==[^ ]+ (; .+ )?\\\n", entry), entry
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry


@pytest.mark.parametrize("lock", [*LOCKS.glob("*.txt"), ROOT / "package-lock.json", ROOT / ".npmrc"])
def test_no_lock_names_an_address(lock: Path) -> None:
    assert not re.search(r"https?:|file:|registry=|index-url", lock.read_text())


@pytest.mark.parametrize(
    ("name", "requirements"),
    [
        ("app", PROJECT["dependencies"]),
        ("dev", PROJECT["dependencies"] + EXTRAS["dev"]),
        ("engine-cuda", EXTRAS["engine-cuda"]),
        ("engine-cpu", [each for each in EXTRAS["engine-cpu"] if not each.startswith("torch=")]),
    ],
)
def test_a_lock_holds_what_pyproject_asks_for(name: str, requirements: list[str]) -> None:
    assert names(requirements) <= entries(name).keys()


def test_tests_run_what_the_site_runs() -> None:
    """The same files; where they are for (a marker) may be wider, since the tools need some of them, too."""
    application, development = (
        {name: re.sub(r" ; [^\\]+(?= \\)", "", entry) for name, entry in entries(lock).items()}
        for lock in ("app", "dev")
    )
    assert {name: development.get(name) for name in application} == application


def test_torch_is_the_one_that_the_engine_was_built_for() -> None:
    assert "torch==2.13.0" in EXTRAS["engine-cpu"]
    assert "torch==2.13.0\n" in (LOCKS / "engine-cpu-platform.txt").read_text()
    assert not {name for name in entries("engine-cpu") if name.startswith(("torch", "nvidia-"))}


def test_every_front_end_package_has_a_hash() -> None:
    packages = json.loads((ROOT / "package-lock.json").read_text())["packages"]
    wanted = json.loads((ROOT / "package.json").read_text())["dependencies"]
    assert packages[""]["dependencies"] == wanted
    assert all("integrity" in package for path, package in packages.items() if path)
