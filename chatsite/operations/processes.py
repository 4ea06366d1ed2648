"""A command that runs under a guard, so that it ends when its supervisor does. See `guard`."""

import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from chatsite.operations.guard import STOP

GUARD = Path(__file__).with_name("guard.py")


@dataclass(frozen=True)
class Command:
    """What to run and how to end it.

    `grace`: seconds to stop in when the supervisor has died; `remove`: a folder deleted at the end.
    """

    argv: list[str]
    env: dict[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    user: str | None = None
    stop_signal: signal.Signals = signal.SIGTERM
    grace: float = 0.0
    remove: Path | None = None

    def guarded(self, control: int) -> list[str]:
        """The guard's command line; `control` is the read end of the pipe that holds the command alive."""
        options = [f"--control={control}", f"--stop-signal={int(self.stop_signal)}", f"--grace={self.grace}"]
        options += [f"--user={self.user}"] if self.user else []
        options += [f"--remove={self.remove}"] if self.remove else []
        return [sys.executable, "-I", "-S", str(GUARD), *options, "--", *self.argv]

    def environment(self) -> dict[str, str]:
        """This process's environment with the command's own on top."""
        return {**os.environ, **self.env}


class GuardedProcess:
    """A guarded command started from ordinary (not asyncio) code; its output goes to the file at `log`.

    Raises OSError where the guard cannot be started.
    """

    def __init__(self, command: Command, log: Path) -> None:
        control, self._hold = os.pipe()
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                command.guarded(control),
                env=command.environment(),
                cwd=command.cwd,
                pass_fds=[control],
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        os.close(control)

    def running(self) -> bool:
        """Whether the command still runs."""
        return self.process.poll() is None

    def ask_to_stop(self) -> None:
        """Has the guard send the command its stop signal."""
        os.write(self._hold, STOP)

    def end(self, timeout: float = 10.0) -> int:
        """Ends the command and all its descendants; returns its exit status. Idempotent."""
        if self._hold >= 0:
            os.close(self._hold)
            self._hold = -1
        return self.process.wait(timeout)
