"""Links between the admin's pages."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.http import urlencode
from django.utils.safestring import SafeString

from chatsite.ids import public_id

NOTHING = "-"


@dataclass(frozen=True)
class Link:
    """Somewhere to go to in the admin."""

    label: str
    address: str

    def __str__(self) -> str:
        return self.html

    @property
    def html(self) -> SafeString:
        return format_html('<a class="see" href="{}">{}</a>', self.address, self.label)


def row_link(model: str, pk: Any, label: str) -> Link:
    """To the page of a row. `model`: such as `accounts_user`."""
    return Link(label, reverse(f"admin:{model}_change", args=[pk]))


def id_link(model: str, prefix: str, pk: UUID | None) -> SafeString | str:
    """To the page of a row that has a public id, by that id; a dash without one."""
    return row_link(model, pk, public_id(prefix, pk)).html if pk else NOTHING


def short(identifier: str) -> SafeString:
    """For lists: the last characters, since the first ones are the time; all of it on hover."""
    prefix, _, rest = identifier.rpartition("_")
    return format_html(
        '<span class="short" title="{}">{}…{}</span>', identifier, f"{prefix}_" if prefix else "", rest[-10:]
    )


def short_link(model: str, prefix: str, pk: UUID | None) -> SafeString | str:
    """`id_link` for lists."""
    if not pk:
        return NOTHING
    address = row_link(model, pk, "").address
    return format_html('<a class="see" href="{}">{}</a>', address, short(public_id(prefix, pk)))


def list_link(model: str, label: str, **query: Any) -> Link:
    """To a list: `q` searches, anything else filters."""
    return Link(label, f"{reverse(f'admin:{model}_changelist')}?{urlencode(query)}")


def joined(links: Iterable[Link]) -> SafeString | str:
    """Links one after the other; a dash without any."""
    return format_html_join(" · ", "{}", ((link.html,) for link in links)) or NOTHING
