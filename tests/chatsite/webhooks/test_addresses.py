"""Webhooks go to public addresses alone, however these are written."""

import asyncio
from typing import Any

import pytest

from chatsite.webhooks import addresses
from chatsite.webhooks.addresses import CheckedResolver, ForbiddenAddress, is_allowed, problem_of

LOOPBACK = ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "fd00::1"]
NEVER = [
    "169.254.169.254", "fe80::1", "fe80::1%eth0", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1",
    "0.0.0.0", "::", "224.0.0.1", "ff02::1", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "x", "",
]  # fmt: skip
OTHERS = [
    "100.64.0.1", "192.0.0.8", "192.0.2.1", "198.18.0.1", "240.0.0.1", "255.255.255.255", "64:ff9b::7f00:1",
    "2002:7f00:1::1", "2001:0:7f00:1::1", "2001:db8::1",
]  # fmt: skip
NOT_GIVEN_OUT = [
    "fec0::1", "feff::1", "64:ff9b:1::7f00:1", "64:ff9b:1::101:101", "::7f00:1", "::101:101", "::ffff:0:127.0.0.1",
    "::ffff:0:1.1.1.1", "5f00::1", "3fff::1", "3fff:fff::1", "100::1", "1fff::1", "4000::1", "8000::1", "fe00::1",
]  # fmt: skip
PUBLIC = [
    "93.184.216.34", "1.1.1.1", "2606:4700:4700::1111", "2a00:1450::1", "3fff:1000::1", "::ffff:1.1.1.1",
    "64:ff9b::101:101",
]  # fmt: skip


@pytest.mark.parametrize("address", [*LOOPBACK, *NEVER, *OTHERS, *NOT_GIVEN_OUT])
def test_what_is_not_public_is_refused(address: str) -> None:
    assert not is_allowed(address, private=False)


@pytest.mark.parametrize("address", PUBLIC)
def test_what_is_public_is_allowed(address: str) -> None:
    assert is_allowed(address, private=False)


@pytest.mark.parametrize("address", LOOPBACK)
def test_private_networks_are_allowed_where_a_setting_says_so(address: str) -> None:
    assert is_allowed(address, private=True)


@pytest.mark.parametrize("address", NEVER)
def test_metadata_is_never_allowed(address: str) -> None:
    assert not is_allowed(address, private=True)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("https://example.org/hook", ""),
        ("https://example.org:8443/a?b=c", ""),
        ("http://example.org/", "The address begins with https://."),
        ("ftp://example.org/", "The address begins with https://."),
        ("file:///etc/passwd", "Write an address"),
        ("gopher://example.org/", "The address begins with https://."),
        ("https://", "Write an address"),
        ("example.org", "Write an address"),
        ("", "Write an address"),
        ("https://exa mple.org/", "Write an address"),
        ("https://example.org/\r\nhost: x", "Write an address"),
        ("https://example.org:99999/", "Write an address"),
        ("https://example.org:0/", "Write an address"),
        ("https://[::1/", "Write an address"),
        ("https://exämple.org/", "Write an address"),
        ("https://a:b@example.org/", "The address cannot have a name or a password"),
        ("https://@example.org/", "The address cannot have a name or a password"),
        ("https://example.org/#x", "The address cannot have a #"),
        ("https://127.0.0.1/", "not on the public internet"),
        ("https://[::1]/", "not on the public internet"),
        ("https://[::ffff:169.254.169.254]/", "not on the public internet"),
        ("https://[fec0::1]/", "not on the public internet"),
        ("https://[64:ff9b:1::7f00:1]/", "not on the public internet"),
        ("https://169.254.169.254/latest/meta-data", "not on the public internet"),
        ("https://localhost/", "not on the public internet"),
        ("https://LOCALHOST./", "not on the public internet"),
        ("https://db.internal/", "not on the public internet"),
        ("https://example.org/" + "x" * 500, "At most 500 characters."),
    ],
)
def test_what_is_wrong_with_an_address_is_said(url: str, problem: str) -> None:
    found = problem_of(url, private=False)
    assert problem in found if problem else found == ""


def test_http_and_loopback_where_a_setting_says_so() -> None:
    assert problem_of("http://127.0.0.1:8000/", private=True) == ""
    assert problem_of("http://localhost:8000/", private=True) == ""
    assert problem_of("http://169.254.169.254/", private=True)
    assert problem_of("ftp://127.0.0.1/", private=True)


@pytest.mark.parametrize("host", ["localhost", "127.1", "2130706433", "0x7f000001"])
def test_a_name_is_resolved_and_looked_at(host: str) -> None:
    async def resolve() -> None:
        resolver = CheckedResolver(private=False)
        try:
            await resolver.resolve(host, 80)
        finally:
            await resolver.close()

    with pytest.raises(ForbiddenAddress):
        asyncio.run(resolve())


def test_a_name_with_one_private_address_among_public_ones_is_refused(monkeypatch: Any) -> None:
    async def both(*_: Any) -> list[dict[str, Any]]:
        return [{"host": "1.1.1.1"}, {"host": "10.0.0.1"}]

    monkeypatch.setattr(addresses.ThreadedResolver, "resolve", both)

    async def resolve() -> None:
        await CheckedResolver(private=False).resolve("example.org", 80)

    with pytest.raises(ForbiddenAddress):
        asyncio.run(resolve())
