"""One readable stream out of many processes' output: each line begins with the name of who said it."""

import queue
import sys
import threading
from typing import TextIO

NAME_WIDTH = 8
MAX_WAITING_LINES = 10_000
MAX_LINE = 16_384  # characters; what is longer is cut into several lines
COLOURS = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)


class Output:
    """Writes lines from a thread of its own, so that a reader who stops reading cannot keep the supervisor from ending.

    Lines that find 10,000 waiting are dropped and counted. A reader who is gone altogether is no reason to end either.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._coloured = self._stream.isatty()
        self._colours: dict[str, int] = {}
        self._lines: queue.Queue[str | None] = queue.Queue(MAX_WAITING_LINES)
        self._dropped = 0
        self._thread = threading.Thread(target=self._write, name="output", daemon=True)
        self._thread.start()

    def line(self, name: str, text: str) -> None:
        """Puts one line in the queue. Never waits."""
        line = f"{self._prefix(name)} {text}\n"
        try:
            self._lines.put_nowait(self._dropped_note() + line)
            self._dropped = 0
        except queue.Full:
            self._dropped += 1

    def close(self, timeout: float = 1.0) -> None:
        """Waits up to `timeout` seconds for what is waiting to be written."""
        try:
            self._lines.put(self._dropped_note(), timeout=timeout)
            self._lines.put(None, timeout=timeout)
        except queue.Full:
            return
        self._thread.join(timeout)

    def _dropped_note(self) -> str:
        return f"{self._prefix('up')} {self._dropped} lines were not shown\n" if self._dropped else ""

    def _prefix(self, name: str) -> str:
        label = f"{name:<{NAME_WIDTH}} |"
        if not self._coloured:
            return label
        colour = self._colours.setdefault(name, COLOURS[len(self._colours) % len(COLOURS)])
        return f"\033[{colour}m{label}\033[0m"

    def _write(self) -> None:
        while (line := self._lines.get()) is not None:
            try:
                self._stream.write(line)
                self._stream.flush()
            except (OSError, ValueError):  # the reader is gone, or the stream was closed
                continue


class LineSplitter:
    """Cuts a stream of bytes into lines of text. A carriage return ends a line too: progress bars use it."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        """The lines that `data` completes."""
        *lines, self._rest = (self._rest + data).replace(b"\r", b"\n").split(b"\n")
        if len(self._rest) > MAX_LINE:
            lines, self._rest = [*lines, self._rest], b""
        return [text for line in lines if (text := line.decode(errors="replace").rstrip())]

    def end(self) -> list[str]:
        """What was left without a line end."""
        return self.feed(b"\n")
