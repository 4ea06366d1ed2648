"""Addresses of the native API. The raw routes are in `streams`, the page's in `page_urls`."""

from django.urls import path

from conversations import api

api_urlpatterns = [
    path("v1/conversations", api.ConversationsView.as_view()),
    path("v1/conversations/<str:id>", api.ConversationView.as_view()),
    path("v1/conversations/<str:id>/messages", api.HistoryView.as_view()),
    path("v1/messages/<str:id>", api.MessageView.as_view()),
    path("v1/requests/<str:id>", api.RequestView.as_view()),
]
