"""The OpenAPI document: API views by drf-spectacular, and raw routes from the description that stands beside each.

Each operation names every status that it may answer with. The errors and headers that all have in common are components
(`COMPONENTS`), which the document's view appends.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Literal, cast

import msgspec
from django.urls import URLPattern, path
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.views import APIView

from chatsite.errors import NotFound
from chatsite.raw import Route
from chatsite.scopes import Scope

Schema = dict[str, Any]
JSON, PROBLEM, STREAM = "application/json", "application/problem+json", "text/event-stream"
IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]+$"},
    OpenApiParameter.HEADER,
    description="A repeat with the same key and body has no second effect.",
)
FALLBACK_FROM = OpenApiParameter(
    "X-Fallback-From",
    str,
    OpenApiParameter.HEADER,
    response=[200],
    description="The model that was asked for, where the smaller one answers instead.",
)
_ALWAYS = (400, 401, 403, 429, 500, 503)
_WITH_BODY = (408, 413, 415)
_IDEMPOTENT = (409, 422)
_MEANINGS = {
    400: "The input is not valid; `param` names what is wrong.",
    401: "No key and no session, or one that is not valid.",
    403: "Not allowed to this caller: the API key lacks the scope, or the plan does not include the model.",
    404: "There is no such object, or it is not the caller's.",
    408: "The body did not arrive in time.",
    409: "The object's state does not allow it (a reply is running), or the same call is being answered already.",
    413: "The body, or a field of it, is too large.",
    415: "The body is not `application/json`.",
    422: "The `Idempotency-Key` was used with another body.",
    429: "Above a limit of the plan or of the API key, or too many are waiting.",
    500: "A fault of the site. Its log has the details under the request id.",
    502: "The engine refused the request.",
    503: "Not available now: no engine could answer, or a store is away.",
}


DECISION = "In high demand: why, as `decision` of a request that was let in (`predicted`, `x`, `shed_probability`)."


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
    decision = serializers.DictField(required=False, help_text=DECISION)


class OpenAiError(serializers.Serializer):
    message = serializers.CharField()
    type = serializers.CharField()
    param = serializers.CharField(allow_null=True)
    code = serializers.CharField(allow_null=True)
    decision = serializers.DictField(required=False, help_text=DECISION)


class OpenAiErrorBody(serializers.Serializer):
    """An error in the form of the OpenAI API."""

    error = OpenAiError()


def _header(description: str, schema: Schema) -> Schema:
    return {"description": description, "schema": schema}


_COUNT: Schema = {"type": "integer", "minimum": 0}
_DURATION: Schema = {"type": "string", "pattern": "^([0-9]+m)?[0-9]+s$"}
_HEADERS = {
    "X-Request-Id": _header("What the log knows this call by.", {"type": "string"}),
    "X-RateLimit-Limit-Requests": _header("Requests of a minute; without such a limit, replies at once.", _COUNT),
    "X-RateLimit-Remaining-Requests": _header("Requests that may start now.", _COUNT),
    "X-RateLimit-Reset-Requests": _header("Until all of them are there again: `1s`, `6m0s`.", _DURATION),
    "X-RateLimit-Limit-Tokens": _header("Tokens of a minute.", _COUNT),
    "X-RateLimit-Remaining-Tokens": _header("Tokens that may be reserved now.", _COUNT),
    "X-RateLimit-Reset-Tokens": _header("Until all of them are there again.", _DURATION),
    "Retry-After": _header("Seconds to wait.", {"type": "integer", "minimum": 1}),
    "WWW-Authenticate": _header("`Bearer`.", {"type": "string"}),
    "X-Message-Id": _header("The reply's id.", {"type": "string"}),
}
_EVERYWHERE = ("X-Request-Id",)
_LIMITS = tuple(name for name in _HEADERS if name.startswith("X-RateLimit-"))
_ONLY_WITH = {401: ("WWW-Authenticate",), 429: ("Retry-After",), 503: ("Retry-After",)}


def _headers(status: int) -> Schema:
    names = (*_EVERYWHERE, *(() if status == HTTPStatus.UNAUTHORIZED else _LIMITS), *_ONLY_WITH.get(status, ()))
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _refusals(prefix: str, media_type: str, component: str) -> Schema:
    content = {media_type: {"schema": {"$ref": f"#/components/schemas/{component}"}}}
    return {
        f"{prefix}{status}": {"description": meaning, "headers": _headers(status), "content": content}
        for status, meaning in _MEANINGS.items()
    }


COMPONENTS: Schema = {
    "headers": _HEADERS,
    "responses": {
        **_refusals("Problem", PROBLEM, "Problem"),
        **_refusals("OpenAiError", JSON, "OpenAiErrorBody"),
    },
}


class ApiSchema(AutoSchema):
    """Every operation says how it may be refused, and what stands in its headers."""

    refusal: tuple[str, type[serializers.Serializer]] = ("Problem", ProblemSerializer)
    extra_refusals: Sequence[int] = ()

    def get_auth(self) -> list[dict[str, list[str]]]:
        """Each of the schemes is enough. The generator would ask for all of them at once."""
        return [{name: scopes} for found in super().get_auth() for name, scopes in found.items()]

    def get_extensions(self) -> Schema:
        return {"x-required-scope": str(self._scope)}

    def get_description(self) -> str:  # type: ignore[override] # the stubs are of an older version
        return f"{super().get_description()}\n\n{_needs(self._scope)}"

    @property
    def _scope(self) -> Scope:
        """Of an API key that calls this."""
        needed: Scope = cast(Any, self.view).required_scopes[self.method]
        return needed

    def _get_response_bodies(self, direction: Literal["request", "response"] = "response") -> Schema:
        bodies: Schema = super()._get_response_bodies(direction)
        name, serializer = self.refusal
        self.resolve_serializer(serializer, direction)  # puts it among the document's components
        refs = {str(status): {"$ref": f"#/components/responses/{name}{status}"} for status in self._refused_with()}
        return {**bodies, **refs}

    def _refused_with(self) -> list[int]:
        found = {*_ALWAYS, *self.extra_refusals}
        if "{" in self.path:
            found.add(404)
        if self.method in ("POST", "PUT", "PATCH"):
            found.update(_WITH_BODY)
        if self.method == "POST":
            found.update(_IDEMPOTENT)
        return sorted(found)

    def _get_response_headers_for_code(
        self, status_code: str, direction: Literal["request", "response"] = "response"
    ) -> Schema:
        own = super()._get_response_headers_for_code(status_code, direction)  # type: ignore[no-untyped-call]
        return {**_headers(int(status_code)), **own}

    def _get_request_for_media_type(
        self, serializer: Any, direction: Literal["request", "response"] = "request"
    ) -> tuple[Any, bool]:
        schema, required = super()._get_request_for_media_type(  # type: ignore[no-untyped-call]
            serializer, direction
        )
        return schema, required or bool(isinstance(serializer, dict) and serializer.get("required"))

    def _map_basic_serializer(self, serializer: Any, direction: Literal["request", "response"]) -> Schema:
        """Views refuse fields that they do not know."""
        schema: Schema = super()._map_basic_serializer(serializer, direction)  # type: ignore[no-untyped-call]
        return {**schema, "additionalProperties": False} if direction == "request" else schema


class OpenAiSchema(ApiSchema):
    """Errors in the form of the OpenAI API."""

    refusal = ("OpenAiError", OpenAiErrorBody)


@dataclass(frozen=True)
class Events:
    """Server-sent events: what they are, and the JSON schema of one as an object with `data`, `id` and so on."""

    description: str
    schema: Schema


def json_event(data: Schema) -> Schema:
    """The schema of an event whose `data` is JSON of the schema `data`."""
    return {
        "type": "object",
        "required": ["data"],
        "properties": {
            "data": {"type": "string", "contentMediaType": JSON, "contentSchema": data},
            "id": {"type": "string"},
        },
    }


@dataclass(frozen=True)
class Operation:
    """What the document says of a raw route, beside its handler's docstring.

    `answers` maps a status to a serializer or JSON schema, or to a text where there is no body; `body` is a JSON
    schema; `events` is another form of 200; `refusals` are statuses that not every operation of its kind has.
    """

    name: str
    answers: Mapping[int, Any]
    body: Schema | None = None
    events: Events | None = None
    parameters: Sequence[OpenApiParameter] = field(default_factory=tuple)
    refusals: Sequence[int] = ()


def documented(route: Route, operation: Operation) -> URLPattern:
    """A pattern that only the generator of the document sees."""
    answers: dict[Any, Any] = {}
    for status, answer in operation.answers.items():
        if isinstance(answer, str):
            answers[status] = OpenApiResponse(description=answer)
        else:  # one description serves all media types of a status
            told = operation.events.description if operation.events and status == HTTPStatus.OK else ""
            answers[(status, JSON)] = OpenApiResponse(answer, told)
    if operation.events:
        answers[(200, STREAM)] = OpenApiResponse(operation.events.schema, operation.events.description)
    decorate = extend_schema(
        operation_id=operation.name,
        description=f"{inspect.getdoc(route.handler)}\n\n{_needs(route.scope)}",
        request={JSON: operation.body} if operation.body else None,
        responses=answers,
        parameters=list(operation.parameters),
    )
    methods = {method.lower(): decorate(_placeholder()) for method in route.methods}
    kind = OpenAiSchema if route.openai else ApiSchema
    schema = type("RawRouteSchema", (kind,), {"extra_refusals": operation.refusals})
    needed = dict.fromkeys(route.methods, route.scope)
    view: type[APIView] = type("RawRouteView", (APIView,), {"schema": schema(), "required_scopes": needed, **methods})
    return path(route.name.removeprefix("/").replace("{", "<str:").replace("}", ">"), view.as_view())


def _needs(scope: Scope) -> str:
    return f"An API key needs the scope `{scope}`."


def _placeholder() -> Callable[..., Any]:
    """A function of its own: `extend_schema` writes on what it decorates."""

    def handle(self: APIView, *args: Any, **kwargs: Any) -> Any:
        raise NotFound  # the raw router serves it; Django never sees the request

    return handle


def schema_of(kind: type[msgspec.Struct]) -> Schema:
    """The JSON schema of a body, in one piece."""
    [root], components = msgspec.json.schema_components([kind], ref_template="{name}")
    return dict(_inlined(root, components))


def _inlined(part: Any, components: Schema) -> Any:
    if isinstance(part, list):
        return [_inlined(item, components) for item in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        return _inlined(components[part["$ref"]], components)
    # A discriminator would name components, of which there are none.
    return {key: _inlined(value, components) for key, value in part.items() if key != "discriminator"}
