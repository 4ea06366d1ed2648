"""`GET /v1/usage` and `GET /v1/quota`."""

from typing import Any, Final
from uuid import UUID

from asgiref.sync import async_to_sync
from django.conf import settings
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from chatsite.accounts.roles import Permission, may
from chatsite.accounts.selectors import role_of
from chatsite.errors import InvalidInput
from chatsite.ids import public_id
from quotas import selectors
from quotas.api_views import ApiView
from quotas.periods import today
from quotas.spans import MAX_DAYS, read_span
from quotas.usage import Group, Usage, Use, usage

_MOMENT: Final = {
    "type": "string",
    "pattern": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"(T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(Z|[+-][0-9]{2}:[0-9]{2}))?$",
}
FROM: Final = OpenApiParameter(
    "from", _MOMENT, description="A date (UTC) or a full hour with its zone. By default the first of this month."
)
TO: Final = OpenApiParameter(
    "to",
    _MOMENT,
    description=f"A date, which is included, or a full hour, which is not. By default today; at most {MAX_DAYS} days.",
)
GROUP_BY: Final = OpenApiParameter("group_by", {"type": "string", "enum": [*Group]}, description="By default `day`.")
PREFIXES: Final = {Group.KEY: "key", Group.MEMBER: "user"}


class UseSerializer(serializers.Serializer):
    """`cached` is part of `input`; `cost` is a decimal in the currency."""

    requests = serializers.IntegerField(help_text="Those that have ended, however they did")
    input = serializers.IntegerField()
    cached = serializers.IntegerField()
    output = serializers.IntegerField()
    cost = serializers.CharField()


class GroupSerializer(UseSerializer):
    group = serializers.CharField(
        allow_null=True, help_text="A day, a model, `key_...` or `user_...`; null: without a key, in a browser"
    )


class UsageAnswer(serializers.Serializer):
    data = GroupSerializer(many=True)  # type: ignore[assignment]
    total = UseSerializer()
    currency = serializers.CharField()


@extend_schema_field({"oneOf": [{"type": "integer"}, {"type": "string"}]})
class AmountField(serializers.Field):
    """Tokens, requests or replies as a number; a cost as a decimal."""


class LimitSerializer(serializers.Serializer):
    """Of budgets it also says unit and period, what is reserved, whether they refuse, and the currency of a cost."""

    scope = serializers.ChoiceField(["plan", "organization", "user", "key"])
    kind = serializers.ChoiceField(["tokens_per_minute", "requests_per_minute", "concurrent", "budget"])
    limit = AmountField()
    remaining = AmountField()
    reset = serializers.DateTimeField(help_text="When all of it will be there again")
    unit = serializers.ChoiceField(["tokens", "cost"], required=False)
    period = serializers.CharField(required=False, help_text="`month`, or `30 days`")
    hard = serializers.BooleanField(required=False)
    reserved = AmountField(required=False)
    currency = serializers.CharField(required=False)


class QuotaAnswer(serializers.Serializer):
    plan = serializers.CharField()
    limits = LimitSerializer(many=True)


class UsageView(ApiView):
    @extend_schema(operation_id="get_usage", parameters=[FROM, TO, GROUP_BY], responses=UsageAnswer)
    def get(self, request: Request) -> Response:
        """What was used, by when requests were accepted. Members see their own use; owners, admins and billing all."""
        span = read_span(request.GET.get("from"), request.GET.get("to"), today())
        group = _group(request.GET.get("group_by", str(Group.DAY)))
        organization_id, user_id = self.principal.organization_id, self.principal.user_id
        found = usage(organization_id, span, group, user=_whose(organization_id, user_id))
        return Response(usage_data(found, group))


class QuotaView(ApiView):
    @extend_schema(operation_id="get_quota", responses=QuotaAnswer)
    def get(self, request: Request) -> Response:
        """Every limit that applies to the caller, what is left of it, and when all of it will be there again."""
        plan = selectors.plan_of(self.principal.organization_id)
        return Response(async_to_sync(selectors.quota)(self.principal, plan))


def usage_data(found: Usage, group: Group) -> dict[str, Any]:
    """In the API's form."""
    return {
        "data": [{"group": group_name(group, name), **_use_data(use)} for name, use in found.groups],
        "total": _use_data(found.total),
        "currency": settings.CURRENCY,
    }


def group_name(group: Group, value: Any) -> str | None:
    """A day, a model's name or a public id; None for what came without an API key."""
    if value is None:
        return None
    return public_id(PREFIXES[group], value) if group in PREFIXES else str(value)


def _use_data(use: Use) -> dict[str, Any]:
    return {
        "requests": use.requests,
        "input": use.input,
        "cached": use.cached,
        "output": use.output,
        "cost": f"{use.cost.normalize():f}",
    }


def _group(text: str) -> Group:
    """Raises InvalidInput."""
    if text not in list(Group):
        raise InvalidInput("Group by day, model, key or member.", param="group_by")
    return Group(text)


def _whose(organization_id: UUID, user_id: UUID) -> UUID | None:
    """None: everybody's may be seen."""
    role = role_of(user_id, organization_id)
    return None if role is not None and may(role, Permission.SEE_USAGE) else user_id
