"""What schemathesis does here beyond its own. Loaded by it (tests/acceptance/contract.toml)."""

import itertools
import os
import re
from typing import Any

import schemathesis
from schemathesis import Case, CheckContext, HookContext, Response

# Reasons to refuse what fits the document that no schema can say: rules between two fields, what is there at the moment
# and what the model can read, and which texts show something.
REASONS = re.compile(
    r"is only allowed|context length|max_tokens must be|leaves room for|longer than|no model named|out of vocabulary"
    r"|is not one of this list|not the id of an event|belongs to another|is not a reply|must be a reply"
    r"|contains a NUL character|outside 64 bits|levels deep|bytes of JSON|are too many"  # where anything may be
    r"|message is empty|cannot be shown|shows nothing|may not be blank|Null characters"
    r"|no such time|full hour in UTC|later than 'from'|days can be asked for|from 1970 on"  # dates, beyond their form
    r"|xpected `int[^`]*`, got `float`|an integer[^,]*, but got a decimal"  # 3.0: for a schema it is 3
)
REFUSALS = (400, 413, 415, 422)
KEY = re.compile("[ -~]{1,200}")
# Ids that no call tells, or that few replies have; the test has made them.
KNOWN = {
    "/v1/requests/{id}": os.environ.get("REQUEST", ""),
    "/v1/messages/{id}/stream": os.environ.get("REPLY", ""),
    "/v1/messages/{id}/stop": os.environ.get("REPLY", ""),
    "/v1/messages/{id}/continue": os.environ.get("REPLY", ""),
    "/v1/messages/{id}/regenerate": os.environ.get("REPLY", ""),
}
MODEL = "smollm2-135m"
_count = itertools.count()


@schemathesis.check
def what_fits_is_taken(ctx: CheckContext, response: Response, case: Case) -> None:
    """`positive_data_acceptance` would take every refusal of what fits the schema for a fault."""
    if fits(case) and response.status_code in REFUSALS and not REASONS.search(response.text):
        raise AssertionError(f"This fits the document, and was refused: {response.text[:500]}")


@schemathesis.check
def nobody_gets_in(ctx: CheckContext, response: Response, case: Case) -> None:
    """Where calls have no key."""
    if "KEYLESS" in os.environ and response.status_code not in (401, 405):
        raise AssertionError("This was answered without a key.")


@schemathesis.hook
def before_call(context: HookContext, case: Case, kwargs: dict[str, Any]) -> None:
    """Leads more calls past the checks of their bodies. What does not fit the document is left as it is."""
    number = next(_count)
    key = case.headers.get("Idempotency-Key")
    if isinstance(key, str) and KEY.fullmatch(key):
        case.headers["Idempotency-Key"] = f"{key}.{number}"  # else most would be repeats with another body
    if not fits(case):
        return
    if (known := KNOWN.get(case.path)) and number % 3:
        case.path_parameters["id"] = known
    if isinstance(case.body, dict) and "completions" in case.path:
        _relate(case.body, number)


def fits(case: Case) -> bool:
    return case.meta is not None and case.meta.generation.mode.is_positive


def _relate(body: dict[str, Any], number: int) -> None:
    """Makes fields agree with one another, and names a model that is there."""
    if number % 8:
        body["model"] = MODEL
    if body.get("stream_options") is not None or number % 2:
        body["stream"] = True
    if body.get("top_logprobs") is not None:
        body["logprobs"] = True
    if body.get("echo"):
        body.pop("logprobs", None)
    if isinstance(body.get("prompt"), list) and len({type(one) for one in body["prompt"]}) > 1:
        body["prompt"] = [one for one in body["prompt"] if isinstance(one, str)] or [1, 2, 3]
    if number % 4:
        body.pop("best_of", None)
        body.pop("min_tokens", None)
