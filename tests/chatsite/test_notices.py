"""Notices: each is heard by every page of its user, and by nobody else."""

import asyncio
from uuid import UUID

from chatsite import notices
from chatsite.ids import new_id
from chatsite.redis import async_client
from tests.waiting import wait_until


async def collect(subscription: notices.Subscription, heard: list[UUID]) -> None:
    async for conversation_id in subscription:
        heard.append(conversation_id)


async def test_s13_every_page_of_the_user_hears_it() -> None:
    user, other, conversation = new_id(), new_id(), new_id()
    first: list[UUID] = []
    second: list[UUID] = []
    foreign: list[UUID] = []
    await notices.announce(user, new_id())  # before anyone listens
    async with notices.subscribed(user) as one, notices.subscribed(user) as two, notices.subscribed(other) as three:
        tasks = [asyncio.create_task(collect(*pair)) for pair in ((one, first), (two, second), (three, foreign))]
        await notices.announce(user, conversation)
        await wait_until(lambda: first and second)
        for task in tasks:
            task.cancel()
    assert first == second == [conversation]
    assert foreign == []


async def test_a_page_that_does_not_listen_hears_each_conversation_once() -> None:
    user, conversation = new_id(), new_id()
    heard: list[UUID] = []
    async with notices.subscribed(user) as subscription:
        for _ in range(10):
            await notices.announce(user, conversation)
        await asyncio.sleep(3 * notices.POLL_SECONDS)
        task = asyncio.create_task(collect(subscription, heard))
        await wait_until(lambda: heard)
        task.cancel()
    assert heard == [conversation]


async def test_too_many_become_anything() -> None:
    subscription = notices.Subscription(new_id())
    for _ in range(notices.PENDING_LIMIT + 1):
        subscription.put(new_id())
    heard: list[UUID] = []
    task = asyncio.create_task(collect(subscription, heard))
    await wait_until(lambda: heard)
    task.cancel()
    assert heard == [notices.ANYTHING, notices.SESSIONS]


async def test_the_stream_is_capped_and_expires() -> None:
    user = new_id()
    for _ in range(notices.STREAM_LENGTH * 2):
        await notices.announce(user, new_id())
    client = async_client()
    assert await client.xlen(notices.stream_key(user)) < notices.STREAM_LENGTH * 1.9
    assert 0 < await client.ttl(notices.stream_key(user)) <= notices.STREAM_SECONDS
