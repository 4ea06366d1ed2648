"""What is wrong with a body, in the words and codes of the OpenAI API; and what became of a call.

Unavailable (chatsite.errors)
└── CallCancelled       503 call_cancelled

InvalidInput (chatsite.errors)
├── UnknownParameter    400 unknown_parameter
├── MissingParameter    400 missing_required_parameter
├── InvalidType         400 invalid_type
├── InvalidValue        400 invalid_value
├── Unsupported         400 unsupported_parameter
└── UnsupportedValue    400 unsupported_value
"""

from chatsite.errors import AppError, Conflict, InvalidInput, Unavailable


class UnknownParameter(InvalidInput):
    """There is no such parameter."""

    code = "unknown_parameter"


class MissingParameter(InvalidInput):
    """A required parameter is missing."""

    code = "missing_required_parameter"


class InvalidType(InvalidInput):
    """A parameter is of the wrong type."""

    code = "invalid_type"


class InvalidValue(InvalidInput):
    """A parameter has a value that is not allowed."""

    code = "invalid_value"


class Unsupported(InvalidInput):
    """This parameter is not supported here."""

    code = "unsupported_parameter"


class UnsupportedValue(InvalidInput):
    """This value is not supported here."""

    code = "unsupported_value"


class IdempotencyExpired(Conflict):
    """This call was answered before, and its text is not kept any more. Send it anew with another key."""

    code = "idempotency_expired"
    should_retry = False


class CallCancelled(Unavailable):
    """This call was cancelled before its answer was complete. Send it again."""

    code = "call_cancelled"


class CallerGone(AppError):
    """The caller went away before its answer was there."""  # nobody sees it

    code = "caller_gone"
    status = 499
