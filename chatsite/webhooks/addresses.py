"""Where a webhook may go: to public addresses alone, however they are written or what a name resolves to.

A name is resolved once for each connection, every address that it has is looked at, and the connection is made to one
of these. So a name that says one thing when it is checked and another when it is used gains nothing.
"""

import ipaddress
import socket
from collections.abc import Iterator
from typing import Final
from urllib.parse import SplitResult, urlsplit

from aiohttp import ThreadedResolver
from aiohttp.abc import AbstractResolver, ResolveResult

from chatsite.webhooks.models import MAX_URL

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
NAT64: Final = ipaddress.ip_network("64:ff9b::/96")  # an IPv4 address is in its last 32 bits
UNICAST: Final = ipaddress.ip_network("2000::/3")  # the part of IPv6 that is given out
# Documentation and protocols; `ipaddress` of Python 3.11 takes them to be public.
RESERVED: Final = (ipaddress.ip_network("3fff::/20"), ipaddress.ip_network("192.0.0.0/24"))
METADATA: Final = {
    ipaddress.ip_address(each) for each in ("168.63.129.16", "192.0.0.192", "fd00:ec2::254")
}  # of clouds
LOCAL_NAMES: Final = ("localhost", "local", "internal", "localdomain")


class ForbiddenAddress(OSError):
    """This address is not on the public internet, so nothing is sent there."""

    def __init__(self) -> None:
        super().__init__(type(self).__doc__)


def is_allowed(text: str, *, private: bool) -> bool:
    """Whether a connection may be made to this IP address. `private`: also to the own machine and private networks.

    Link-local ones, where clouds keep their metadata, are never allowed.
    """
    try:
        found = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return all(_is_allowed(each, private=private) for each in _meant(found))


def _is_allowed(address: Address, *, private: bool) -> bool:
    never = address.is_link_local or address.is_multicast or address.is_unspecified or address in METADATA
    if never:
        return False
    return _is_public(address) or (private and (address.is_private or address.is_loopback))


def _is_public(address: Address) -> bool:
    given_out = isinstance(address, ipaddress.IPv4Address) or address in UNICAST
    return given_out and address.is_global and not any(address in each for each in RESERVED)


def _meant(address: Address) -> Iterator[Address]:
    """The address, and any IPv4 address that is wrapped in it."""
    wrapped: list[Address | None] = []
    if isinstance(address, ipaddress.IPv6Address):
        wrapped = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
        if address in NAT64:
            wrapped.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    found = [each for each in wrapped if each is not None]
    # A mapped address is the IPv4 address that is in it, and nothing else.
    mapped = isinstance(address, ipaddress.IPv6Address) and (address.ipv4_mapped is not None or address in NAT64)
    yield from found if mapped else [address, *found]


def problem_of(url: str, *, private: bool) -> str:
    """Why nothing would ever be sent to this address, in a sentence; empty where it may be. Asks no name server."""
    if len(url) > MAX_URL:
        return f"At most {MAX_URL} characters."
    parts = _split(url)
    if parts is None or not parts.hostname or not url.isascii() or any(each <= " " for each in url):
        return "Write an address such as https://example.org/hooks."
    if parts.scheme not in (("https", "http") if private else ("https",)):
        return "The address begins with https://."
    if parts.username is not None or parts.password is not None:
        return "The address cannot have a name or a password in it: what is sent is signed."
    if parts.fragment:
        return "The address cannot have a # in it."
    return "" if _may_be_allowed(parts.hostname, private=private) else str(ForbiddenAddress())


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises where it is none
    except ValueError:
        return None
    return parts if parts.port != 0 else None


def _may_be_allowed(host: str, *, private: bool) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        if host.replace(".", "").isdigit():  # 127.1 is an address to some, and a name to nobody
            return False
        return private or host.rstrip(".").rpartition(".")[2].lower() not in LOCAL_NAMES
    return is_allowed(host, private=private)


class CheckedResolver(AbstractResolver):
    """Gives the addresses of a name where all of them are allowed. Raises ForbiddenAddress where one is not."""

    def __init__(self, *, private: bool) -> None:
        self._private = private
        self._resolver = ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found = await self._resolver.resolve(host, port, family)
        if not found or not all(is_allowed(each["host"], private=self._private) for each in found):
            raise ForbiddenAddress
        return found

    async def close(self) -> None:
        await self._resolver.close()
