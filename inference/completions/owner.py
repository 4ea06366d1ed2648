"""The owners of a stateless call's requests: one keeps nothing, the other what an organization asked for."""

from uuid import UUID

from inference import keeping
from inference.protocol import Outcome, PromptSource


class CompletionOwner:
    """The kind `completion` of settings.REQUEST_OWNERS. The caller holds the prompt, the token log the text."""

    keeps_text = False

    @staticmethod
    def claimed(owner_id: UUID, request_id: UUID) -> None:
        return None

    @staticmethod
    def finished(outcome: Outcome) -> None:
        return None

    @staticmethod
    def prompt(owner_id: UUID, request_id: UUID) -> PromptSource | None:
        """It cannot be made again: a call whose prompt Redis lost fails, and its caller may send it anew."""
        return None


class KeptCompletionOwner(CompletionOwner):
    """The kind `kept_completion`: a KeptCall. Its text is kept once it has ended; until then it is as any other's."""

    @staticmethod
    def finished(outcome: Outcome) -> None:
        keeping.note_answer(outcome.owner_id, outcome.text)
