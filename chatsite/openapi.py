"""The OpenAPI document: API views by drf-spectacular, and raw routes from the description that stands beside each."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from django.urls import URLPattern, path
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.views import APIView

from chatsite.errors import NotFound
from chatsite.raw import Route

JSON, PROBLEM, STREAM = "application/json", "application/problem+json", "text/event-stream"
EVENTS = """Server-sent events. Each `data:` is a JSON object; all but `queued` have an `id:`, the resume cursor.

- `{"type":"queued","messageId","position","eta"}`
- `{"type":"started","messageId","userMessageId"}`
- `{"type":"token","text"}`
- `{"type":"retrying","attempt"}`: another replica takes over, the text goes on
- `{"type":"done","messageId","status","finish_reason","usage"}`, the last one, or
- `{"type":"error","messageId","code","message","retryable"}`, the last one
"""
IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    str,
    OpenApiParameter.HEADER,
    description="A repeat with the same key and body has no second effect.",
)


class ProblemSerializer(serializers.Serializer):
    """An error, as `application/problem+json`. `code` is stable; `param` names the field that is wrong."""

    type = serializers.CharField()
    title = serializers.CharField()
    status = serializers.IntegerField()
    detail = serializers.CharField()
    code = serializers.CharField()
    request_id = serializers.CharField()
    param = serializers.CharField(required=False)
    retry_after = serializers.FloatField(required=False, help_text="Seconds")


class ApiSchema(AutoSchema):
    """Every operation may answer with a problem."""

    def _get_response_bodies(self, direction: Literal["request", "response"] = "response") -> dict[str, Any]:
        bodies: dict[str, Any] = super()._get_response_bodies(direction)
        bodies["default"] = self._get_response_for_code(  # type: ignore[no-untyped-call]
            ProblemSerializer, "default", media_types=[PROBLEM]
        )
        return bodies


class OpenAiError(serializers.Serializer):
    message = serializers.CharField()
    type = serializers.CharField()
    param = serializers.CharField(allow_null=True)
    code = serializers.CharField(allow_null=True)


class OpenAiErrorBody(serializers.Serializer):
    """An error in the form of the OpenAI API."""

    error = OpenAiError()


class OpenAiSchema(AutoSchema):
    """Every operation may answer with an error in that API's form."""

    def _get_response_bodies(self, direction: Literal["request", "response"] = "response") -> dict[str, Any]:
        bodies: dict[str, Any] = super()._get_response_bodies(direction)
        bodies["default"] = self._get_response_for_code(  # type: ignore[no-untyped-call]
            OpenAiErrorBody, "default", media_types=[JSON]
        )
        return bodies


@dataclass(frozen=True)
class Operation:
    """What the document says of a raw route, beside its handler's docstring.

    `answers` maps a status to a serializer or JSON schema, or to a text where there is no body; `body` is one, too;
    `streams` adds the events to 200.
    """

    name: str
    answers: Mapping[int, Any]
    body: Any = None
    streams: bool = False
    parameters: Sequence[OpenApiParameter] = field(default_factory=tuple)
    events: str = EVENTS


def documented(route: Route, operation: Operation) -> URLPattern:
    """A pattern that only the generator of the document sees."""
    answers: dict[Any, Any] = {}
    for status, answer in operation.answers.items():
        if isinstance(answer, str):
            answers[status] = OpenApiResponse(description=answer)
        else:  # one description serves all media types of a status
            answers[(status, JSON)] = OpenApiResponse(answer, operation.events if operation.streams else "")
    if operation.streams:
        answers[(200, STREAM)] = OpenApiResponse(str, operation.events)
    decorate = extend_schema(
        operation_id=operation.name,
        description=route.handler.__doc__,
        request={JSON: operation.body} if isinstance(operation.body, dict) else operation.body,
        responses=answers,
        parameters=list(operation.parameters),
    )
    methods = {method.lower(): decorate(_placeholder()) for method in route.methods}
    schema = OpenAiSchema() if route.openai else ApiSchema()
    view: type[APIView] = type("RawRouteView", (APIView,), {"schema": schema, **methods})
    return path(route.name.removeprefix("/").replace("{", "<str:").replace("}", ">"), view.as_view())


def _placeholder() -> Callable[..., Any]:
    """A function of its own: `extend_schema` writes on what it decorates."""

    def handle(self: APIView, *args: Any, **kwargs: Any) -> Any:
        raise NotFound  # the raw router serves it; Django never sees the request

    return handle
