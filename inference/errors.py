"""What can go wrong between a prompt and its reply."""

from collections.abc import Mapping
from typing import Any

from chatsite.errors import AppError, InvalidInput, PermissionDenied, RateLimited, Unavailable


class UnknownModel(InvalidInput):
    """There is no model of that name."""

    code = "unknown_model"


class ModelNotAllowed(PermissionDenied):
    """Your plan does not include this model."""

    code = "model_not_allowed"


class ContextTooLong(InvalidInput):
    """The text is longer than the model can read."""

    code = "context_too_long"


class ControlToken(InvalidInput):
    """The text contains a control token of the model, such as `<|...|>`."""

    code = "control_token"


class EngineUnavailable(Unavailable):
    """No engine could finish this reply."""

    code = "engine_unavailable"


class ModelLoading(Unavailable):
    """The model is still loading. Try again shortly."""

    code = "model_loading"


class HighDemand(RateLimited):
    """High demand: the wait was too long."""

    code = "high_demand"

    def __init__(
        self,
        message: str | None = None,
        *,
        retry_after: float | None = None,
        param: str | None = None,
        decision: Mapping[str, Any] | None = None,
    ) -> None:
        """`decision`: why, as the record of a request that is let in has it. It is told with the error, and only so."""
        super().__init__(message, retry_after=retry_after, param=param)
        if decision:
            self.members = {"decision": dict(decision)}


class EngineRejected(AppError):
    """The engine refused this request."""

    code = "engine_rejected"
    status = 502
    should_retry = False
