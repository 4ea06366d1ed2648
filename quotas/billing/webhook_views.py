"""The pages of webhooks: a list, one with what was sent there, and its secret, which is shown once."""

from http import HTTPStatus
from typing import Any, Final

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_POST

from chatsite.accounts import audit
from chatsite.accounts.key_views import asks_or_does
from chatsite.accounts.models import Membership
from chatsite.accounts.protocol import Actor, Via
from chatsite.accounts.roles import Permission
from chatsite.errors import Conflict, InvalidInput, NotFound
from chatsite.ids import parse_id
from chatsite.webhooks import services
from chatsite.webhooks.events import EXPLAINED, Event
from chatsite.webhooks.models import MAX_URL, Endpoint
from quotas.billing.pages import about, with_permission

LISTED: Final = 50  # deliveries of one webhook


class WebhookForm(forms.Form):
    url = forms.CharField(
        label="Address",
        max_length=MAX_URL,
        widget=forms.TextInput(attrs={"autocomplete": "off", "inputmode": "url", "spellcheck": "false"}),
        error_messages={"required": "Write an address.", "max_length": f"At most {MAX_URL} characters."},
    )
    events = forms.MultipleChoiceField(
        label="Tell it when",
        choices=[(str(each), words) for each, words in EXPLAINED.items()],
        initial=[str(each) for each in EXPLAINED],
        widget=forms.CheckboxSelectMultiple,
        error_messages={"required": "Choose at least one event.", "invalid_choice": "Choose among what is offered."},
    )

    def chosen(self) -> list[Event]:
        return [Event(each) for each in self.cleaned_data["events"]]


class ChangeForm(WebhookForm):
    active = forms.BooleanField(label="Send to it", required=False)


@asks_or_does
@with_permission(Permission.MANAGE_WEBHOOKS)
@sensitive_variables("secret")
def webhooks(request: HttpRequest, place: Membership) -> HttpResponse:
    """GET lists them, POST adds one and shows its secret."""
    form = WebhookForm(request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        try:
            made = services.add(place.organization_id, form.cleaned_data["url"], form.chosen(), _by(request))
        except (Conflict, InvalidInput) as error:
            form.add_error(error.param if error.param in form.fields else None, error.message)
        else:
            return _with_secret(request, place, made)
    found = Endpoint.objects.filter(organization=place.organization).order_by("created_at", "id")
    context = {**about(place, request), "form": form, "endpoints": found, "full": len(found) >= services.MAX_ENDPOINTS}
    status = HTTPStatus.BAD_REQUEST if form.is_bound else HTTPStatus.OK
    return render(request, "webhooks/webhooks.html", context, status=status)


@asks_or_does
@with_permission(Permission.MANAGE_WEBHOOKS)
def one(request: HttpRequest, place: Membership, webhook: str) -> HttpResponse:
    """GET shows it and what was sent there, POST changes it."""
    endpoint = _find(place, webhook)
    first = {"url": endpoint.url, "events": endpoint.events, "active": endpoint.active}
    form = ChangeForm(request.POST if request.method == "POST" else None, initial=first)
    if request.method == "POST" and form.is_valid():
        data = form.cleaned_data
        try:
            services.change(
                place.organization_id, endpoint.pk, data["url"], form.chosen(), _by(request), active=data["active"]
            )
        except (Conflict, InvalidInput) as error:
            form.add_error(error.param if error.param in form.fields else None, error.message)
        else:
            messages.success(request, "The webhook is saved.")
            return _to(place, "webhook", endpoint.public_id)
    sent = endpoint.deliveries.order_by("-id")[:LISTED]
    context = {**about(place, request), "form": form, "endpoint": endpoint, "deliveries": sent}
    status = HTTPStatus.BAD_REQUEST if form.is_bound else HTTPStatus.OK
    return render(request, "webhooks/webhook.html", context, status=status)


@require_POST
@with_permission(Permission.MANAGE_WEBHOOKS)
def test(request: HttpRequest, place: Membership, webhook: str) -> HttpResponse:
    endpoint = _find(place, webhook)
    try:
        services.send_test(place.organization_id, endpoint.pk, _by(request))
    except Conflict as error:
        messages.error(request, error.message)
    else:
        messages.success(request, "A test is on its way. Load the page again in a few seconds.")
    return _to(place, "webhook", endpoint.public_id)


@require_POST
@with_permission(Permission.MANAGE_WEBHOOKS)
@sensitive_variables("secret")
def renew(request: HttpRequest, place: Membership, webhook: str) -> HttpResponse:
    """Another secret, which is shown once."""
    endpoint = services.renew_secret(place.organization_id, _find(place, webhook).pk, _by(request))
    return _with_secret(request, place, endpoint)


@asks_or_does
@with_permission(Permission.MANAGE_WEBHOOKS)
def delete(request: HttpRequest, place: Membership, webhook: str) -> HttpResponse:
    """GET asks, POST does."""
    endpoint = _find(place, webhook)
    if request.method != "POST":
        return render(request, "webhooks/delete.html", {**about(place, request), "endpoint": endpoint})
    services.delete(place.organization_id, endpoint.pk, _by(request))
    messages.success(request, "The webhook is deleted.")
    return _to(place, "webhooks")


def _by(request: HttpRequest) -> Actor:
    return audit.actor_of(request, Via.PAGE)


def _find(place: Membership, webhook: str) -> Endpoint:
    """Raises NotFound."""
    endpoint_id = parse_id("hook", webhook)
    if endpoint_id is None:
        raise NotFound
    return services.find(place.organization_id, endpoint_id)


def _with_secret(request: HttpRequest, place: Membership, endpoint: Endpoint) -> HttpResponse:
    secret = services.shown_secret(endpoint)
    return render(request, "webhooks/secret.html", {**about(place, request), "endpoint": endpoint, "secret": secret})


def _to(place: Membership, name: str, *args: Any) -> HttpResponse:
    return redirect(f"{reverse(name, args=args)}?organization={place.organization.public_id}")
