"""The engine's environment and the bundled model: made once, atomically, shared by checkouts."""

from pathlib import Path

import pytest

from chatsite.operations import engine_setup
from chatsite.operations.engine_setup import EngineSetupError, engine_ready, model_ready, set_up


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What has been built, in an empty cache and an empty checkout."""
    made: list[str] = []

    def install(target: Path, kind: str) -> None:
        made.append(f"engine {kind}")
        python = target / "bin" / "python"
        python.parent.mkdir()
        python.write_text("#!/bin/sh\n")
        python.chmod(0o755)

    def convert(target: Path, engine: Path) -> None:
        made.append("model")
        assert (engine / "bin" / "python").exists()
        (target / "tokenizer.json").write_text("{}")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(engine_setup, "ENGINE", tmp_path / "var" / "engine")
    monkeypatch.setattr(engine_setup, "BUNDLED_MODEL", tmp_path / "var" / "models" / "smollm2-135m")
    monkeypatch.setattr(engine_setup, "engine_kind", lambda: "cpu")
    monkeypatch.setattr(engine_setup, "_install", install)
    monkeypatch.setattr(engine_setup, "_convert", convert)
    return made


def test_both_are_made_once_and_linked(built: list[str], tmp_path: Path) -> None:
    assert not engine_ready()
    assert not model_ready()
    set_up(with_model=True)
    assert engine_ready()
    assert model_ready()
    assert (tmp_path / "var" / "models" / "smollm2-135m" / "tokenizer.json").exists()
    assert (tmp_path / "var" / "engine").readlink().is_relative_to(tmp_path / "cache" / "chatsite")
    set_up(with_model=True)
    assert built == ["engine cpu", "model"]


def test_another_checkout_finds_them(built: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_up(with_model=True)
    monkeypatch.setattr(engine_setup, "ENGINE", tmp_path / "other" / "engine")
    monkeypatch.setattr(engine_setup, "BUNDLED_MODEL", tmp_path / "other" / "smollm2-135m")
    assert not engine_ready()
    set_up(with_model=True)
    assert engine_ready()
    assert built == ["engine cpu", "model"]


def test_another_lock_makes_another_environment(built: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    set_up(with_model=False)
    monkeypatch.setattr(engine_setup, "_digest", lambda *files: "another")
    assert not engine_ready()
    set_up(with_model=False)
    assert engine_ready()
    assert built == ["engine cpu", "engine cpu"]


def test_what_fails_halfway_leaves_nothing(built: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(target: Path, kind: str) -> None:
        (target / "bin").mkdir()
        raise EngineSetupError("pip failed (1): no space left")

    with monkeypatch.context() as patch:
        patch.setattr(engine_setup, "_install", fail)
        with pytest.raises(EngineSetupError):
            set_up(with_model=True)
    assert [file.name for file in (tmp_path / "cache" / "chatsite").iterdir()] == ["build.lock"]
    assert not engine_ready()
    set_up(with_model=True)
    assert engine_ready()


def test_a_killed_build_is_cleared_away(built: list[str], tmp_path: Path) -> None:
    left = tmp_path / "cache" / "chatsite" / f"{engine_setup.BUILDING}left"
    left.mkdir(parents=True)
    set_up(with_model=False)
    assert not left.exists()


def test_an_environment_whose_python_is_gone_is_made_again(built: list[str], tmp_path: Path) -> None:
    set_up(with_model=False)
    (tmp_path / "var" / "engine" / "bin" / "python").unlink()
    assert not engine_ready()
    set_up(with_model=False)
    assert engine_ready()
    assert built == ["engine cpu", "engine cpu"]


def test_a_failing_pip_is_told_with_its_last_words() -> None:
    with pytest.raises(EngineSetupError, match=r"(?s)pip failed \(5\).*no such package"):
        engine_setup._run_pip(["sh", "-c", "echo no such package; exit 5"], 0)
