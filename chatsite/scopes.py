"""What an API key may be used for. Each route of the API names the one scope that it needs.

A browser's session has all of them: scopes bound programs, and what a person may do in an organization is a matter of
their role there.
"""

from collections.abc import Collection
from enum import StrEnum
from typing import Final

from chatsite.errors import InsufficientScope


class Scope(StrEnum):
    CHAT = "chat"
    READ = "read"
    BATCH = "batch"
    ADMIN = "admin"


ALL: Final = frozenset(Scope)
DEFAULT: Final = (Scope.CHAT, Scope.READ)
EXPLAINED: Final = {
    Scope.CHAT: "Send messages, have replies written, change and delete conversations",
    Scope.READ: "Read conversations, messages and requests, and list the models",
    Scope.BATCH: "Send and read batches",
    Scope.ADMIN: "Look after the organization: members, limits, keys",
}
# Those that some route needs: forms offer no others.
OFFERED: Final = (Scope.CHAT, Scope.READ)


def require(held: Collection[str], needed: Scope) -> None:
    """Raises InsufficientScope, which names what is missing."""
    if needed not in held:
        has = f"It has {' and '.join(sorted(held))}" if held else "It has none"
        error = InsufficientScope(f"This needs the scope “{needed}”, which this API key does not have. {has}.")
        error.headers = {"WWW-Authenticate": f'Bearer error="insufficient_scope", scope="{needed}"'}
        raise error
