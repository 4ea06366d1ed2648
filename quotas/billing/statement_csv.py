"""A statement as CSV. Pure."""

import csv
import io
from decimal import Decimal
from typing import Final

from quotas.billing.statements import Line, Statement, Sum

COLUMNS: Final = (
    "month", "kind", "model", "batch", "member", "member_id", "key", "key_id", "price_list", "price_input",
    "price_cached", "price_output", "requests", "estimated", "input", "cached", "output", "cost", "currency",
)  # fmt: skip
# A spreadsheet takes what begins so as a formula, whoever has named a key like that.
FORMULAS: Final = ("=", "+", "-", "@", "\t", "\r", "\n")


def as_csv(statement: Statement) -> str:
    """One row for each line, and `total` at the end. Numbers are exact; costs have ten decimal places."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    writer.writerows(_row(statement, line) for line in statement.lines)
    last = "total, preliminary" if statement.preliminary else "total"
    writer.writerow([statement.month, last, *[""] * 10, *_figures(statement.total), statement.currency])
    return text.getvalue()


def plain(text: str) -> str:
    """Text of others with an apostrophe ahead where a spreadsheet would take it as a formula."""
    return f"'{text}" if text.startswith(FORMULAS) else text


def exact(cost: Decimal) -> str:
    """As the ledger has it: `-0.0000121600`."""
    return f"{cost:.10f}"


def _row(statement: Statement, line: Line) -> list[object]:
    prices = statement.prices.get(line.price) if line.price is not None else None
    return [
        statement.month,
        line.kind,
        plain(line.model),
        "yes" if line.batch else "no",
        plain(statement.member(line)),
        f"user_{line.user_id}",
        plain(statement.key(line)),
        f"key_{line.api_key_id}" if line.api_key_id else "",
        "" if line.price is None else line.price,
        *((f"{each:f}" for each in (prices.input, prices.cached, prices.output)) if prices else ("", "", "")),
        *_figures(line.sum),
        statement.currency,
    ]


def _figures(found: Sum) -> list[object]:
    return [found.requests, found.estimated, found.input, found.cached, found.output, exact(found.cost)]
