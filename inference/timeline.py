"""What happened to a request, and how long each part took. No I/O: a row and the time."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

LEAST_PERCENT = 0.4  # of the whole: a part that took no time is still seen
TERMINAL = {
    "succeeded": "Done",
    "failed": "Failed",
    "cancelled": "Cancelled",
    "expired": "Expired",
    "shed": "Turned away",
}


class Row(Protocol):
    """The times of a request (inference.models.Request)."""

    status: str
    created_at: datetime
    deadline: datetime
    claimed_at: datetime | None
    first_token_at: datetime | None
    finished_at: datetime | None
    cancel_requested_at: datetime | None
    released_at: datetime | None


@dataclass(frozen=True)
class Step:
    """Something that happened. `since_start` and `since_last` are durations such as `1.20 s`."""

    name: str
    at: datetime
    since_start: str
    since_last: str


@dataclass(frozen=True)
class Part:
    """A stretch between two steps. `left` and `width` in percent of the whole; `kind` names its colour."""

    kind: str
    name: str
    duration: str
    left: float
    width: float
    open: bool  # it still goes on


@dataclass(frozen=True)
class Timeline:
    steps: list[Step]
    parts: list[Part]
    total: str
    tokens_per_second: float | None = None


def build(row: Row, now: datetime, output_tokens: int = 0) -> Timeline:
    """Steps in the order in which they happened, and the parts between them up to the end or `now`."""
    end = row.finished_at or now
    return Timeline(_steps(row), _parts(row, now), duration(end - row.created_at), _speed(row, output_tokens))


def _steps(row: Row) -> list[Step]:
    moments = [
        ("Accepted and queued", row.created_at),
        ("Claimed by a replica", row.claimed_at),
        ("First token", row.first_token_at),
        ("Stop asked for", row.cancel_requested_at),
        (TERMINAL.get(row.status, "Ended"), row.finished_at),
        ("Released by queue and quota", row.released_at),
    ]
    happened = sorted(((name, at) for name, at in moments if at is not None), key=lambda each: each[1])
    steps, last = [], row.created_at
    for name, at in happened:
        steps.append(Step(name, at, duration(at - row.created_at), duration(at - last)))
        last = at
    return steps


def _parts(row: Row, now: datetime) -> list[Part]:
    """Waiting, reading the prompt, writing; each ends where the next begins or the request does."""
    begins = [
        ("waiting", "Waiting in the queue", row.created_at),
        ("prompt", "Reading the prompt", row.claimed_at),
        ("answer", "Writing the answer", row.first_token_at),
    ]
    end = row.finished_at or now
    known = [(kind, name, at) for kind, name, at in begins if at is not None]
    ends = [at for _, _, at in known[1:]] + [end]
    whole = max((end - row.created_at).total_seconds(), 1e-6)
    parts = []
    for index, ((kind, name, start), stop) in enumerate(zip(known, ends, strict=True)):
        seconds = max(0.0, (stop - start).total_seconds())
        left = min(max(0.0, 100 * (start - row.created_at).total_seconds() / whole), 100 - LEAST_PERCENT)
        width = min(max(100 * seconds / whole, LEAST_PERCENT), 100 - left)
        still = row.finished_at is None and index == len(known) - 1
        parts.append(Part(kind, name, duration(stop - start), round(left, 2), round(width, 2), still))
    return parts


def _speed(row: Row, output_tokens: int) -> float | None:
    """Tokens a second after the first one."""
    if row.first_token_at is None or row.finished_at is None or output_tokens < 2:
        return None
    seconds = (row.finished_at - row.first_token_at).total_seconds()
    return round((output_tokens - 1) / seconds, 1) if seconds > 0 else None


def duration(span: timedelta) -> str:
    """`0 ms`, `340 ms`, `1.20 s`, `59.9 s`, `2 min 5 s`, `3 h 10 min`; a clock that ran backwards gives `0 ms`."""
    seconds = max(0.0, span.total_seconds())
    if round(seconds * 1000) < 1000:
        return f"{round(seconds * 1000)} ms"
    if round(seconds, 2) < 10:
        return f"{seconds:.2f} s"
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
