"""Log lines as the process writes them: JSON, with the request's id, without credentials."""

import asyncio
import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog
from django.conf import settings

from chatsite import logs

SECRET = "sk-" + "aB3_-x9Z" * 5 + "abc"
assert len(SECRET) == 46


@pytest.fixture
def output() -> Iterator[io.StringIO]:
    """What the configured handler would write to standard error."""
    stream = io.StringIO()
    config = settings.LOGGING["formatters"]["default"]
    formatter = config["()"](**{name: value for name, value in config.items() if name != "()"})
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    logger = logging.getLogger("tests.logs")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield stream
    logger.removeHandler(handler)
    structlog.contextvars.clear_contextvars()


def lines(output: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in output.getvalue().splitlines()]


def test_both_kinds_of_logger_write_one_json_object_a_line_with_the_request_id(output: io.StringIO) -> None:
    logs.begin_request("r1")
    structlog.stdlib.get_logger("tests.logs").info("from structlog", model="small", count=3)
    logging.getLogger("tests.logs").warning("from %s", "logging", extra={"model": "small"})
    first, second = lines(output)
    assert (first["event"], first["model"], first["count"], first["level"]) == ("from structlog", "small", 3, "info")
    assert (second["event"], second["model"], second["level"]) == ("from logging", "small", "warning")
    for line in (first, second):
        assert line["request_id"] == "r1"
        assert line["logger"] == "tests.logs"
        assert str(line["timestamp"]).endswith("Z")


def test_a_traceback_is_part_of_its_line(output: io.StringIO) -> None:
    try:
        raise RuntimeError("broken\nin two lines")
    except RuntimeError:
        structlog.stdlib.get_logger("tests.logs").exception("one")
        logging.getLogger("tests.logs").exception("two")
    for line in lines(output):
        assert "RuntimeError: broken\nin two lines" in str(line["exception"])
        assert "exc_info" not in line
    assert len(lines(output)) == 2


def test_the_next_request_starts_without_the_fields_of_the_last(output: io.StringIO) -> None:
    logs.begin_request("r1")
    structlog.contextvars.bind_contextvars(model="small")
    logs.begin_request("r2")
    structlog.stdlib.get_logger("tests.logs").info("x")
    assert lines(output)[0]["request_id"] == "r2"
    assert "model" not in lines(output)[0]


async def test_requests_side_by_side_keep_their_own_ids(output: io.StringIO) -> None:
    async def serve(number: int) -> None:
        logs.begin_request(f"r{number}")
        await asyncio.sleep(0)
        structlog.stdlib.get_logger("tests.logs").info(f"serving {number}")

    await asyncio.gather(*(asyncio.create_task(serve(number)) for number in range(20)))
    for line in lines(output):
        assert line["event"] == f"serving {str(line['request_id'])[1:]}"


LEAKS = [
    lambda log: log.info("key", key=SECRET),
    lambda log: log.info(f"called with {SECRET}"),
    lambda log: log.info("headers", headers={"Authorization": f"Bearer {SECRET}", "cookie": "sessionid=hunter2secret"}),
    lambda log: log.info("headers", headers=repr({"authorization": "Basic hunter2secret"})),
    lambda log: log.info("form", form={"email": "a@b.c", "password": "hunter2secret", "new_password": "hunter2secret"}),
    lambda log: log.info("body", body='{"password": "hunter2\\"secret", "x": 1}'),
    lambda log: log.info("connect", url="postgresql://ada:hunter2secret@db/x and redis://:hunter2secret@cache/0"),
    lambda log: log.error("failed", exc_info=RuntimeError(f"bad key {SECRET}")),
]


@pytest.mark.parametrize("leak", LEAKS)
def test_s33_no_credential_reaches_the_log(output: io.StringIO, leak) -> None:
    leak(structlog.stdlib.get_logger("tests.logs"))
    assert SECRET[8:] not in output.getvalue()
    assert "hunter2" not in output.getvalue()
    assert "[redacted]" in output.getvalue()
    assert len(lines(output)) == 1  # and it is JSON still


def test_ordinary_text_is_left_alone(output: io.StringIO) -> None:
    text = 'sk-short, http://host:80/path, "password" is a word, tokens: 5, ask-me-anything-about-things-of-any-kind'
    structlog.stdlib.get_logger("tests.logs").info(text, tokens=5)
    assert lines(output)[0]["event"] == text
