"""The scheduler's settings in tests."""

from typing import Any

from chatsite.database import run_db
from inference import tuning
from inference.models import SchedulerTuning
from inference.redis import rules
from inference.scheduling.settings import SchedulerSettings


def tune(**values: Any) -> None:
    """As the admin would, and taken up at once: `tune(lease={"lease_seconds": 3.0})`. Adds to what was tuned before."""
    row = SchedulerTuning.objects.first() or SchedulerTuning()
    for section, changes in values.items():
        row.values[section] = {**row.values.get(section, {}), **changes}
    row.save()
    tuning._read_at = float("-inf")
    tuning.refresh()


async def atune(**values: Any) -> None:
    await run_db(lambda: tune(**values))


def patience(seconds: float) -> dict[str, Any]:
    """Every lane's wait."""
    return {name: {"timeout_seconds": seconds} for name in ("enterprise", "paid", "free")}


def forget() -> None:
    """The defaults, in this process."""
    rules.use(SchedulerSettings())
    tuning._read_at = float("-inf")
