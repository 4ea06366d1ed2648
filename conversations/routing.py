"""WebSocket addresses."""

from channels.routing import URLRouter
from channels.security.websocket import WebsocketDenier
from django.urls import path, re_path

from conversations.consumers import ChatConsumer

websocket_urlpatterns = [
    path("ws/", ChatConsumer.as_asgi()),
    path("ws/c/<str:conversation>/", ChatConsumer.as_asgi()),
    re_path("", WebsocketDenier.as_asgi()),
]
websocket_application = URLRouter(websocket_urlpatterns)
