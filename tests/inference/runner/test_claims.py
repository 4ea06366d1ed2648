"""Who holds a request: what a claim writes, and what becomes of a runner that has lost it."""

from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper
from django.test.utils import CaptureQueriesContext

from chatsite.database import run_db
from chatsite.ids import new_id
from chatsite.redis import sync_client
from inference import claims
from inference.models import Partial, Replica, Request, RequestStatus
from inference.redis import keys
from tests.inference.runner.conftest import House, Reader, token_ids
from tests.waiting import wait_until


async def test_a_fenced_runner_appends_nothing(house: House) -> None:
    await house.engine(tokens_per_second=50)
    runner = await house.runner()
    message = await house.ask(400)
    await house.emitted(message, 5)
    stream = runner.streams[message.request_id]
    sync_client().hset(f"{keys.log(message.request_id)}:meta", mapping={"claim": "another", "attempt": 2})
    await wait_until(lambda: message.request_id not in runner.streams, 2)
    assert stream.interruption == "fenced"
    length = sync_client().xlen(keys.out(message.request_id))
    assert await run_db(Request.objects.get, id=message.request_id)
    assert sync_client().xlen(keys.out(message.request_id)) == length


async def test_a_claim_that_a_crash_of_postgresql_forgot_is_taken_again(house: House) -> None:
    """A claim does not wait for the disk: PostgreSQL may come back without it, while its runner streams on."""
    await house.engine(tokens_per_second=100)
    await house.runner()
    message = await house.ask(100)
    reader = Reader(message.request_id)
    await house.emitted(message, 20)
    before = {"status": RequestStatus.QUEUED, "attempt": 0, "claim": None, "claimed_at": None, "replica": None}
    await run_db(lambda: Request.objects.filter(id=message.request_id).update(**before))
    await run_db(lambda: Partial.objects.filter(request_id=message.request_id).delete())
    done = await house.ended(message, 20)
    ids, text = house.expected(100)
    assert (done.status, done.content) == ("complete", text)
    assert token_ids(done) == ids
    assert await reader.done() == text
    [entry] = await house.ledger(message)
    assert (entry.output, entry.outcome) == (100, "succeeded")
    await house.nothing_is_held()


async def test_only_the_claim_itself_does_not_wait_for_the_disk(house: House) -> None:
    message = await house.ask(10)
    replica = await run_db(Replica.objects.create, model=house.model, url="http://127.0.0.1:1")

    def waits(cursor: CursorWrapper) -> str:
        cursor.execute("SHOW synchronous_commit")
        return str(cursor.fetchone()[0])

    def taken() -> tuple[str, str]:
        with connection.cursor() as cursor:
            cursor.execute("SET synchronous_commit TO on")  # the tests' server does without
            with transaction.atomic():
                assert claims.take(message.request_id, new_id(), 1, replica.id, {}) is not None
                inside = waits(cursor)
            return inside, waits(cursor)

    assert await run_db(taken) == ("off", "on")


async def test_a_claim_that_nobody_hears_of_is_one_statement(house: House) -> None:
    message = await house.ask(10)
    replica = await run_db(Replica.objects.create, model=house.model, url="http://127.0.0.1:1")
    await run_db(lambda: Request.objects.filter(id=message.request_id).update(owner_kind="completion"))

    def taken() -> tuple[Request | None, int]:
        with CaptureQueriesContext(connection) as statements:
            request = claims.take(message.request_id, new_id(), 1, replica.id, {}, "completion")
        return request, len(statements)

    request, statements = await run_db(taken)
    assert request is not None and (request.status, request.attempt) == (RequestStatus.RUNNING, 1)
    assert statements == 1
    assert (await house.reload(message)).status == "pending"  # its owner was not told
