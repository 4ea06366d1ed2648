"""Who is calling: passed from authentication to every service."""

from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True)
class Principal:
    """The caller of a request. `api_key_id` is None for a browser session."""

    user_id: UUID
    organization_id: UUID
    api_key_id: UUID | None = None

    @property
    def scope(self) -> UUID:
        """What an Idempotency-Key belongs to: the key, or the user of a session."""
        return self.api_key_id or self.user_id
