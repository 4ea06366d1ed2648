"""The scheduler's settings as the admin keeps them. Each process takes up a change within seconds."""

import time

import structlog

from inference.models import SchedulerTuning
from inference.redis import rules
from inference.scheduling.settings import InvalidSettings, SchedulerSettings

REFRESH_SECONDS = 5.0
LONGEST_WAIT_SECONDS = 86_400.0  # where neither lane nor job sets a deadline

log = structlog.get_logger(__name__)
_read_at = float("-inf")


def refresh() -> None:
    """Takes up what the admin has changed, at most every few seconds. Raises database errors."""
    global _read_at
    if time.monotonic() - _read_at < REFRESH_SECONDS:
        return
    _read_at = time.monotonic()
    row = SchedulerTuning.objects.first()
    try:
        wanted = SchedulerSettings.from_dict(row.values if row else {})
    except InvalidSettings as error:  # written by another release, or by hand: what is in force stays in force
        log.error("scheduler settings refused", error=str(error))
        return
    if wanted != rules.settings():
        rules.use(wanted)


def queue_timeout(lane: str) -> float:
    """Seconds that a request of the lane may wait."""
    return rules.settings().lane(lane).timeout_seconds or LONGEST_WAIT_SECONDS
