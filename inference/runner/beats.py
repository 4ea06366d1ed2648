"""When a runner renews the leases of its streams, also while the settings of leases change."""

import asyncio
import math
import time

from inference.redis import rules

STEP_SECONDS = 0.25  # how soon it knows that other settings hold
# By then every process goes by them. Until then some cut leases to the length of those before, and some to the new one.
TAKEN_UP_SECONDS = 15.0


class Beats:
    """Of one runner."""

    def __init__(self) -> None:
        self._lease = rules.settings().lease
        self._shorter = math.inf  # seconds between two beats by the settings before
        self._changed_at = -math.inf

    async def next(self) -> bool:
        """Waits for the next one.

        False when it comes early, since the settings have changed: what runs was leased by those before, and is not
        late by those that hold now.
        """
        began = time.monotonic()
        while (left := began + self._interval - time.monotonic()) > 0:
            await asyncio.sleep(min(left, STEP_SECONDS))
            if (lease := rules.settings().lease) != self._lease:
                self._shorter, self._changed_at = self._interval, time.monotonic()
                self._lease = lease
                return False
        return True

    @property
    def _interval(self) -> float:
        changing = time.monotonic() - self._changed_at < TAKEN_UP_SECONDS
        return min(self._lease.heartbeat_seconds, self._shorter if changing else math.inf)
