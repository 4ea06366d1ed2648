"""The limits that an API key has of its own, beside those of the plan."""

import pytest

from chatsite.accounts.protocol import KeyLimits
from chatsite.ids import new_id
from chatsite.redis import async_client, run_pipeline
from quotas import services
from quotas.errors import RequestsPerMinuteExceeded, TokensPerMinuteExceeded, TooManyReplies
from tests.quotas.limit_calls import TTL, expire, key, plan, reserve, settle, standing


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
