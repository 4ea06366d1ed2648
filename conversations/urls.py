"""Addresses of the native API and of its reference. The raw routes are in `streams`, the page's in `page_urls`."""

from django.urls import path
from drf_spectacular.views import SpectacularJSONAPIView, SpectacularSwaggerSplitView

from conversations import api
from conversations.openapi import documented
from conversations.streams import DESCRIBED

_views = [
    path("v1/conversations", api.ConversationsView.as_view()),
    path("v1/conversations/<str:id>", api.ConversationView.as_view()),
    path("v1/conversations/<str:id>/messages", api.HistoryView.as_view()),
    path("v1/messages/<str:id>", api.MessageView.as_view()),
    path("v1/requests/<str:id>", api.RequestView.as_view()),
]
_schema = SpectacularJSONAPIView.as_view(
    patterns=[*_views, *(documented(route, operation) for route, operation in DESCRIBED)],
    custom_settings={"SCHEMA_PATH_PREFIX": "/v1"},
)
_reference = SpectacularSwaggerSplitView.as_view(url_name="openapi", template_name="conversations/api_reference.html")
api_urlpatterns = [
    *_views,
    path("v1/openapi.json", _schema, name="openapi"),
    path("docs/", _reference, name="api_reference"),
]
