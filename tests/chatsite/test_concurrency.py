import asyncio
import contextlib

from chatsite.concurrency import end_tasks


async def test_a_task_that_swallows_a_cancellation_ends_all_the_same() -> None:
    async def stubborn() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        await asyncio.sleep(60)

    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    await asyncio.wait_for(end_tasks([task]), 2)
    assert task.cancelled()


async def test_what_does_not_end_in_time_is_named() -> None:
    async def endless() -> None:
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            if released:
                return

    released: list[bool] = []
    task = asyncio.create_task(endless())
    await asyncio.sleep(0)
    assert await end_tasks([task], within=0.25) == {task}
    released.append(True)
    assert await end_tasks([task]) == set()
