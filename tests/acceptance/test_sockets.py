"""WebSocket frames that no page sends, from the real daphne: close codes, and what stays secret."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from chatsite.ids import new_id, public_id
from tests.acceptance.live_site import LiveSite
from tests.waiting import wait_until_sync

SECRET = "The blue whale sings at midnight."
FRAMES = ["stop", "regenerate", "continue", "choose"]


@contextmanager
def socket_of(site: LiveSite, account: str | None, conversation: str) -> Iterator[ClientConnection]:
    """As that account's browser opens it."""
    cookies = site.session(account) if account else {}
    headers = {"cookie": "; ".join(f"{name}={value}" for name, value in cookies.items())}
    address = f"{site.url.replace('http', 'ws')}/ws/c/{conversation}/"
    with connect(address, origin=site.url, additional_headers=headers, open_timeout=10) as socket:  # type: ignore[arg-type]
        yield socket


def conversation_of(site: LiveSite, account: str) -> str:
    return str(site.call(account, "POST", "/v1/conversations", {"model": "smollm2-135m"})["id"])


def secret_of(site: LiveSite, account: str) -> tuple[str, str]:
    """A conversation with a secret and a reply: their ids."""
    conversation = conversation_of(site, account)
    body = {"content": SECRET, "max_tokens": 3, "stream": False}
    return conversation, str(site.call(account, "POST", f"/v1/conversations/{conversation}/messages", body)["id"])


def closed(socket: ClientConnection) -> tuple[int, str]:
    """The close code, and all that was said before."""
    said = ""
    with pytest.raises(ConnectionClosed) as error:
        while True:
            said += str(socket.recv(timeout=10))
    assert error.value.rcvd is not None
    return error.value.rcvd.code, said


@pytest.mark.parametrize(
    ("frame", "times", "code"), [("x" * 600_000, 1, 1009), ('{"type": "ack", "frames": 0}', 200, 4429)]
)
def test_too_much_closes_the_socket_with_its_code(site: LiveSite, frame: str, times: int, code: int) -> None:
    with socket_of(site, "Ada", conversation_of(site, "Ada")) as socket:
        socket.send('{"type": "hello"}')
        try:
            for _ in range(times):
                socket.send(frame)
        except ConnectionClosed:  # before the last of them was sent
            pass
        assert closed(socket)[0] == code


@pytest.mark.parametrize("frame", ["{", "[]", "null", '{"type": "nonsense"}', '{"type": "send"}', "[" * 5000])
def test_a_malformed_frame_is_named_and_the_socket_goes_on(site: LiveSite, frame: str) -> None:
    with socket_of(site, "Ada", conversation_of(site, "Ada")) as socket:
        socket.send(frame)
        answer = wait_until_sync(lambda: _next_with(socket, "not understood"), 10)
        assert "Traceback" not in answer
        socket.send(json.dumps({"type": "send", "content": "Are you still there?"}))
        wait_until_sync(lambda: _next_with(socket, "Are you still there?"), 10)


def _next_with(socket: ClientConnection, text: str) -> str:
    frame = str(socket.recv(timeout=10))
    return frame if text in frame else ""


def test_s32_a_foreign_or_unknown_conversation_is_closed_alike(site: LiveSite) -> None:
    conversation, _ = secret_of(site, "Ada")
    answers = []
    for asked in (conversation, public_id("conv", new_id()), "conv_nonsense"):
        with socket_of(site, "Eve", asked) as socket:
            answers.append(closed(socket))
    assert answers == [(4404, "")] * 3
    with socket_of(site, None, conversation) as socket:
        assert closed(socket) == (4401, "")


@pytest.mark.parametrize("kind", FRAMES)
def test_s32_a_frame_with_a_foreign_message_is_refused_and_changes_nothing(site: LiveSite, kind: str) -> None:
    _, message = secret_of(site, "Ada")
    rows = "SELECT id, content, status, request_id FROM conversations_message ORDER BY id"
    before = site.execute(rows)
    with socket_of(site, "Eve", conversation_of(site, "Eve")) as socket:
        socket.send('{"type": "hello"}')
        for asked in (message, public_id("msg", new_id()), "msg_nonsense"):
            socket.send(json.dumps({"type": kind, "message": asked}))
            frame = wait_until_sync(lambda: _next_with(socket, "refused"), 10)
            assert json.loads(frame)["code"] == "not_found"
    assert site.execute(rows) == before


def test_s32_nothing_of_another_persons_page_arrives(site: LiveSite) -> None:
    conversation = conversation_of(site, "Ada")
    with socket_of(site, "Eve", conversation_of(site, "Eve")) as eve, socket_of(site, "Ada", conversation) as ada:
        for socket in (eve, ada):
            socket.send('{"type": "hello"}')
        ada.send(json.dumps({"type": "send", "content": SECRET}))
        wait_until_sync(lambda: _next_with(ada, SECRET), 10)
        wait_until_sync(lambda: _next_with(ada, "data-cursor"), 10)
        eve.send('{"type": "stop", "message": "x"}')
        heard = ""
        while "refused" not in heard:
            heard += str(eve.recv(timeout=10))
        assert SECRET not in heard
        assert "data-cursor" not in heard
