"""What rooms above add to the admin's page of a request: they name themselves in settings.REQUEST_OWNERS_IN_ADMIN."""

from collections.abc import Iterator
from functools import cache
from typing import Protocol, cast
from uuid import UUID

from django.conf import settings
from django.utils.module_loading import import_string

from chatsite.admin_links import Link


class OwnerPages(Protocol):
    """Of one kind of owners."""

    @staticmethod
    def links(owner_id: UUID) -> list[Link]:
        """Where the owner is to be seen; empty when it is gone."""

    @staticmethod
    def owners_in(container_id: UUID) -> list[UUID]:
        """The owners that something of that id holds, such as the replies of a conversation."""


def links(kind: str, owner_id: UUID) -> list[Link]:
    """Empty for a kind without pages."""
    return _pages(kind).links(owner_id) if kind in settings.REQUEST_OWNERS_IN_ADMIN else []


def owners_in(container_id: UUID) -> list[UUID]:
    """Owners of every kind."""
    found: Iterator[UUID] = (
        owner for kind in settings.REQUEST_OWNERS_IN_ADMIN for owner in _pages(kind).owners_in(container_id)
    )
    return list(found)


@cache
def _pages(kind: str) -> OwnerPages:
    return cast(OwnerPages, import_string(settings.REQUEST_OWNERS_IN_ADMIN[kind]))
