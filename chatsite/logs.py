"""What every log line carries, and what none may: request ids in, credentials out.

The settings file uses this module, so it imports nothing that needs the settings.
"""

import logging
import re
from typing import Any

import structlog

from chatsite.ids import new_id

REQUEST_ID = "request_id"
_SANE_ID = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_access = structlog.stdlib.get_logger("chatsite.access")

# A last line of defence over the finished line, tracebacks included; code does not log credentials in the first place.
_API_KEY = re.compile(r"\bsk-[A-Za-z0-9_-]{4}[A-Za-z0-9_-]{16,}")
_URL_PASSWORD = re.compile(r"(\b[a-z][a-z0-9+.-]*://[^\s:/@\"']*:)[^\s@\"']+@")
_NAMED = re.compile(
    r"""(\\?["'](?:[\w-]*password|authorization|cookie|set-cookie|sessionid|csrftoken|x-csrftoken|api_key|secret_key)\\?["']"""
    r"""\s*:\s*b?)(\\?["'])(?:[^"'\\]|\\[^"'])*\2""",
    re.IGNORECASE,
)


class OneLine(logging.Filter):
    """A logging filter: what is logged has no traceback."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.exc_info = None
        return True


def accept_request_id(offered: str | None) -> str:
    """The caller's own id where it is sane (letters, digits, `_`, `-`, at most 64), else a new one."""
    if offered is not None and _SANE_ID.match(offered):
        return offered
    return str(new_id())


def begin_request(request_id: str) -> None:
    """Starts the log context of one request: nothing of an earlier one stays in it."""
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(request_id=request_id)


def current_request_id() -> str:
    """The id of the request being served; empty outside one."""
    return str(structlog.contextvars.get_contextvars().get(REQUEST_ID, ""))


def log_access(method: str, route: str, status: int, seconds: float, **fields: Any) -> None:
    """One line per request. `route` is the pattern or path without its query, which may hold what a user typed."""
    _access.info("request", method=method, route=route, status=status, ms=round(seconds * 1000, 1), **fields)


def redact(_logger: Any, _method: str, line: Any) -> Any:
    """A structlog processor for the rendered line: of API keys a prefix stays, of passwords and cookies nothing."""
    if not isinstance(line, str):
        return line
    line = _API_KEY.sub(lambda match: match[0][:8] + "[redacted]", line)
    if "://" in line:
        line = _URL_PASSWORD.sub(r"\1[redacted]@", line)
    return _NAMED.sub(r"\1\2[redacted]\2", line)
