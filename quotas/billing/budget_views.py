"""The pages of budgets: how much of each is spent, adding, changing and deleting one, and the emergency stop."""

from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus

from asgiref.sync import async_to_sync
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from chatsite.accounts import audit
from chatsite.accounts.key_views import asks_or_does
from chatsite.accounts.models import Membership
from chatsite.accounts.protocol import Actor, Via
from chatsite.accounts.roles import Permission, may
from chatsite.errors import Conflict, InvalidInput, NotFound, Unavailable
from chatsite.ids import parse_id, public_id
from quotas.billing import budgeting, words
from quotas.billing.budget_forms import BudgetForm
from quotas.billing.limits import Watched, limits_in
from quotas.billing.pages import about, with_permission
from quotas.models import Budget
from quotas.protocol import Spending
from quotas.selectors import known_plans, spendings


@dataclass(frozen=True)
class Shown:
    """A limit, as the page shows it. `percent` None: how much is spent is not known. `id`: of a budget of this page."""

    title: str
    allowance: str
    hard: bool
    id: str
    percent: int | None = None
    spent: str = ""
    reserved: str = ""
    ends: datetime | None = None


@require_safe
@with_permission(Permission.MANAGE_BUDGETS)
def budgets(request: HttpRequest, place: Membership) -> HttpResponse:
    known_plans.drop(place.organization_id)  # what another process has changed is seen at once here
    found = limits_in(place.organization_id)
    try:
        standings = async_to_sync(spendings)(place.organization_id, [each.limit for each in found])
    except Unavailable:
        standings = None
    rows = [_shown(each, standings[index] if standings is not None else None) for index, each in enumerate(found)]
    context = {
        **about(place, request),
        "rows": rows,
        "unknown": standings is None,
        "stopped": budgeting.stopped_by_owner(place.organization_id),
        "may_stop": may(place.role, Permission.OWN),
        "full": budgeting.is_full(place.organization_id),
    }
    return render(request, "billing/budgets.html", context)


def _shown(watched: Watched, spending: Spending | None) -> Shown:
    limit = watched.limit
    id = public_id("bud", watched.budget_id) if watched.budget_id else ""
    about_it = (limit.title, words.allowance(limit), limit.hard, id)
    if spending is None:
        return Shown(*about_it)
    return Shown(
        *about_it,
        percent=words.percent(spending.taken, limit.limit),
        spent=words.spent(limit, max(0, spending.taken - spending.reserved)),
        reserved=words.figure(limit.unit, spending.reserved) if spending.reserved else "",
        ends=spending.ends,
    )


@asks_or_does
@with_permission(Permission.MANAGE_BUDGETS)
def new(request: HttpRequest, place: Membership) -> HttpResponse:
    form = BudgetForm(request.POST if request.method == "POST" else None, organization=place.organization)
    if request.method == "POST" and form.is_valid():
        try:
            budgeting.add(place.organization_id, form.terms(), _by(request))
        except (Conflict, InvalidInput) as error:
            form.add_error(error.param if error.param in form.fields else None, error.message)
        else:
            messages.success(request, "The budget holds now.")
            return _back(place)
    return _form(request, place, form)


@asks_or_does
@with_permission(Permission.MANAGE_BUDGETS)
def one(request: HttpRequest, place: Membership, budget: str) -> HttpResponse:
    """GET shows its form, POST changes it."""
    found = _find(place, budget)
    form = BudgetForm(
        request.POST if request.method == "POST" else None, organization=place.organization, present=found
    )
    if request.method == "POST" and form.is_valid():
        try:
            budgeting.change(place.organization_id, found.pk, form.terms(), _by(request))
        except (Conflict, InvalidInput) as error:
            form.add_error(error.param if error.param in form.fields else None, error.message)
        else:
            messages.success(request, "The budget is saved.")
            return _back(place)
    return _form(request, place, form, found)


@asks_or_does
@with_permission(Permission.MANAGE_BUDGETS)
def delete(request: HttpRequest, place: Membership, budget: str) -> HttpResponse:
    """GET asks, POST does."""
    found = _find(place, budget)
    if request.method != "POST":
        return render(request, "billing/budget_delete.html", {**about(place, request), "budget": found})
    budgeting.delete(place.organization_id, found.pk, _by(request))
    messages.success(request, "The budget is deleted.")
    return _back(place)


@asks_or_does
@with_permission(Permission.OWN)
def stop(request: HttpRequest, place: Membership) -> HttpResponse:
    """GET asks, POST does."""
    if request.method != "POST":
        return render(request, "billing/stop.html", about(place, request))
    budgeting.stop_all(place.organization_id, _by(request))
    messages.success(request, "Nothing new is accepted from this organization. What runs goes on to its end.")
    return _back(place)


@require_POST
@with_permission(Permission.OWN)
def go_on(request: HttpRequest, place: Membership) -> HttpResponse:
    budgeting.go_on(place.organization_id, _by(request))
    messages.success(request, "The organization works again.")
    return _back(place)


def _by(request: HttpRequest) -> Actor:
    return audit.actor_of(request, Via.PAGE)


def _find(place: Membership, budget: str) -> Budget:
    """Raises NotFound."""
    budget_id = parse_id("bud", budget)
    if budget_id is None:
        raise NotFound
    return budgeting.find(place.organization_id, budget_id)


def _form(request: HttpRequest, place: Membership, form: BudgetForm, present: Budget | None = None) -> HttpResponse:
    context = {
        **about(place, request),
        "form": form,
        "budget": present,
        "budget_id": public_id("bud", present.pk) if present else "",
    }
    status = HTTPStatus.BAD_REQUEST if form.is_bound else HTTPStatus.OK
    return render(request, "billing/budget.html", context, status=status)


def _back(place: Membership) -> HttpResponse:
    return redirect(f"{reverse('budgets')}?organization={place.organization.public_id}")
