"""Statements of an organization, a month each, as pages and as CSV."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from chatsite.accounts.models import Membership, Organization
from chatsite.accounts.roles import Permission
from chatsite.errors import NotFound
from quotas.billing import statement_csv, statements
from quotas.billing.pages import about, with_permission
from quotas.billing.statements import Statement
from quotas.periods import today

SHOWN_LINES = 500  # on a page; all are in the CSV


@require_safe
@with_permission(Permission.SEE_BILLING)
def all_months(request: HttpRequest, place: Membership) -> HttpResponse:
    months = statements.months(place.organization)
    rows = [{"month": f"{each.start:%Y-%m}", "day": each.start, "running": each.end > today()} for each in months]
    return render(request, "billing/statements.html", {**about(place, request), "months": rows})


@require_safe
@with_permission(Permission.SEE_BILLING)
def one_month(request: HttpRequest, place: Membership, month: str) -> HttpResponse:
    """A page; CSV where `month` ends so."""
    name, dot, kind = month.partition(".")
    found = find(place.organization, name)
    if dot:
        if kind != "csv":
            raise NotFound
        return csv_of(found)
    return render(request, "billing/statement.html", {**about(place, request), **shown(found)})


def find(organization: Organization, month: str) -> Statement:
    """Raises NotFound for what is no month, or one without a statement."""
    day = statements.month_of(month)
    period = next((each for each in statements.months(organization) if each.start == day), None)
    if period is None:
        raise NotFound
    return statements.statement(organization, period)


def shown(statement: Statement) -> dict[str, object]:
    """For the templates."""
    batches = any(line.batch for line in statement.lines)
    lines = [(line, statement.member(line), statement.key(line), _price(statement, line.price)) for line in
             statement.lines[:SHOWN_LINES]]  # fmt: skip
    more = len(statement.lines) > SHOWN_LINES
    return {"statement": statement, "lines": lines, "more": more, "batches": batches, "places": _places(statement)}


def _places(statement: Statement) -> int:
    """Decimal places of the longest amount. All are shown with as many, so that their points are below one another."""
    exponents = (line.sum.cost.normalize().as_tuple().exponent for line in statement.lines)
    return max((-int(each) for each in exponents), default=0)


def _price(statement: Statement, id: int | None) -> str:
    prices = statement.prices.get(id) if id is not None else None
    return (
        " / ".join(f"{each.normalize():f}" for each in (prices.input, prices.cached, prices.output)) if prices else ""
    )


def csv_of(statement: Statement) -> HttpResponse:
    response = HttpResponse(statement_csv.as_csv(statement), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="statement-{statement.month}.csv"'
    return response
