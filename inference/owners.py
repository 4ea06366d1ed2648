"""Whom a request belongs to: rooms above name themselves in settings.REQUEST_OWNERS; called in one transaction."""

from functools import cache
from typing import Protocol, cast
from uuid import UUID

from django.conf import settings
from django.utils.module_loading import import_string

from inference.protocol import Outcome, PromptSource


class Owner(Protocol):
    """Synchronous, inside the transaction that changes the request. The owner's row may be gone: then do nothing."""

    keeps_text: bool  # False: the text is in the token log only, and nothing of it reaches PostgreSQL

    @staticmethod
    def claimed(owner_id: UUID, request_id: UUID) -> None:
        """A runner has begun (the first attempt). Not called where no text is kept."""

    @staticmethod
    def finished(outcome: Outcome) -> None:
        """The request is terminal."""

    @staticmethod
    def prompt(owner_id: UUID, request_id: UUID) -> PromptSource | None:
        """Builds the prompt again after Redis lost it; None when the owner is gone."""


@cache
def owner(kind: str) -> Owner:
    return cast(Owner, import_string(settings.REQUEST_OWNERS[kind]))
