"""Readable lines out of many processes' output, whatever the reader does."""

import io
import os
import time
from concurrent.futures import ThreadPoolExecutor

from chatsite.operations.output import MAX_LINE, MAX_WAITING_LINES, LineSplitter, Output


def test_lines_are_cut_across_chunks() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"one\ntw") == ["one"]
    assert splitter.feed(b"o\r\n\n50%\r100%") == ["two", "50%"]
    assert splitter.end() == ["100%"]
    assert splitter.end() == []


def test_a_character_cut_in_two_and_bytes_that_are_no_text() -> None:
    splitter = LineSplitter()
    whole = "grüße".encode()
    assert splitter.feed(whole[:3]) == []
    assert splitter.feed(whole[3:] + b"\n\xff\n") == ["grüße", "\N{REPLACEMENT CHARACTER}"]


def test_an_endless_line_is_shown_in_pieces() -> None:
    assert LineSplitter().feed(b"x" * (MAX_LINE + 1)) == ["x" * (MAX_LINE + 1)]


def test_prefixes() -> None:
    stream = io.StringIO()
    output = Output(stream)
    output.line("web", "hello")
    output.line("postgres", "ready")
    output.close()
    assert stream.getvalue() == "web      | hello\npostgres | ready\n"


def test_a_reader_who_stops_reading_holds_nothing_up() -> None:
    reader, writer = os.pipe()
    stream = os.fdopen(writer, "w")
    output = Output(stream)
    started = time.monotonic()
    for number in range(MAX_WAITING_LINES + 5_000):
        output.line("web", f"line {number} {'x' * 60}")
    output.close(timeout=0.1)
    assert time.monotonic() - started < 5

    with ThreadPoolExecutor() as pool, os.fdopen(reader, "rb") as source:
        seen = pool.submit(source.read)
        output.close(timeout=10)
        stream.close()
        assert b"lines were not shown\n" in seen.result(10)


def test_a_reader_who_is_gone_ends_nothing() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    stream = os.fdopen(writer, "w")
    output = Output(stream)
    output.line("web", "hello")
    output.line("web", "still there")
    output.close()
