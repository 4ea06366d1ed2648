"""The ASGI application: raw streaming routes ahead of Django, WebSockets by Channels."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "chatsite.settings")

from channels.routing import ProtocolTypeRouter
from django.core.asgi import get_asgi_application

django_application = get_asgi_application()  # loads the apps, so it comes before every import of ours

from chatsite.daphne_limits import adapt_daphne  # noqa: E402
from chatsite.garbage import collect_seldom  # noqa: E402
from chatsite.raw import RawRouter  # noqa: E402
from conversations.routing import websocket_application  # noqa: E402
from conversations.streams import ROUTES  # noqa: E402
from inference.completions.routes import ROUTES as COMPLETION_ROUTES  # noqa: E402

adapt_daphne()
application = ProtocolTypeRouter(
    {
        "http": RawRouter([*COMPLETION_ROUTES, *ROUTES], django_application),
        "websocket": websocket_application,
    }
)
collect_seldom()
