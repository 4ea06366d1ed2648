"""Close codes as a browser gets them, from the real daphne."""

import json
import re
import urllib.request
from collections.abc import Iterator
from http.cookiejar import CookieJar
from urllib.parse import urlencode

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.acceptance.live_site import LiveSite, live_site


@pytest.fixture(scope="module")
def site() -> Iterator[LiveSite]:
    with live_site() as running:
        yield running


def signed_in(site: LiveSite) -> str:
    """The Cookie header of a session."""
    jar = CookieJar()
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
    page = browser.open(f"{site.url}/accounts/login/", timeout=10).read().decode()
    token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
    assert token
    form = {"username": site.email, "password": site.password, "csrfmiddlewaretoken": token[1]}
    browser.open(f"{site.url}/accounts/login/", urlencode(form).encode(), timeout=10).close()
    return "; ".join(f"{cookie.name}={cookie.value}" for cookie in jar)


@pytest.mark.parametrize(
    ("frame", "times", "code"), [("x" * 600_000, 1, 1009), ('{"type": "ack", "frames": 0}', 200, 4429)]
)
def test_too_much_closes_the_socket_with_its_code(site: LiveSite, frame: str, times: int, code: int) -> None:
    request = urllib.request.Request(
        f"{site.url}/v1/conversations",
        json.dumps({"model": "smollm2-135m"}).encode(),
        {"content-type": "application/json", "authorization": f"Bearer {site.demo['CHATSITE_API_KEY']}"},
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        conversation = json.loads(answer.read())["id"]
    address = f"{site.url.replace('http', 'ws')}/ws/c/{conversation}/"
    with connect(address, origin=site.url, additional_headers={"cookie": signed_in(site)}, open_timeout=10) as socket:  # type: ignore[arg-type]
        socket.send('{"type": "hello"}')
        with pytest.raises(ConnectionClosed) as closed:
            for _ in range(times):
                socket.send(frame)
            while True:
                socket.recv(timeout=10)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == code
