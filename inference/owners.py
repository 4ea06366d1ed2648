"""Whom a request belongs to: rooms above name themselves in settings.REQUEST_OWNERS; called in one transaction."""

from dataclasses import dataclass
from functools import cache
from typing import Protocol, cast
from uuid import UUID

from django.conf import settings
from django.utils.module_loading import import_string

from inference.prompts import Turn
from inference.protocol import Outcome


@dataclass(frozen=True)
class PromptSource:
    """What a prompt is made of: the turns, then tokens of the reply that were there before (continue)."""

    turns: list[Turn]
    prefix_ids: list[int]


class Owner(Protocol):
    """Synchronous, inside the transaction that changes the request. The owner's row may be gone: then do nothing."""

    @staticmethod
    def claimed(owner_id: UUID, request_id: UUID) -> None:
        """A runner has begun (the first attempt)."""

    @staticmethod
    def finished(outcome: Outcome) -> None:
        """The request is terminal."""

    @staticmethod
    def prompt(owner_id: UUID, request_id: UUID) -> PromptSource | None:
        """Builds the prompt again after Redis lost it; None when the owner is gone."""


@cache
def owner(kind: str) -> Owner:
    return cast(Owner, import_string(settings.REQUEST_OWNERS[kind]))
