"""What daphne lacks, put into it where it is the server that runs. Other ASGI servers are left as they are.

Close codes: RFC 6455 gives a server 1009 (too big), 1011 (our fault) and 1013 (try later). daphne's library lets an
application send 1000 and 3000 to 4999 only, and raises for the others, which leaves the socket open and deaf. The frame
itself may carry them, so these go out as frames.

Bodies: daphne writes a whole body to a temporary file before it calls the application, so only here can one be refused
before it fills the disk of a site whose caller is not even known yet.
"""

import sys
from http import HTTPStatus
from typing import Any

import structlog
from django.conf import settings

from chatsite import error_responses, logs
from chatsite.errors import AppError, TooLarge
from chatsite.raw import BodyTimeout

SERVER_CODES = frozenset({1009, 1011, 1012, 1013})
BODY_SECONDS = 30.0  # from the end of the headers; `raw` waits less, but does not see a body before it is complete
LINGER_SECONDS = 2.0  # after a refusal, for reading on while nothing comes
log = structlog.stdlib.get_logger(__name__)


def adapt_daphne() -> None:
    """Only where daphne is the server that runs; done once."""
    sockets: Any = sys.modules.get("daphne.ws_protocol")
    requests: Any = sys.modules.get("daphne.http_protocol")
    if sockets is not None and not hasattr(sockets.WebSocketProtocol, "sends_server_codes"):
        _allow_server_close_codes(sockets.WebSocketProtocol)
    if requests is not None:
        requests.WebRequest = limited(requests.WebRequest)
        _name_statuses(sys.modules["twisted.web.http"].RESPONSES)


def limited(request_class: type) -> Any:
    """daphne's class of requests, with limits on the body."""
    if issubclass(request_class, BodyLimits):
        return request_class
    return type(request_class.__name__, (BodyLimits, request_class), {})


def _name_statuses(names: dict[int, bytes]) -> None:
    """Twisted's table lacks those that came later: a status line would say `429 Unknown Status`."""
    for status in HTTPStatus:
        names.setdefault(status, status.phrase.encode())


def _allow_server_close_codes(protocol: Any) -> None:
    original = protocol.sendClose

    def send_close(self: Any, code: int | None = None, reason: str | None = None) -> None:
        if code in SERVER_CODES:
            self.sendCloseFrame(code=code, isReply=False)
        else:
            original(self, code, reason)

    protocol.sendClose = send_close
    protocol.sends_server_codes = True


class BodyLimits:
    """Ahead of daphne's WebRequest, a `twisted.web.http.Request`: the calls that its HTTPChannel makes, in their order.

    After a refusal the channel goes on as if nothing had happened, and what it hands over is dropped. To close at once
    would make the kernel reset the connection while the caller still sends, and the answer could be lost: many read it
    only when they have sent everything. So what is too large may come to its end as slowly as what is not.
    """

    channel: Any  # a twisted.web.http.HTTPChannel
    content: Any  # the file that the body goes to
    requestHeaders: Any
    refused = False
    timer: Any = None  # of the body; after a refusal, of the connection while nothing comes
    last_timer: Any = None  # of the connection after a refusal

    def gotLength(self, length: int | None) -> None:
        """The headers are here. `length` is None for a body in chunks, and 0 without one."""
        self._parsePOSTFormSubmission = False  # the application reads its bodies itself; this would look at them first
        super().gotLength(length)  # type: ignore[misc]
        if length is not None and length > settings.MAX_BODY_BYTES:
            self._refuse(_too_large(), BODY_SECONDS)
        elif length != 0:
            self.timer = self.channel.callLater(BODY_SECONDS, lambda: self._refuse(BodyTimeout(), LINGER_SECONDS))

    def handleContentChunk(self, data: bytes) -> None:
        if self.refused:
            if self.timer.active():
                self.timer.reset(LINGER_SECONDS)
        elif self.content.tell() + len(data) > settings.MAX_BODY_BYTES:  # sent in chunks, without a length
            self._refuse(_too_large(), BODY_SECONDS)
        else:
            super().handleContentChunk(data)  # type: ignore[misc]

    def requestReceived(self, *request_line: bytes) -> None:
        """The body is complete; daphne calls the application."""
        if not self.refused:
            self._stop_timers()
            super().requestReceived(*request_line)  # type: ignore[misc]

    def connectionLost(self, reason: Any) -> None:
        self._stop_timers()
        super().connectionLost(reason)  # type: ignore[misc]

    def _refuse(self, error: AppError, at_most: float) -> None:
        """Answers, frees the disk, and leaves the caller some time to send the rest and read the answer (seconds)."""
        self.refused = True
        self._stop_timers()
        self.content.close()
        # Else the channel, which looks at it after `gotLength`, would ask for the body behind our answer.
        self.requestHeaders.removeHeader(b"Expect")
        self._answer(error)
        # Not a polite end: that waits for what a caller who does not read leaves in the send buffer.
        abort = self.channel.transport.abortConnection
        self.timer = self.channel.callLater(LINGER_SECONDS, abort)
        self.last_timer = self.channel.callLater(at_most, abort)

    def _answer(self, error: AppError) -> None:
        """Written by hand: the request has no method and version yet, and its `finish` would start the next one."""
        offered = self.requestHeaders.getRawHeaders(b"X-Request-Id", [b""])[0]
        request_id = logs.accept_request_id(offered.decode("latin-1"))
        log.warning("body refused", request_id=request_id, status=error.status, code=error.code)
        path = (
            (getattr(self.channel, "_path", None) or b"").decode("latin-1").partition("?")[0]
        )  # not told otherwise yet
        refusal = error_responses.refusal(path, error, request_id)
        headers = {
            **refusal.headers,
            "X-Request-Id": request_id,
            "X-Content-Type-Options": "nosniff",
            "Content-Length": str(len(refusal.body)),
            "Connection": "close",
        }
        encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        phrase = HTTPStatus(refusal.status).phrase.encode()
        self.channel.writeHeaders(b"HTTP/1.1", str(refusal.status).encode(), phrase, encoded)
        self.channel.write(refusal.body)

    def _stop_timers(self) -> None:
        for timer in (self.timer, self.last_timer):
            if timer is not None and timer.active():
                timer.cancel()


def _too_large() -> TooLarge:
    return TooLarge(f"The body is larger than {settings.MAX_BODY_BYTES} bytes.")
