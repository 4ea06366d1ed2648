"""daphne refuses to send the close codes that RFC 6455 gives a server (1009 too big, 1011 our fault, 1013 try later).

Its library lets an application send 1000 and 3000 to 4999 only, and raises for the others, which leaves the socket open
and deaf. The frame itself may carry them, so these go out as frames. Other ASGI servers send them as they are.
"""

import sys
from typing import Any

SERVER_CODES = frozenset({1009, 1011, 1012, 1013})


def allow_server_close_codes() -> None:
    """Only where daphne is the server that runs; done once."""
    module = sys.modules.get("daphne.ws_protocol")
    if module is None or hasattr(module.WebSocketProtocol, "sends_server_codes"):
        return
    original = module.WebSocketProtocol.sendClose

    def send_close(self: Any, code: int | None = None, reason: str | None = None) -> None:
        if code in SERVER_CODES:
            self.sendCloseFrame(code=code, isReply=False)
        else:
            original(self, code, reason)

    module.WebSocketProtocol.sendClose = send_close
    module.WebSocketProtocol.sends_server_codes = True
