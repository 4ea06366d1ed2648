"""Keeps services running under guards, and ends them in order. `chatsite.operations.site` says which there are."""

import asyncio
import os
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby

from chatsite.operations.guard import STOP
from chatsite.operations.output import LineSplitter, Output
from chatsite.operations.processes import Command

FIRST_DELAY = 0.5  # seconds before a service that ended is started again; doubles each time
LONGEST_DELAY = 15.0
STEADY_AFTER = 30.0  # a service that ran so long starts with the first delay again
KILL_SECONDS = 6.0  # what a guard may take to leave nothing behind
READ_BYTES = 65_536


@dataclass(frozen=True)
class Service:
    """A command to keep running. Services end by `phase`, lowest first; each has `stop_seconds` before it is killed."""

    name: str
    command: Command
    phase: int = 0
    stop_seconds: float = 1.0


class Child:
    """One guarded process, whose output goes to `output` line by line."""

    def __init__(self, service: Service, process: asyncio.subprocess.Process, hold: int, output: Output) -> None:
        self.service = service
        self.ended = asyncio.create_task(self._copy_until_end(process, output))
        self._hold = hold

    @classmethod
    async def start(cls, service: Service, output: Output) -> "Child":
        """Raises OSError where the guard cannot be started."""
        control, hold = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *service.command.guarded(control),
                env=service.command.environment(),
                cwd=service.command.cwd,
                pass_fds=[control],
                start_new_session=True,  # a Ctrl-C in the terminal is the supervisor's to handle, in order
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
        except OSError:
            os.close(hold)
            raise
        finally:
            os.close(control)
        return cls(service, process, hold, output)

    async def end(self, hurry: asyncio.Event) -> None:
        """Asks the command to stop; when its time is up, or `hurry` is set, everything of it is killed."""
        if self._hold >= 0:
            with suppress(BrokenPipeError):  # the guard has ended
                os.write(self._hold, STOP)
        hurried = asyncio.create_task(hurry.wait())
        waiting: set[asyncio.Task[int] | asyncio.Task[bool]] = {self.ended, hurried}
        await asyncio.wait(waiting, timeout=self.service.stop_seconds, return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()
        self.release()
        await asyncio.wait({self.ended}, timeout=KILL_SECONDS)

    def release(self) -> None:
        """Closes the pipe, which makes the guard kill whatever still runs."""
        if self._hold >= 0:
            os.close(self._hold)
            self._hold = -1

    async def _copy_until_end(self, process: asyncio.subprocess.Process, output: Output) -> int:
        splitter = LineSplitter()
        while process.stdout and (data := await process.stdout.read(READ_BYTES)):
            for line in splitter.feed(data):
                output.line(self.service.name, line)
        for line in splitter.end():
            output.line(self.service.name, line)
        return await process.wait()


class Supervisor:
    """Starts services and steps, restarts services that end, and ends all of them in order."""

    def __init__(self, output: Output) -> None:
        self.output = output
        self.stopping = asyncio.Event()
        self.hurry = asyncio.Event()
        self._children: set[Child] = set()
        self._keepers: set[asyncio.Task[None]] = set()

    def say(self, text: str, name: str = "up") -> None:
        for line in text.splitlines():
            self.output.line(name, line)

    def start(self, service: Service) -> None:
        """Keeps `service` running until `stop`."""
        keeper = asyncio.create_task(self._keep(service), name=service.name)
        self._keepers.add(keeper)

    async def run(self, name: str, command: Command) -> int:
        """Runs a command that ends by itself; returns its exit status."""
        return await self._run(Service(name, command, stop_seconds=0.2))

    async def pause(self, seconds: float) -> None:
        """Waits, but not past the beginning of the end."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.stopping.wait(), seconds)

    async def stop(self) -> None:
        """Ends everything, phase by phase."""
        self.stopping.set()
        children = sorted(self._children, key=lambda child: child.service.phase)
        for _, group in groupby(children, key=lambda child: child.service.phase):
            await asyncio.gather(*(child.end(self.hurry) for child in group))
        await asyncio.gather(*self._keepers)

    async def _keep(self, service: Service) -> None:
        delay = FIRST_DELAY
        clock = asyncio.get_running_loop().time
        while not self.stopping.is_set():
            started = clock()
            status = await self._run(service)
            if self.stopping.is_set():
                return
            delay = FIRST_DELAY if clock() - started > STEADY_AFTER else delay
            self.say(f"ended with status {status}, starts again in {delay:g} s", service.name)
            await self.pause(delay)
            delay = min(delay * 2, LONGEST_DELAY)

    async def _run(self, service: Service) -> int:
        try:
            child = await Child.start(service, self.output)
        except OSError as error:
            self.say(f"cannot be started: {error}", service.name)
            return 127
        self._children.add(child)
        child.ended.add_done_callback(lambda _: self._children.discard(child))
        try:
            if self.stopping.is_set():  # the end began while it was being started
                child.release()
            return await asyncio.shield(child.ended)
        finally:
            child.release()
