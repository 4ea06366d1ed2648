"""How long answers become, by organization and model."""

from collections.abc import Iterator

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from chatsite.ids import new_id
from chatsite.redis import async_client, run_pipeline
from inference import output_lengths
from inference.models import Request, RequestStatus
from inference.output_lengths import DEFAULT, OutputLengths, expected, learned, observed
from inference.redis import keys
from inference.redis.scheduler import Scheduler

MODEL = "talker"
ORGANIZATION = new_id()


@pytest.fixture(autouse=True)
def nothing_remembered() -> Iterator[None]:
    output_lengths.forget()
    yield
    output_lengths.forget()


@pytest_asyncio.fixture
async def scheduler() -> Scheduler:
    return Scheduler(async_client(), MODEL)


async def settled(scheduler: Scheduler, length: int | None, *, known: bool = True) -> None:
    id = str(new_id())
    if known:
        said = {"input": 5, "uncached": 5, "kv": 9, "deadline": 1}
        await scheduler.run(scheduler.enqueue_call(id, "free", str(ORGANIZATION), **said))  # type: ignore[arg-type]
    await scheduler.run(scheduler.settle_call(id, abs(length or 0), length))


def test_few_answers_say_nothing() -> None:
    assert learned([7] * 19) == DEFAULT
    assert learned([7] * 20) == OutputLengths(7, 7)


def test_half_and_nine_in_ten_answers_are_no_longer() -> None:
    assert learned(range(1, 101)) == OutputLengths(50, 90)
    assert learned([*[10] * 85, *[900] * 15]) == OutputLengths(10, 900)


def test_what_a_limit_cut_short_counts_as_longer_than_it_is() -> None:
    assert learned([*[-5] * 80, *[800] * 20]) == OutputLengths(800, 800)  # the 80 may have become anything
    assert learned([-16] * 100) == DEFAULT  # none was seen to its end
    assert learned([*[100] * 60, *[-2048] * 40]) == OutputLengths(100, 2048)
    assert learned([-2048] * 100) == OutputLengths(2048, 2048)


def test_only_answers_that_came_to_an_end_say_something() -> None:
    def request(status: RequestStatus, reason: str, tokens: int) -> Request:
        return Request(status=status, finish_reason=reason, output_tokens=tokens)

    assert observed(request(RequestStatus.SUCCEEDED, "stop", 40)) == 40
    assert observed(request(RequestStatus.SUCCEEDED, "length", 16)) == -16
    assert observed(request(RequestStatus.SUCCEEDED, "quota", 9)) == -9
    assert observed(request(RequestStatus.CANCELLED, "cancelled", 40)) is None
    assert observed(request(RequestStatus.FAILED, "", 40)) is None


async def test_settling_teaches_and_the_latest_hundred_count(scheduler: Scheduler) -> None:
    assert await expected(ORGANIZATION, MODEL) == DEFAULT
    for _ in range(30):
        await settled(scheduler, 4000)
    for _ in range(100):
        await settled(scheduler, 40)
    await settled(scheduler, None)
    output_lengths.forget()
    assert await expected(ORGANIZATION, MODEL) == OutputLengths(40, 40)
    assert await expected(ORGANIZATION, "another model") == DEFAULT
    assert await expected(new_id(), MODEL) == DEFAULT
    key = keys.outputs(scheduler.prefix, ORGANIZATION)
    assert await scheduler.client.llen(key) == 100  # type: ignore[misc]
    assert 0 < await scheduler.client.ttl(key) <= 30 * 86_400


async def test_settling_again_teaches_nothing(scheduler: Scheduler) -> None:
    for _ in range(25):
        await settled(scheduler, 40, known=False)
    assert await expected(ORGANIZATION, MODEL) == DEFAULT


async def test_what_a_process_knows_is_renewed_with_calls_that_go_anyway(scheduler: Scheduler) -> None:
    assert await expected(ORGANIZATION, MODEL) == DEFAULT
    assert output_lengths.reading(ORGANIZATION, MODEL) == []  # fresh
    for _ in range(20):
        await settled(scheduler, 40)
    assert await expected(ORGANIZATION, MODEL) == DEFAULT  # no round trip for each request
    output_lengths._fresh.clear()  # as after five seconds
    [answer] = await run_pipeline(scheduler.client, output_lengths.reading(ORGANIZATION, MODEL))
    assert output_lengths.note(ORGANIZATION, MODEL, answer) == OutputLengths(40, 40)
    for _ in range(20):
        await settled(scheduler, 8000)
    output_lengths._fresh.clear()
    assert await expected(ORGANIZATION, MODEL) == OutputLengths(40, 40)


async def test_s25_the_default_is_read_anew_also_where_nothing_is_sent(scheduler: Scheduler) -> None:
    """Who is refused for it sends nothing."""
    assert await expected(ORGANIZATION, MODEL) == DEFAULT
    for _ in range(20):
        await settled(scheduler, 40)
    output_lengths._fresh.clear()  # as after five seconds
    assert await expected(ORGANIZATION, MODEL) == OutputLengths(40, 40)


async def test_without_redis_the_default_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_lengths, "async_client", lambda: Redis(host="127.0.0.1", port=1))
    assert await expected(ORGANIZATION, MODEL) == DEFAULT
