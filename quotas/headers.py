"""Where a caller stands against the limits, on every answer of a raw route."""

from dataclasses import replace
from functools import wraps

from chatsite.accounts.protocol import Principal
from chatsite.errors import AppError, Unavailable
from chatsite.raw import Answer, Handler, RawRequest
from quotas import selectors

FIRST = "x-ratelimit-limit-tokens"  # where an answer has this one, it has them all


def limited(handler: Handler) -> Handler:
    """Adds the `x-ratelimit-*` headers to the handler's answers and errors, but for those that carry their own."""

    @wraps(handler)
    async def handle(request: RawRequest) -> Answer:
        try:
            answer = await handler(request)
        except AppError as error:
            error.headers = {**await limit_headers(request.principal), **error.headers}
            raise
        if FIRST in answer.headers:
            return answer
        return replace(answer, headers={**await limit_headers(request.principal), **answer.headers})

    return handle


async def limit_headers(principal: Principal) -> dict[str, str]:
    """Empty while Redis does not answer: reading needs no limit."""
    plan = await selectors.aplan_of(principal.organization_id)
    try:
        return (await selectors.remaining(principal, plan)).headers()
    except Unavailable:
        return {}
