"""What stands around a conversation on an open page, kept current: the list of conversations and the title."""

from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

from chatsite.accounts.protocol import Principal
from chatsite.ids import public_id
from conversations import frames, selectors
from conversations.follow import read_patiently
from conversations.sidebar import Group, load_groups, title_of

Shown = tuple[Sequence[Group], str]


class LiveSidebar:
    """One page's list of conversations; `conversation_id` None on the page of a new chat, which has no title."""

    def __init__(
        self, principal: Principal, conversation_id: UUID | None, emit: Callable[[str], Awaitable[None]]
    ) -> None:
        self._principal = principal
        self._conversation_id = conversation_id
        self._emit = emit
        self._shown: Shown | None = None

    async def refresh(self, *, always: bool = False) -> None:
        """Sends what has changed since the last time, or `always`. A conversation that is gone has no title."""
        now = await read_patiently(self._load)
        before, self._shown = self._shown, now
        if always or (before is not None and before != now):
            groups, title = now
            current = public_id("conv", self._conversation_id) if self._conversation_id else ""
            await self._emit(frames.conversations(groups, current) + (frames.title(title) if title else ""))

    def _load(self) -> Shown:
        found = None
        if self._conversation_id is not None:
            found = selectors.conversations_of(self._principal).filter(id=self._conversation_id).first()
        return load_groups(self._principal), title_of(found) if found else ""
