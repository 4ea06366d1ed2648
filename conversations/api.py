"""The native API's plain routes. What streams, or waits, is in `streams`."""

from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from asgiref.sync import async_to_sync
from django.http import HttpRequest
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from chatsite.accounts.idempotency import idempotent
from chatsite.errors import InvalidInput, NotFound
from chatsite.ids import parse_id, public_id
from chatsite.openapi import IDEMPOTENCY_KEY
from conversations import selectors, services
from conversations.selectors import MAX_PAGE_SIZE, PAGE_SIZE
from conversations.serializers import (
    ConversationChanges,
    ConversationPage,
    ConversationSerializer,
    MessagePage,
    MessageSerializer,
    RequestSerializer,
    conversation_data,
    conversation_page,
    message_data,
    message_page,
)
from inference import selectors as inference_selectors
from inference.protocol import request_named
from quotas import selectors as quota_selectors
from quotas.api_views import ApiView

CURSOR = OpenApiParameter("cursor", str, description="`next_cursor` of the page before.")
LIMIT = OpenApiParameter(
    "limit",
    {"type": "integer", "minimum": 1, "maximum": MAX_PAGE_SIZE},
    description=f"1 to {MAX_PAGE_SIZE}; {PAGE_SIZE} by default.",
)
REQUEST_ID = OpenApiParameter(
    "id",
    str,
    OpenApiParameter.PATH,
    description="`req_...`, or the id of an OpenAI-compatible answer, `chatcmpl-...` or `cmpl-...`: "
    "of several answers, that leads to the first one's request.",
)
ALL = OpenApiParameter(
    "all",
    {"type": "integer", "enum": [0, 1]},
    description="1: every version of every message, not only the active branch.",
)


class ConversationsView(ApiView):
    @extend_schema(operation_id="list_conversations", parameters=[CURSOR, LIMIT], responses=ConversationPage)
    def get(self, request: Request) -> Response:
        """The caller's conversations, last used first."""
        page = selectors.list_conversations(self.principal, request.GET.get("cursor"), page_size(request))
        return Response(conversation_page(page))

    @extend_schema(
        operation_id="create_conversation",
        request=ConversationChanges,
        responses={201: ConversationSerializer},
        parameters=[IDEMPOTENCY_KEY],
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """Begins a conversation."""
        conversation = services.create_conversation(self.principal, **read(ConversationChanges, request))
        return Response(conversation_data(conversation), status=201)


class ConversationView(ApiView):
    @extend_schema(operation_id="get_conversation", responses=ConversationSerializer)
    def get(self, request: Request, id: str) -> Response:
        """One conversation."""
        conversation = selectors.get_conversation(self.principal, read_id("conv", id))
        return Response(conversation_data(conversation))

    @extend_schema(operation_id="change_conversation", request=ConversationChanges, responses=ConversationSerializer)
    def patch(self, request: Request, id: str) -> Response:
        """Changes the title, the model or the system prompt."""
        changes = read(ConversationChanges, request)
        conversation = services.update_conversation(self.principal, read_id("conv", id), **changes)
        return Response(conversation_data(conversation))

    @extend_schema(operation_id="delete_conversation", responses={204: OpenApiResponse(description="Deleted")})
    def delete(self, request: Request, id: str) -> Response:
        """Deletes the conversation with all its messages; a reply that runs in it is stopped."""
        async_to_sync(services.delete_conversation)(self.principal, read_id("conv", id))
        return Response(status=204)


class HistoryView(ApiView):
    @property
    def default_response_headers(self) -> dict[str, str]:
        """To this address messages are sent, too, by a raw route."""
        headers = super().default_response_headers
        return {**headers, "Allow": f"{headers['Allow']}, POST"}

    @extend_schema(operation_id="list_messages", parameters=[CURSOR, LIMIT, ALL], responses=MessagePage)
    def get(self, request: Request, id: str) -> Response:
        """The active branch, newest first; with `all=1` the whole tree."""
        conversation = selectors.get_conversation(self.principal, read_id("conv", id))
        listing = selectors.tree if every_version(request) else selectors.active_branch
        page = listing(conversation, request.GET.get("cursor"), page_size(request))
        return Response(message_page(replace(page, data=selectors.with_current_text(page.data))))


class MessageView(ApiView):
    @extend_schema(operation_id="get_message", responses=MessageSerializer)
    def get(self, request: Request, id: str) -> Response:
        """One message; of a running reply, all the text that is saved so far."""
        return Response(message_data(selectors.read_message(self.principal, read_id("msg", id))))


class RequestView(ApiView):
    @extend_schema(operation_id="get_request", parameters=[REQUEST_ID], responses=RequestSerializer)
    def get(self, request: Request, id: str) -> Response:
        """How a request went, and why: its wait, its time to the first token, its use, where it was placed."""
        found = request_named(id)
        if found is None:
            raise NotFound
        row = inference_selectors.request_summary(found, self.principal.organization_id)
        if row is None or row["user_id"] != self.principal.user_id:
            raise NotFound
        return Response(request_data(row, quota_selectors.cost_of(found)))


def request_data(row: dict[str, Any], cost: Decimal | None) -> dict[str, Any]:
    """A request in the API's form, from its row and what the ledger says that it cost."""
    usage = {"input": row["prompt_tokens"], "cached": row["cached_tokens"], "output": row["output_tokens"]}
    return {
        "id": public_id("req", row["id"]),
        "status": row["status"],
        "lane": row["lane"],
        "model": row["model_id"],
        "replica": str(row["replica_id"]) if row["replica_id"] else None,
        "attempts": row["attempt"],
        "queued_ms": milliseconds(row["created_at"], row["claimed_at"]),
        "ttft_ms": milliseconds(row["created_at"], row["first_token_at"]),
        "predicted_ttft_ms": predicted_ms(row["decision"]),
        "total_ms": milliseconds(row["created_at"], row["finished_at"]),
        "usage": usage if row["finished_at"] else None,
        "cost": None if cost is None else f"{cost.normalize():f}",
        "decision": row["decision"] or None,
    }


def predicted_ms(decision: dict[str, Any]) -> int | None:
    predicted = decision.get("predicted")
    return round(predicted["expected"] * 1000) if predicted else None


def milliseconds(start: datetime, end: datetime | None) -> int | None:
    return None if end is None else round((end - start).total_seconds() * 1000)


def read(kind: type[ConversationChanges], request: Request) -> dict[str, Any]:
    """The body's fields. Raises ValidationError, and InvalidInput for a field that is not known."""
    if not isinstance(request.data, dict):
        raise InvalidInput("The body must be a JSON object.")
    serializer = kind(data=request.data)
    for name in request.data:
        if name not in serializer.fields:
            raise InvalidInput("There is no such field.", param=str(name)[:100])
    serializer.is_valid(raise_exception=True)
    return dict(serializer.validated_data)


def read_id(prefix: str, text: str) -> UUID:
    """The UUID of a public id. Raises NotFound for anything else: it can be nobody's."""
    found = parse_id(prefix, text)
    if found is None:
        raise NotFound
    return found


def every_version(request: HttpRequest | Request) -> bool:
    """Raises InvalidInput."""
    text = request.GET.get("all", "0")
    if text not in ("0", "1"):
        raise InvalidInput("This is 1, for every version of every message, or 0.", param="all")
    return text == "1"


def page_size(request: HttpRequest | Request) -> int:
    """Raises InvalidInput."""
    text = request.GET.get("limit", str(PAGE_SIZE))
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= MAX_PAGE_SIZE):
        raise InvalidInput(f"The limit must be 1 to {MAX_PAGE_SIZE}.", param="limit")
    return int(text)
