"""Sending to one address: once, with short timeouts, no redirects, and hardly a look at the answer."""

import asyncio
import ssl
import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector

from chatsite.text_checks import clean_line
from chatsite.webhooks.addresses import CheckedResolver, ForbiddenAddress, problem_of

SECONDS: Final = 10  # for all of it
TIMEOUT: Final = ClientTimeout(total=SECONDS, connect=5, sock_connect=5)
READ_BYTES: Final = 2048  # of an answer; the rest is not read
SHOWN: Final = 120  # characters of an answer that is no success
USER_AGENT: Final = "chatsite-webhooks/1"


@dataclass(frozen=True)
class Sent:
    """How an attempt has ended. `status` None: there was no answer."""

    ok: bool
    outcome: str
    status: int | None = None
    took_ms: int = 0


async def send(url: str, body: bytes, headers: dict[str, str], *, private: bool) -> Sent:
    """POSTs the body. Whatever goes wrong there is told in a sentence. `private`: see `addresses.is_allowed`."""
    begun = time.monotonic()
    sent = await _send(url, body, headers, private=private)
    return Sent(sent.ok, sent.outcome, sent.status, round((time.monotonic() - begun) * 1000))


async def _send(url: str, body: bytes, headers: dict[str, str], *, private: bool) -> Sent:
    if problem := problem_of(url, private=private):  # a literal address does not come before the resolver
        return Sent(False, problem)
    connector = TCPConnector(resolver=CheckedResolver(private=private), force_close=True, use_dns_cache=False)
    try:
        async with (
            asyncio.timeout(SECONDS),
            ClientSession(connector=connector, timeout=TIMEOUT, trust_env=False, auto_decompress=False) as session,
            session.post(
                url, data=body, headers={**headers, "user-agent": USER_AGENT}, allow_redirects=False
            ) as answer,
        ):
            text = b"" if answer.status < HTTPStatus.MULTIPLE_CHOICES else await answer.content.read(READ_BYTES)
            return _answered(answer.status, text)
    except TimeoutError:
        return Sent(False, f"No answer within {SECONDS} s.")
    except ssl.SSLError:
        return Sent(False, "No secure connection could be made.")
    except (ClientError, OSError, ValueError) as error:
        return Sent(False, _failure(error))


def _answered(status: int, text: bytes) -> Sent:
    if status < HTTPStatus.MULTIPLE_CHOICES:
        return Sent(True, "Taken.", status)
    if status < HTTPStatus.BAD_REQUEST:
        return Sent(False, "It redirects, which is not followed: give the address that it leads to.", status)
    said = clean_line(text.decode(errors="replace").replace("\n", " ").replace("\r", " "))[:SHOWN].strip()
    return Sent(False, f"It answered {status}: {said}" if said else f"It answered {status}.", status)


def _failure(error: BaseException) -> str:
    """What the library says may name addresses of ours, so only its kind is told."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ForbiddenAddress):
            return str(seen)
        if isinstance(seen, ssl.SSLError):
            return "No secure connection could be made."
        seen = getattr(seen, "os_error", None) or seen.__cause__ or seen.__context__
    return "No connection could be made, or it was broken off."
