"""Why a request is refused before anything is written.

RateLimited (chatsite.errors)
└── QuotaExceeded              429 rate_limited
    ├── TokensPerMinuteExceeded
    ├── TooManyReplies
    └── RequestExceedsLimit    429 rate_limited, no retry
"""

from chatsite.errors import RateLimited
from quotas.protocol import Remaining


class QuotaExceeded(RateLimited):
    """A limit of the plan is reached."""

    def __init__(self, message: str, remaining: Remaining, retry_after: float | None = None) -> None:
        super().__init__(message, retry_after=retry_after)
        self.remaining = remaining
        self.headers = remaining.headers()


class TokensPerMinuteExceeded(QuotaExceeded):
    """The plan's tokens per minute are used up."""  # retry_after: when there will be enough


class TooManyReplies(QuotaExceeded):
    """As many replies run as the plan allows at once."""


class RequestExceedsLimit(QuotaExceeded):
    """One request alone is larger than the plan's minute: waiting does not help."""

    should_retry = False
