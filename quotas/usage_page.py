"""The usage page: what was used, by day, model, key and member, and what is left of each limit."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.http import urlencode
from django.views.decorators.http import require_safe

from chatsite.accounts.authentication import principal_at
from chatsite.accounts.models import ApiKey, Membership
from chatsite.accounts.roles import Permission, may
from chatsite.accounts.selectors import place_in
from chatsite.errors import InvalidInput, NotFound
from chatsite.ids import parse_id, public_id
from quotas.billing.pages import about, with_permission
from quotas.billing.people import Names, names
from quotas.charts import HEIGHT, Chart, bar_chart, share, short
from quotas.models import LedgerEntry
from quotas.money import shown
from quotas.periods import today
from quotas.spans import Span, last_days, last_month, this_month
from quotas.usage import Group, Usage, Use, usage
from quotas.usage_limits import limits_of

RANGES: Final = {
    "month": ("This month", this_month),
    "last-month": ("Last month", last_month),
    "7": ("7 days", lambda day: last_days(7, day)),
    "30": ("30 days", lambda day: last_days(30, day)),
    "90": ("90 days", lambda day: last_days(90, day)),
}
SHOWN: Final = {"cost": "Cost", "tokens": "Tokens"}


@dataclass(frozen=True)
class Choice:
    label: str
    address: str
    chosen: bool


@dataclass(frozen=True)
class Row:
    """Of a table. `bar` in percent of the widest; `address` leads to the page of this one alone."""

    name: str
    use: Use
    bar: float
    address: str = ""

    @property
    def cost(self) -> str:
        return shown(self.use.cost, settings.CURRENCY)


@dataclass(frozen=True)
class Table:
    id: str
    title: str
    heading: str
    rows: Sequence[Row]


@dataclass(frozen=True)
class Asked:
    """What the address asks for. `member` None: everybody, where that may be seen."""

    range: str
    show: str
    member: UUID | None
    organization: str  # public id, where the address names one

    def address(self, **changes: Any) -> str:
        chosen = {"range": self.range, "show": self.show, "member": self.member, **changes}
        member = public_id("user", chosen["member"]) if chosen["member"] else ""
        query = {
            "range": chosen["range"] if chosen["range"] != "month" else "",
            "show": chosen["show"] if chosen["show"] != "cost" else "",
            "member": member,
            "organization": self.organization,
        }
        return f"?{urlencode({name: value for name, value in query.items() if value})}"


@require_safe
@with_permission(Permission.USE)
def usage_page(request: HttpRequest, place: Membership) -> HttpResponse:
    """`range`, `show` (cost, tokens) and `member` choose. Members see what they used themselves."""
    sees_all = may(place.role, Permission.SEE_USAGE)
    asked = _asked(request, place, sees_all)
    whose = asked.member if sees_all else place.user_id
    span: Span = RANGES[asked.range][1](today())
    found = {group: usage(place.organization_id, span, group, user=whose) for group in Group}
    everybody = sees_all and whose is None and not place.organization.is_personal
    days = span.days
    context = {
        **about(place, request),
        "ranges": [
            Choice(title, asked.address(range=name), name == asked.range) for name, (title, _) in RANGES.items()
        ],
        "shown": [Choice(title, asked.address(show=name), name == asked.show) for name, title in SHOWN.items()],
        "show": asked.show,
        "first_day": days[0],
        "last_day": days[-1],
        "marked_days": dict.fromkeys((days[0], days[len(days) // 2], days[-1])),
        "lines": (0, HEIGHT / 2, HEIGHT),
        "currency": settings.CURRENCY,
        "total": found[Group.DAY].total,
        "cost": shown(found[Group.DAY].total.cost, settings.CURRENCY),
        "chart": _chart(found[Group.DAY], days, asked.show),
        "days": _days(found[Group.DAY]),
        "tables": _tables(found, place.organization_id, asked, everybody=everybody),
        "limits": limits_of(principal_at(place)),
        "no_plan": place.organization.has_no_plan,
        "member": names(place.organization_id, [whose], []).member(whose) if sees_all and whose else "",
        "everybody": everybody,
        "address_of_all": asked.address(member=None),
    }
    return render(request, "quotas/usage.html", context)


def _asked(request: HttpRequest, place: Membership, sees_all: bool) -> Asked:
    """Raises InvalidInput, NotFound."""
    chosen, show = request.GET.get("range", "month"), request.GET.get("show", "cost")
    if chosen not in RANGES:
        raise InvalidInput("There is no such range of days to choose.", param="range")
    if show not in SHOWN:
        raise InvalidInput("Only cost and tokens can be shown.", param="show")
    organization = place.organization.public_id if request.GET.get("organization") else ""
    member = _member(request.GET.get("member", ""), place, sees_all)
    return Asked(chosen, show, member, organization)


def _member(text: str, place: Membership, sees_all: bool) -> UUID | None:
    """One of the organization, or somebody who was and has used it. Raises NotFound, as for everybody else's."""
    if not text:
        return None
    found = parse_id("user", text)
    if found is None or not (sees_all or found == place.user_id):
        raise NotFound
    used = LedgerEntry.objects.filter(organization_id=place.organization_id, user_id=found)
    if place_in(found, place.organization_id) is None and not used.exists():
        raise NotFound
    return found


# What is drawn


def _worth(use: Use, show: str) -> Decimal:
    return use.cost if show == "cost" else Decimal(use.tokens)


def _chart(by_day: Usage, days: Sequence[date], show: str) -> Chart:
    """Every day of the range has its place."""
    of_day = dict(by_day.groups)
    bars: list[tuple[str, Sequence[Decimal | int]]] = []
    for day in days:
        use = of_day.get(day, Use())
        if show == "cost":
            bars.append((f"{day:%Y-%m-%d}: {shown(use.cost, settings.CURRENCY)}", (use.cost,)))
        else:
            bars.append((f"{day:%Y-%m-%d}: {use.input:,} in, {use.output:,} out", (use.input, use.output)))
    return bar_chart(bars, _money if show == "cost" else short)


def _money(value: Decimal | int) -> str:
    return shown(Decimal(value), settings.CURRENCY)


def _days(by_day: Usage) -> list[Row]:
    """The newest first."""
    return [Row(f"{day:%Y-%m-%d}", use, 0.0) for day, use in reversed(by_day.groups)]


def _tables(found: Mapping[Group, Usage], organization_id: UUID, asked: Asked, *, everybody: bool) -> list[Table]:
    members, keys = found[Group.MEMBER].groups, found[Group.KEY].groups
    known = names(organization_id, [user for user, _ in members], [key for key, _ in keys if key])
    tables = [
        Table("models", "By model", "Model", _rows(found[Group.MODEL].groups, asked.show, str)),
        Table("keys", "By API key", "API key", _key_rows(keys, organization_id, known, asked.show, everybody)),
    ]
    if everybody:
        rows = _rows(members, asked.show, known.member, lambda user: asked.address(member=user))
        tables.append(Table("members", "By member", "Member", rows))
    return tables


def _rows(
    groups: Sequence[tuple[Any, Use]],
    show: str,
    name_of: Callable[[Any], str],
    address_of: Callable[[Any], str] = lambda _: "",
) -> list[Row]:
    """The widest first."""
    most = max((_worth(use, show) for _, use in groups), default=Decimal(0))
    ordered = sorted(groups, key=lambda each: -_worth(each[1], show))
    return [Row(name_of(id), use, share(_worth(use, show), most), address_of(id)) for id, use in ordered]


def _key_rows(
    groups: Sequence[tuple[UUID | None, Use]], organization_id: UUID, known: Names, show: str, everybody: bool
) -> list[Row]:
    """Keys that replaced one another are one. `everybody`: it is said whose they are."""
    rows = ApiKey.objects.filter(organization_id=organization_id, pk__in=[key for key, _ in groups if key])
    facts = {row.pk: row for row in rows.select_related("user")}
    together: dict[UUID | None, Use] = {}
    owners: dict[UUID | None, str] = {}
    for key, use in groups:
        row = facts.get(key) if key else None
        chain = row.chain_id if row else key
        together[chain] = together.get(chain, Use()) + use
        owners[chain] = f" ({row.user.called})" if row and everybody else ""

    def name_of(chain: UUID | None) -> str:
        return f"{known.key(chain)}{owners[chain]}" if chain else "Without a key, in the browser"

    return _rows(list(together.items()), show, name_of)
