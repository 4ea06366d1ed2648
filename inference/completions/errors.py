"""What is wrong with a body, in the words and codes of the OpenAI API; and what became of a call.

Unavailable (chatsite.errors)
├── CallCancelled       503 call_cancelled
└── WaitedTooLong       503 high_demand

InvalidInput (chatsite.errors)
├── UnknownParameter    400 unknown_parameter
├── MissingParameter    400 missing_required_parameter
├── InvalidType         400 invalid_type
├── InvalidValue        400 invalid_value
│   ├── IntegerBelow    400 integer_below_min_value
│   ├── IntegerAbove    400 integer_above_max_value
│   ├── DecimalBelow    400 decimal_below_min_value
│   ├── DecimalAbove    400 decimal_above_max_value
│   ├── EmptyString     400 empty_string
│   ├── StringTooLong   400 string_above_max_length
│   ├── EmptyArray      400 empty_array
│   └── ArrayTooLong    400 array_above_max_length
├── Unsupported         400 unsupported_parameter
└── UnsupportedValue    400 unsupported_value
"""

from chatsite.errors import AppError, Conflict, InvalidInput, Unavailable
from inference.errors import HighDemand


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


class IntegerBelow(InvalidValue):
    """An integer is below its minimum."""

    code = "integer_below_min_value"


class IntegerAbove(InvalidValue):
    """An integer is above its maximum."""

    code = "integer_above_max_value"


class DecimalBelow(InvalidValue):
    """A number is below its minimum."""

    code = "decimal_below_min_value"


class DecimalAbove(InvalidValue):
    """A number is above its maximum."""

    code = "decimal_above_max_value"


class EmptyString(InvalidValue):
    """A string is empty."""

    code = "empty_string"


class StringTooLong(InvalidValue):
    """A string is too long."""

    code = "string_above_max_length"


class EmptyArray(InvalidValue):
    """A list is empty."""

    code = "empty_array"


class ArrayTooLong(InvalidValue):
    """A list is too long."""

    code = "array_above_max_length"


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


class WaitedTooLong(Unavailable):
    """High demand: the wait was too long. Try again."""

    code = HighDemand.code


class CallerGone(AppError):
    """The caller went away before its answer was there."""  # nobody sees it

    code = "caller_gone"
    status = 499
