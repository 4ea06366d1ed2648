"""Addresses of the pages. Those of the API are in `urls`."""

from django.urls import path

from conversations import share_views, sidebar_views, views

urlpatterns = [
    path("", views.new_chat, name="chat"),
    path("c/<str:conversation>", views.conversation, name="conversation"),
    path("c/<str:conversation>/earlier", views.earlier, name="earlier"),
    path("c/<str:conversation>/turns/<str:message>", views.turn, name="turn"),
    path("c/<str:conversation>/title", sidebar_views.rename, name="rename"),
    path("c/<str:conversation>/delete", sidebar_views.delete, name="delete"),
    path("c/<str:conversation>/share", share_views.sharing, name="sharing"),
    path("conversations", sidebar_views.older, name="older"),
    path("search", sidebar_views.search, name="search"),
    path("models", views.model_list, name="models"),
    path("models/<path:name>/state", views.model_state, name="model_state"),
    path("s/<str:token>", share_views.shared, name="shared"),
    path("s/<str:token>/stop", share_views.stop_sharing, name="stop_sharing"),
    path("favicon.ico", views.favicon),
]
