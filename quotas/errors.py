"""Why a request is refused before anything is written.

RateLimited (chatsite.errors)
└── QuotaExceeded              429 rate_limited
    ├── TokensPerMinuteExceeded
    ├── RequestsPerMinuteExceeded
    ├── TooManyReplies
    ├── RequestExceedsLimit    429 rate_limited, no retry
    │   └── RepliesExceedLimit
    └── BudgetExhausted        429 budget_exhausted

PermissionDenied (chatsite.errors)
└── NoPlan                     403 no_plan

Unavailable (chatsite.errors)
└── Stopped                    503 stopped
"""

from typing import Literal

from chatsite.errors import PermissionDenied, RateLimited, Unavailable
from quotas.protocol import Remaining


class QuotaExceeded(RateLimited):
    """A limit of the plan, of a member or of the API key is reached."""

    def __init__(self, message: str, remaining: Remaining, retry_after: float | None = None) -> None:
        super().__init__(message, retry_after=retry_after)
        self.remaining = remaining
        self.headers = remaining.headers()


class TokensPerMinuteExceeded(QuotaExceeded):
    """The tokens per minute are used up."""  # retry_after: when there will be enough

    of = "tokens"


class RequestsPerMinuteExceeded(QuotaExceeded):
    """The requests per minute are used up."""  # retry_after: when there will be another


class TooManyReplies(QuotaExceeded):
    """As many replies run as are allowed at once."""

    def __init__(self, message: str, remaining: Remaining, retry_after: float | None = None) -> None:
        super().__init__(message, remaining, retry_after)
        # Whatever the minute would allow: no request may start before one has ended.
        self.headers = {**self.headers, "x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1s"}


class RequestExceedsLimit(QuotaExceeded):
    """One request alone is larger than a limit: waiting does not help."""

    should_retry = False
    of: Literal["requests", "tokens"] = "tokens"


class RepliesExceedLimit(RequestExceedsLimit):
    """One request alone asks for more replies than a limit allows at once."""

    of = "requests"


class BudgetExhausted(QuotaExceeded):
    """The budget is spent."""

    code = "budget_exhausted"

    def __init__(
        self, message: str, remaining: Remaining, retry_after: float | None = None, *, held: bool = False
    ) -> None:
        """`held`: replies that run hold what is missing, and may give some of it back soon."""
        super().__init__(message, remaining, retry_after)
        self.should_retry = None if held else False


class NoPlan(PermissionDenied):
    """This organization has no plan yet. Ask whoever runs this site for one, or work in another organization."""

    code = "no_plan"


class Stopped(Unavailable):
    """Nothing new is accepted at the moment. Try again later."""

    code = "stopped"
