"""The errors of an engine, and which answer means which.

EngineError
├── EngineUnavailable   not reached, reset, 5xx, or it ended without a finish reason: another replica may do better
│   └── EngineMisconfigured  401, 403, 404, 405, 408, 429: it does not serve this model, or not to us
├── EngineStalled       nothing came within the given time
├── EngineGarbage       what it answers cannot be right
└── EngineRejected      any other 4xx: the request's own fault, and the same everywhere
"""

from chatsite.errors import AppError

_REPLICA_FAULTS = frozenset({401, 403, 404, 405, 408, 429})


class EngineError(AppError):
    """The engine could not answer."""

    code = "engine_unavailable"
    status = 503


class EngineUnavailable(EngineError):
    """The engine cannot be reached."""


class EngineMisconfigured(EngineUnavailable):
    """The engine does not serve this model."""


class EngineStalled(EngineError):
    """The engine has stopped sending."""


class EngineGarbage(EngineError):
    """The engine answered something that cannot be right."""


class EngineRejected(EngineError):
    """The engine does not take this request."""

    code = "invalid_input"
    status = 400

    def __init__(self, engine_status: int, message: str) -> None:
        self.engine_status = engine_status
        super().__init__(message)


def answered(status: int, message: str) -> EngineError:
    """The error that an answer with this HTTP status stands for."""
    text = f"The engine answered {status}" + (f": {message[:1000]}" if message else ".")
    if status in _REPLICA_FAULTS:
        return EngineMisconfigured(text)
    if 400 <= status < 500:
        return EngineRejected(status, text)
    return EngineUnavailable(text)
