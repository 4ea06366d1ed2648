"""Reservations, settlements and the ledger, on a real Valkey and PostgreSQL."""

import asyncio
from dataclasses import dataclass
from decimal import Decimal
from uuid import UUID

import pytest
from django.db import DatabaseError, transaction

from chatsite.accounts.protocol import KeyLimits, Principal
from chatsite.errors import Unavailable
from chatsite.ids import new_id
from chatsite.redis import async_client, run_pipeline, sync_client
from quotas import selectors, services
from quotas.errors import (
    QuotaExceeded,
    RequestExceedsLimit,
    RequestsPerMinuteExceeded,
    TokensPerMinuteExceeded,
    TooManyReplies,
)
from quotas.models import LedgerEntry, Plan
from quotas.prices import PriceVersion
from quotas.protocol import PlanLimits, Prices, Remaining, Standing, Used, Want

TTL = 10.0


def plan(tokens: int = 1000, concurrent: int = 1000, requests: int | None = None) -> PlanLimits:
    return PlanLimits("test", "free", tokens, concurrent, requests)


def caller(organization: UUID, key: KeyLimits | None = None) -> Principal:
    return Principal(new_id(), organization, key_limits=key)


def key(
    requests: int | None = None, tokens: int | None = None, concurrent: int | None = None, chain: UUID | None = None
) -> KeyLimits:
    return KeyLimits(chain or new_id(), "Billing", requests, tokens, concurrent)


async def reserve(
    organization: UUID, request: UUID, limits: PlanLimits, tokens: int, key: KeyLimits | None = None
) -> Remaining:
    return await services.reserve(caller(organization, key), limits, {request: Want(tokens)}, TTL)


async def settle(organization: UUID, request: UUID, tokens: int) -> None:
    assert await services.settle(organization, request, Used(tokens))


async def standing(organization: UUID, limits: PlanLimits, key: KeyLimits | None = None) -> Standing:
    """Of the key's bucket where there is one, else of the plan's."""
    return (await selectors.remaining(caller(organization, key), limits)).standings[-1]


async def expire(organization: UUID, request: UUID) -> None:
    """As if the request had not been renewed in time."""
    await async_client().zadd(f"{selectors.quota_prefix(organization)}:live", {str(request): 1})


async def test_s21_parallel_calls_take_no_more_than_the_limit() -> None:
    organization, limits = new_id(), plan(tokens=1000)

    async def attempt() -> int:
        try:
            await reserve(organization, new_id(), limits, 30)
        except TokensPerMinuteExceeded as error:
            assert error.retry_after and 0 < error.retry_after <= 60
            return 0
        return 30

    taken = sum(await asyncio.gather(*(attempt() for _ in range(100))))
    assert 990 <= taken <= 1000  # 33 of them, and one more only where the minute refilled meanwhile


async def test_s21_parallel_calls_keep_the_limit_of_replies_at_once() -> None:
    organization, limits = new_id(), plan(tokens=1_000_000, concurrent=7)
    attempts = [reserve(organization, new_id(), limits, 30) for _ in range(100)]
    results = await asyncio.gather(*attempts, return_exceptions=True)
    assert sum(isinstance(result, Remaining) for result in results) == 7
    assert sum(isinstance(result, TooManyReplies) for result in results) == 93


async def test_what_is_given_up_is_as_room_for_what_is_made_instead() -> None:
    organization, waiting, other = new_id(), new_id(), new_id()
    who = caller(organization)
    await reserve(organization, new_id(), plan(tokens=100), 30)
    limits = plan(tokens=100, concurrent=2)
    await reserve(organization, waiting, limits, 60)
    with pytest.raises(TokensPerMinuteExceeded):
        await services.reserve(who, limits, {new_id(): Want(80)}, TTL, given_up=waiting)
    with pytest.raises(TooManyReplies):
        await services.reserve(who, limits, {new_id(): Want(10)}, TTL, given_up=new_id())
    taken = await services.reserve(who, limits, {other: Want(60)}, TTL, given_up=waiting)
    assert taken.standings[0].running == 3  # until the caller settles one of them
    await settle(organization, waiting, 0)
    now = await standing(organization, limits)
    assert (now.running, 80 <= now.tokens <= 90) == (2, True)
    await settle(organization, other, 0)
    assert (await standing(organization, limits)).running == 1


async def test_a_refusal_takes_nothing() -> None:
    organization, limits = new_id(), plan(tokens=100, concurrent=1)
    await reserve(organization, new_id(), limits, 60)
    for tokens in (50, 10):  # too many tokens, then too many replies
        with pytest.raises(QuotaExceeded):
            await reserve(organization, new_id(), limits, tokens)
    now = await standing(organization, limits)
    assert (now.running, 55 <= now.tokens <= 60) == (1, True)


async def test_the_wait_is_computed_from_what_is_missing() -> None:
    organization, limits = new_id(), plan(tokens=600)  # ten a second
    await reserve(organization, new_id(), limits, 600)
    with pytest.raises(TokensPerMinuteExceeded) as refused:
        await reserve(organization, new_id(), limits, 100)
    assert refused.value.retry_after == pytest.approx(10, abs=0.5)
    assert refused.value.headers["x-ratelimit-limit-tokens"] == "600"
    assert refused.value.headers["x-ratelimit-remaining-tokens"] in {"0", "1", "2"}
    assert refused.value.headers["x-ratelimit-reset-tokens"] in {"1m0s", "59s"}


async def test_a_request_larger_than_the_minute_is_not_worth_a_retry() -> None:
    with pytest.raises(RequestExceedsLimit) as refused:
        await reserve(new_id(), new_id(), plan(tokens=100), 101)
    assert refused.value.should_retry is False
    assert refused.value.retry_after is None


async def test_s25_what_is_only_expected_is_reserved_as_far_as_the_minute_allows() -> None:
    organization, limits = new_id(), plan(tokens=600)
    who, price = caller(organization), PriceVersion(None, Prices(Decimal(1), Decimal(1), Decimal(1)))
    long, longer = (services.want(50, 3000, 1024, price, "paid") for _ in range(2))
    assert (long.tokens, long.most) == (1074, 3050)
    await services.reserve(who, limits, {new_id(): long}, TTL)
    assert (await standing(organization, limits)).tokens == 600
    organization = new_id()
    await services.reserve(caller(organization), limits, {new_id(): long, new_id(): longer}, TTL)
    assert (await standing(organization, limits)).tokens == 600
    with pytest.raises(RequestExceedsLimit, match="601 tokens, and the test plan allows 600 a minute"):
        await services.reserve(caller(new_id()), limits, {new_id(): services.want(600, 3000, 1024, price, "paid")}, TTL)


async def test_reserving_twice_takes_once() -> None:
    organization, request, limits = new_id(), new_id(), plan()
    for _ in range(3):
        now = (await reserve(organization, request, limits, 100)).standings[0]
    assert (now.running, 95 <= now.tokens <= 100, now.requests) == (1, True, 0)


async def test_s22_a_cancelled_request_frees_its_place_exactly_once() -> None:
    organization, limits = new_id(), plan(concurrent=2)
    first, second = new_id(), new_id()
    await reserve(organization, first, limits, 100)
    await reserve(organization, second, limits, 100)
    for _ in range(3):
        await settle(organization, first, 10)
    now = await standing(organization, limits)
    assert (now.running, 105 <= now.tokens <= 110) == (1, True)
    await reserve(organization, new_id(), limits, 100)
    with pytest.raises(TooManyReplies):
        await reserve(organization, new_id(), limits, 100)


async def test_s22_what_its_process_took_along_comes_back_when_the_reservation_expires() -> None:
    organization, limits = new_id(), plan(tokens=100, concurrent=1)
    dead = new_id()
    await reserve(organization, dead, limits, 100)
    await expire(organization, dead)
    remaining = await reserve(organization, new_id(), limits, 100)
    assert remaining.standings[0].running == 1
    assert await async_client().hlen(f"{selectors.quota_prefix(organization)}:held") == 1


async def test_settling_after_the_reservation_expired_takes_what_was_used() -> None:
    organization, request, limits = new_id(), new_id(), plan(tokens=100_000)
    await reserve(organization, request, limits, 1000)
    await expire(organization, request)
    await reserve(organization, new_id(), limits, 1)  # sweeps
    await settle(organization, request, 50_000)
    assert (await standing(organization, limits)).tokens == pytest.approx(50_001, rel=0.02)


async def test_more_used_than_reserved_overdraws_by_at_most_one_minute() -> None:
    organization, request, limits = new_id(), new_id(), plan(tokens=1000)
    await reserve(organization, request, limits, 100)
    await settle(organization, request, 1_000_000)
    assert 1900 <= (await standing(organization, limits)).tokens <= 2000


async def test_a_renewed_reservation_does_not_expire() -> None:
    limits = plan(concurrent=1)
    pairs = [(new_id(), new_id()), (new_id(), new_id())]
    for organization, request in pairs:
        await reserve(organization, request, limits, 10)
        await expire(organization, request)
    await run_pipeline(async_client(), services.renew_calls(pairs, TTL))
    for organization, _ in pairs:
        with pytest.raises(TooManyReplies):
            await reserve(organization, new_id(), limits, 10)


async def test_one_call_renews_all_of_an_organization() -> None:
    organization = new_id()
    calls = services.renew_calls([(organization, new_id()), (new_id(), new_id()), (organization, new_id())], TTL)
    assert sorted((len(call.args) - 4) / 2 for call in calls) == [1, 2]


async def test_after_redis_lost_everything_running_requests_count_again() -> None:
    organization, request, limits = new_id(), new_id(), plan(tokens=1000, concurrent=1)
    await reserve(organization, request, limits, 600)
    sync_client().flushall()
    await run_pipeline(async_client(), services.renew_calls([(organization, request)], TTL))
    with pytest.raises(TooManyReplies):
        await reserve(organization, new_id(), limits, 10)
    await settle(organization, request, 500)
    now = await standing(organization, limits)
    assert (now.running, 490 <= now.tokens <= 500) == (0, True)


async def test_restoring_takes_the_tokens_once() -> None:
    organization, request, limits = new_id(), new_id(), plan(tokens=1000)
    for _ in range(2):
        await services.restore(organization, request, 400, TTL)
    now = await standing(organization, limits)
    assert (now.running, 390 <= now.tokens <= 400) == (1, True)


async def test_a_renewal_that_comes_late_does_not_revive_a_settled_request() -> None:
    organization, request, limits = new_id(), new_id(), plan()
    await reserve(organization, request, limits, 100)
    await settle(organization, request, 0)
    await run_pipeline(async_client(), services.renew_calls([(organization, request)], TTL))
    assert (await standing(organization, limits)).running == 0


async def test_nothing_stays_in_redis_of_an_organization_that_went_quiet() -> None:
    organization = new_id()
    request = new_id()
    await reserve(organization, request, plan(), 100)
    await settle(organization, request, 10)
    keys = await async_client().keys(f"{selectors.quota_prefix(organization)}*")
    assert keys
    for key in keys:
        assert 0 < await async_client().pttl(key) <= 310_000


# A key's own limits


@pytest.mark.parametrize(
    ("limits", "kind", "sentence"),
    [
        (
            key(tokens=100),
            TokensPerMinuteExceeded,
            "The API key “Billing” allows 100 tokens a minute; 20 are left now.",
        ),
        (
            key(requests=1),
            RequestsPerMinuteExceeded,
            "The API key “Billing” allows 1 requests a minute, and they are used up.",
        ),
        (key(concurrent=1), TooManyReplies, "The API key “Billing” allows 1 replies at once, and 1 are running."),
    ],
)
async def test_a_key_s_limit_refuses_and_is_named(limits: KeyLimits, kind: type, sentence: str) -> None:
    organization = new_id()
    await reserve(organization, new_id(), plan(), 80, limits)
    before = await standing(organization, plan())
    with pytest.raises(kind) as refused:
        await reserve(organization, new_id(), plan(), 80, limits)
    assert refused.value.message == sentence
    assert refused.value.retry_after and 0 < refused.value.retry_after <= 60
    after = await standing(organization, plan())
    assert (after.running, after.requests) == (before.running, before.requests) == (1, 0)
    assert after.tokens <= before.tokens, "the plan's bucket is as it was"
    await reserve(organization, new_id(), plan(), 80)  # the organization's other callers go on


async def test_the_plan_s_limit_refuses_a_key_that_has_room() -> None:
    organization, limits, own = new_id(), plan(tokens=100), key(tokens=1000)
    await reserve(organization, new_id(), limits, 80, own)
    with pytest.raises(TokensPerMinuteExceeded, match="The test plan allows 100 tokens a minute"):
        await reserve(organization, new_id(), limits, 80, own)
    assert 75 <= (await standing(organization, limits, own)).tokens <= 80


async def test_keys_do_not_count_against_each_other() -> None:
    organization, limits, mine, other = new_id(), plan(), key(concurrent=1), key(concurrent=1)
    await reserve(organization, new_id(), limits, 10, mine)
    await reserve(organization, new_id(), limits, 10, other)
    assert (await standing(organization, limits)).running == 2


async def test_keys_of_one_chain_share_their_limits() -> None:
    organization, chain = new_id(), new_id()
    old, new = key(requests=2, chain=chain), key(requests=2, chain=chain)
    await reserve(organization, new_id(), plan(), 1, old)
    await reserve(organization, new_id(), plan(), 1, new)
    for either in (old, new):
        with pytest.raises(RequestsPerMinuteExceeded):
            await reserve(organization, new_id(), plan(), 1, either)


async def test_the_longest_of_the_waits_is_told() -> None:
    organization, limits, own = new_id(), plan(tokens=6000), key(requests=1, tokens=600)
    await reserve(organization, new_id(), limits, 600, own)
    with pytest.raises(RequestsPerMinuteExceeded) as refused:  # tokens for this one would be there in 30 s
        await reserve(organization, new_id(), limits, 300, own)
    assert refused.value.retry_after == pytest.approx(60, abs=0.5)
    assert refused.value.headers["x-ratelimit-limit-requests"] == "1"
    assert refused.value.headers["x-ratelimit-limit-tokens"] == "600"


async def test_settling_gives_back_to_every_bucket() -> None:
    organization, request, limits, own = new_id(), new_id(), plan(), key(tokens=500, concurrent=1)
    await reserve(organization, request, limits, 400, own)
    await settle(organization, request, 30)
    for now in (await standing(organization, limits), await standing(organization, limits, own)):
        assert (now.running, 25 <= now.tokens <= 30) == (0, True)


async def test_a_request_counts_in_its_minute_even_if_nothing_came_of_it() -> None:
    organization, request, limits = new_id(), new_id(), plan(requests=1)
    await reserve(organization, request, limits, 10)
    await settle(organization, request, 0)
    with pytest.raises(RequestsPerMinuteExceeded):
        await reserve(organization, new_id(), limits, 10)


async def test_several_replies_are_one_request_and_are_taken_or_refused_together() -> None:
    organization, limits = new_id(), plan(tokens=100, concurrent=4, requests=10)
    three = {new_id(): Want(20) for _ in range(3)}
    for _ in range(2):
        now = (await services.reserve(caller(organization), limits, three, TTL)).standings[0]
        assert (now.running, now.requests, 55 <= now.tokens <= 60) == (3, 1, True)
    with pytest.raises(TooManyReplies):
        await services.reserve(caller(organization), limits, {new_id(): Want(1), new_id(): Want(1)}, TTL)
    with pytest.raises(RequestExceedsLimit, match="asks for 5 replies, and the test plan allows 4"):
        await services.reserve(caller(organization), limits, {new_id(): Want(1) for _ in range(5)}, TTL)
    assert (await standing(organization, limits)).running == 3


async def test_a_key_s_reservation_that_expired_is_charged_where_it_belongs() -> None:
    organization, limits, own = new_id(), plan(tokens=1000, concurrent=5), key(tokens=1000, concurrent=1)
    late, again = new_id(), new_id()
    for request, expected in ((late, 0), (again, 1)):
        await reserve(organization, request, limits, 300, own)
        await expire(organization, request)
        await reserve(organization, new_id(), limits, 0)  # sweeps
        assert (await standing(organization, limits, own)).running == 0
        if expected:
            await run_pipeline(async_client(), services.renew_calls([(organization, request)], TTL))
        assert (await standing(organization, limits, own)).running == expected
        await settle(organization, request, 200)
        assert (await standing(organization, limits, own)).running == 0
    assert 390 <= (await standing(organization, limits, own)).tokens <= 400


async def test_a_limit_that_was_lifted_or_lowered_counts_from_then_on() -> None:
    organization, chain = new_id(), new_id()
    await reserve(organization, new_id(), plan(), 500, key(tokens=500, chain=chain))
    await reserve(organization, new_id(), plan(), 100, key(concurrent=5, chain=chain))
    with pytest.raises(TooManyReplies):
        await reserve(organization, new_id(), plan(), 100, key(concurrent=2, chain=chain))
    await reserve(organization, new_id(), plan(), 100, key(tokens=100, chain=chain))


async def test_the_headers_are_of_the_tightest_limit() -> None:
    organization, limits, own = new_id(), plan(tokens=1000, concurrent=5, requests=10), key(requests=50, tokens=900)
    headers = (await reserve(organization, new_id(), limits, 300, own)).headers()
    assert headers["x-ratelimit-limit-tokens"] == "900"
    assert headers["x-ratelimit-remaining-tokens"] in {"600", "601"}
    assert (headers["x-ratelimit-limit-requests"], headers["x-ratelimit-remaining-requests"]) == ("10", "9")
    assert headers["x-ratelimit-reset-requests"] == "6s"


async def test_without_redis_nothing_is_admitted(settings: pytest.FixtureRequest) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    with pytest.raises(Unavailable) as refused:
        await reserve(new_id(), new_id(), plan(), 1)
    assert refused.value.retry_after


@dataclass(frozen=True)
class Tokens:
    input: int
    cached: int
    output: int


def record(request_id: UUID, used: Tokens, **changes: object) -> None:
    fields = {
        "request_id": request_id,
        "organization_id": new_id(),
        "user_id": new_id(),
        "api_key_id": None,
        "model": "small",
        "prices": Prices(Decimal("0.10"), Decimal("0.01"), Decimal("0.40")),
        "usage": used,
        "outcome": "succeeded",
        "source": "engine",
    }
    services.record_usage(**{**fields, **changes})


def test_s23_one_ledger_row_for_each_request(db: None) -> None:
    request_id = new_id()
    record(request_id, Tokens(812, 640, 245))
    record(request_id, Tokens(812, 640, 999), outcome="failed")
    row = LedgerEntry.objects.get(request_id=request_id)
    assert (row.input, row.cached, row.output, row.outcome) == (812, 640, 245, "succeeded")
    assert row.cost == Decimal("0.0001216000")  # (172 * 0.10 + 640 * 0.01 + 245 * 0.40) / 1,000,000


def test_s23_a_request_that_gave_nothing_has_a_row_that_costs_nothing(db: None) -> None:
    request_id = new_id()
    record(request_id, Tokens(0, 0, 0), outcome="cancelled")
    assert LedgerEntry.objects.get(request_id=request_id).cost == 0


def test_the_ledger_row_shares_the_fate_of_the_transaction(db: None) -> None:
    request_id = new_id()
    with pytest.raises(RuntimeError), transaction.atomic():
        record(request_id, Tokens(1, 0, 1))
        raise RuntimeError
    assert not LedgerEntry.objects.filter(request_id=request_id).exists()


@pytest.mark.parametrize("change", ["update", "delete"])
def test_s24_the_ledger_is_append_only(db: None, change: str) -> None:
    record(new_id(), Tokens(1, 0, 1))
    rows = LedgerEntry.objects.all()
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        rows.update(cost=0) if change == "update" else rows.delete()
    assert rows.get().input == 1


def test_s24_the_ledger_outlives_the_account(db: None, person) -> None:
    organization_id = person.organization.id
    record(new_id(), Tokens(1, 0, 1), organization_id=organization_id, user_id=person.user.id)
    person.organization.delete()
    person.user.delete()
    assert LedgerEntry.objects.filter(organization_id=organization_id).count() == 1


def test_subscribing_is_seen_at_once(db: None, make_person) -> None:
    organization = make_person("new@example.com", plan=None).organization
    assert selectors.plan_of(organization.id).name == "free"
    services.subscribe(organization.id, "demo")
    assert selectors.plan_of(organization.id) == PlanLimits("demo", "paid", 10_000_000, 128, None)
    with pytest.raises(Plan.DoesNotExist):
        services.subscribe(organization.id, "no such plan")
