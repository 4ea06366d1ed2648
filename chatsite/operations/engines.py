"""The vLLM servers that `make run` starts itself: their ports, their command lines."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

from chatsite.operations.engine_setup import BUNDLED_MODEL, ENGINE, engine_kind, engine_ready, model_ready
from chatsite.operations.processes import Command
from inference.catalog import ModelSpec

FIRST_PORT = 8100
LAST_PORT = 8999
LOOPBACK = "127.0.0.1"
# Unless the operator's environment says otherwise. Offline: weights come from the folder that models.toml names, and
# nothing about their use is sent anywhere. vLLM's INFO is a hundred lines for one start; on a CPU its warnings only say
# that it is no GPU.
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "PYTHONWARNINGS": "ignore",
}
CPU_ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_LOGGING_LEVEL": "ERROR"}  # the first in GiB


class NoFreePortError(RuntimeError):
    """No loopback port is free for an engine."""


@dataclass(frozen=True)
class Engine:
    """One engine of one model."""

    name: str
    model: ModelSpec
    port: int
    command: Command

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"


def plan_engines(models: list[ModelSpec]) -> list[Engine]:
    """An engine for each that models.toml wants started, each with a free port. Raises NoFreePortError."""
    wanted = [model for model in models if model.engine.start for _ in range(model.engine.count)]
    kind = engine_kind() if wanted else "cpu"
    gpus = _gpu_count() if kind == "cuda" else 0
    ports = _free_ports()
    engines = []
    for index, model in enumerate(wanted):
        port = next(ports, None)
        if port is None:
            raise NoFreePortError(f"no port between {FIRST_PORT} and {LAST_PORT} is free for an engine of {model.name}")
        name = "engine" if len(wanted) == 1 else f"engine {index + 1}"
        engines.append(Engine(name, model, port, _command(model, port, kind, index, gpus)))
    return engines


def needs_bundled_model(engines: list[Engine]) -> bool:
    """Whether one of them runs the model that comes with the product."""
    return any(engine.model.path == BUNDLED_MODEL for engine in engines)


def set_up_is_complete(engines: list[Engine]) -> bool:
    """Whether everything that these engines need is installed."""
    return not engines or (engine_ready() and (model_ready() or not needs_bundled_model(engines)))


def _command(model: ModelSpec, port: int, kind: str, index: int, gpus: int) -> Command:
    options = {
        "--model": str(model.path),
        "--served-model-name": model.engine_model or model.name,
        "--host": LOOPBACK,
        "--port": str(port),
        "--max-model-len": str(model.context_length),
    }
    argv = [str(ENGINE / "bin" / "python"), "-m", "vllm.entrypoints.openai.api_server"]
    argv += [part for option in options.items() for part in option]
    argv += ["--enable-prompt-tokens-details", "--disable-uvicorn-access-log", "--uvicorn-log-level=warning"]
    if kind == "cpu":
        argv += ["--dtype", "float32", "--enforce-eager"]  # bfloat16 prefills three times slower on most CPUs
    defaults = {**ENVIRONMENT, **(CPU_ENVIRONMENT if kind == "cpu" else {})}
    env = {key: os.environ.get(key, value) for key, value in defaults.items()}
    if gpus > 1 and "CUDA_VISIBLE_DEVICES" not in os.environ and not _spans_gpus(model.engine.args):
        env["CUDA_VISIBLE_DEVICES"] = str(index % gpus)
    # Killed, vLLM would leave hundreds of megabytes of shared memory behind: it has a moment to stop in every case.
    return Command([*argv, *model.engine.args], env, grace=2.0)


def _spans_gpus(args: tuple[str, ...]) -> bool:
    return any("-parallel-size" in argument or argument.startswith("-tp") for argument in args)


def _gpu_count() -> int:
    program = shutil.which("nvidia-smi")
    if program is None:
        return 1
    listing = subprocess.run([program, "-L"], capture_output=True, text=True, check=False).stdout
    return max(1, listing.count("GPU "))


def _free_ports() -> Iterator[int]:
    for port in range(FIRST_PORT, LAST_PORT + 1):
        with socket.socket() as probe:
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
        yield port
