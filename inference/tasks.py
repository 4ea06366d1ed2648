"""Background work of the room: short and idempotent."""

import asyncio

from celery import shared_task

from chatsite.redis import close_async_client
from inference import keeping
from inference.sweep import sweep


@shared_task(name="inference.tasks.sweep_requests")
def sweep_requests() -> None:
    """The safety net when every runner is gone: what runners do each second, done here too."""
    asyncio.run(_sweep())


async def _sweep() -> None:
    try:
        await sweep()
    finally:
        await close_async_client()


@shared_task(name="inference.tasks.forget_kept_calls")
def forget_kept_calls() -> None:
    """Clears out texts that are kept no longer."""
    keeping.forget_old()
