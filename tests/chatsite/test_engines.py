"""The engines that `make run` starts: one for each wanted, on a free port, with the product's arguments."""

import socket
from pathlib import Path

import pytest

from chatsite.operations import engines as engines_module
from chatsite.operations.engine_setup import BUNDLED_MODEL
from chatsite.operations.engines import FIRST_PORT, needs_bundled_model, plan_engines, set_up_is_complete
from inference.catalog import EngineSpec, ModelSpec

BUNDLED = ModelSpec("small", "Small", 4096, BUNDLED_MODEL, engine=EngineSpec(True, 1, ("--seed", "1")))
LARGE = ModelSpec("large", "Large", 32_768, Path("/models/large"), "org/Large", engine=EngineSpec(True, 2))
ELSEWHERE = ModelSpec("elsewhere", "Elsewhere", 4096, replicas=("http://127.0.0.1:8000",))


@pytest.fixture(autouse=True)
def kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines_module, "engine_kind", lambda: "cpu")


def value(argv: list[str], option: str) -> str:
    return argv[argv.index(option) + 1]


def test_an_engine_for_each_that_is_wanted() -> None:
    engines = plan_engines([ELSEWHERE, BUNDLED, LARGE])
    assert [engine.name for engine in engines] == ["engine 1", "engine 2", "engine 3"]
    assert [engine.model.name for engine in engines] == ["small", "large", "large"]
    assert len({engine.port for engine in engines}) == 3
    assert all(engine.url == f"http://127.0.0.1:{engine.port}" for engine in engines)


def test_ports_that_are_taken_are_left_alone() -> None:
    taken = plan_engines([BUNDLED])[0].port
    assert taken >= FIRST_PORT
    with socket.socket() as other:
        other.bind(("127.0.0.1", taken))
        other.listen()
        assert plan_engines([BUNDLED])[0].port > taken


def test_the_products_arguments_come_first_the_models_own_last() -> None:
    (engine,) = plan_engines([BUNDLED])
    argv = engine.command.argv
    assert engine.name == "engine"
    assert value(argv, "--model") == str(BUNDLED_MODEL)
    assert value(argv, "--served-model-name") == "small"
    assert value(argv, "--max-model-len") == "4096"
    assert value(argv, "--host") == "127.0.0.1"
    assert value(argv, "--dtype") == "float32"
    assert "--enforce-eager" in argv
    assert "--enable-prompt-tokens-details" in argv
    assert argv[-2:] == ["--seed", "1"]
    assert engine.command.env["HF_HUB_OFFLINE"] == engine.command.env["VLLM_NO_USAGE_STATS"] == "1"


def test_the_engines_own_name_is_what_it_serves() -> None:
    assert value(plan_engines([LARGE])[0].command.argv, "--served-model-name") == "org/Large"


def test_an_operator_may_give_the_cache_more_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "8")
    assert plan_engines([BUNDLED])[0].command.env["VLLM_CPU_KVCACHE_SPACE"] == "8"


def test_on_gpus_each_engine_has_its_own_and_vllm_chooses_the_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(engines_module, "engine_kind", lambda: "cuda")
    monkeypatch.setattr(engines_module, "_gpu_count", lambda: 2)
    engines = plan_engines([BUNDLED, LARGE])
    assert [engine.command.env["CUDA_VISIBLE_DEVICES"] for engine in engines] == ["0", "1", "0"]
    assert all("--dtype" not in engine.command.argv for engine in engines)
    spanning = ModelSpec("wide", "Wide", 4096, Path("/m"), engine=EngineSpec(True, 1, ("--tensor-parallel-size", "2")))
    assert "CUDA_VISIBLE_DEVICES" not in plan_engines([spanning])[0].command.env


def test_nothing_is_set_up_when_no_engine_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines_module, "engine_ready", lambda: False)
    monkeypatch.setattr(engines_module, "model_ready", lambda: False)
    assert set_up_is_complete(plan_engines([ELSEWHERE]))
    assert not set_up_is_complete(plan_engines([BUNDLED]))


def test_the_bundled_model_is_made_only_where_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines_module, "engine_ready", lambda: True)
    monkeypatch.setattr(engines_module, "model_ready", lambda: False)
    assert not needs_bundled_model(plan_engines([LARGE]))
    assert set_up_is_complete(plan_engines([LARGE]))
    assert not set_up_is_complete(plan_engines([BUNDLED]))
