"""Addresses of the chat page. Those of the API are in `urls`."""

from django.urls import path

from conversations import views

urlpatterns = [
    path("", views.new_chat, name="chat"),
    path("c/<str:conversation>", views.conversation, name="conversation"),
    path("c/<str:conversation>/earlier", views.earlier, name="earlier"),
    path("models/<path:name>/state", views.model_state, name="model_state"),
]
