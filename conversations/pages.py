"""What the chat page shows, gathered for its templates."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote
from uuid import UUID

from chatsite.accounts.protocol import Principal
from chatsite.accounts.selectors import place_in
from chatsite.database import run_db
from chatsite.errors import NotFound
from chatsite.ids import parse_id, public_id
from conversations import selectors
from conversations.articles import Article, Branch, load_branch
from conversations.meters import Meters, load_meters
from conversations.models import Conversation
from conversations.sidebar import UNTITLED, Group, load_groups, title_of
from conversations.visitors import Visitor
from inference.selectors import ModelInfo, models_for
from quotas.models import Tier
from quotas.selectors import aplan_of

STARTERS = (
    ("Explain", "how tides work, in five sentences"),
    ("Write", "a short, friendly reply that declines a meeting"),
    ("Suggest", "a dinner from rice, eggs and spinach"),
    ("Read this Python:", "sorted(set(words), key=len)"),
)
THEMES = (("system", "System"), ("light", "Light"), ("dark", "Dark"))
MODEL_COOKIE = "model"  # set by static/js/header.js: what a new chat begins with
NO_MODEL = ModelInfo(name="", title="No model", context_length=0, tiers=[], state="down")


@dataclass(frozen=True)
class Choice:
    """A model in the menu."""

    model: ModelInfo
    allowed: bool  # by the caller's plan

    @property
    def context(self) -> str:
        return f"{self.model.context_length:,}"

    @property
    def who(self) -> str:
        """All plans; On the paid plan; On the paid and enterprise plans."""
        tiers = [tier for tier in Tier.values if tier in self.model.tiers]
        if len(tiers) == len(Tier.values):
            return "All plans"
        if not tiers:
            return "On no plan"
        return f"On the {' and '.join(tiers)} plan{'s' if len(tiers) > 1 else ''}"


@dataclass(frozen=True)
class Page:
    """What the templates show. `conversation` None: a new chat."""

    choices: list[Choice]
    model: ModelInfo
    visitor: Visitor
    plan: str
    meters: Meters
    groups: list[Group] = field(default_factory=list)
    title: str = UNTITLED
    conversation: str | None = None
    articles: Sequence[Article] = ()
    earlier: str | None = None
    starters: Sequence[tuple[str, str]] = STARTERS
    themes: Sequence[tuple[str, str]] = THEMES

    @property
    def running(self) -> str | None:
        last = self.articles[-1] if self.articles else None
        return last.public_id if last and last.running else None

    @property
    def who(self) -> str:
        return self.visitor.name or self.visitor.email


def load(principal: Principal, public: str, cursor: str | None = None) -> tuple[Conversation, Branch]:
    """Raises NotFound, and InvalidInput for a cursor of another conversation."""
    found = selectors.get_conversation(principal, conversation_id(public))
    return found, load_branch(principal, found.id, cursor)


@dataclass(frozen=True)
class Elsewhere:
    """The organization of somebody's conversation, in which they do not work at the moment."""

    organization: str  # its public id
    name: str


def find_elsewhere(principal: Principal, public: str) -> Elsewhere | None:
    """None when the conversation is not the caller's, or they are no member of its organization any more."""
    organization_id = selectors.organization_of(principal.user_id, conversation_id(public))
    place = place_in(principal.user_id, organization_id) if organization_id else None
    return Elsewhere(place.organization.public_id, place.organization.name) if place else None


def conversation_id(public: str) -> UUID:
    """Raises NotFound for what is no id of a conversation."""
    found = parse_id("conv", public)
    if found is None:
        raise NotFound
    return found


async def load_choices(principal: Principal) -> list[Choice]:
    """Every model that is offered, those that another plan would allow included."""
    plan = await aplan_of(principal.organization_id)
    return [Choice(model, plan.tier in model.tiers and plan.allows(model.name)) for model in await models_for(None)]


async def load_page(visitor: Visitor, found: Conversation | None, branch: Branch, preferred: str = "") -> Page:
    """`preferred`: the model that a new chat begins with, if it may be used."""
    principal = visitor.principal
    choices = await load_choices(principal)
    model = await _model_of(found, choices) if found else _first(choices, unquote(preferred))
    about: dict[str, Any] = {
        "choices": choices,
        "model": model,
        "visitor": visitor,
        "plan": (await aplan_of(principal.organization_id)).name,
        "meters": await load_meters(principal, found, model.context_length),
        "groups": await run_db(load_groups, principal),
    }
    if found is None:
        return Page(**about)
    return Page(
        **about,
        title=title_of(found),
        conversation=public_id("conv", found.id),
        articles=branch.articles,
        earlier=branch.earlier,
    )


def _first(choices: Sequence[Choice], preferred: str) -> ModelInfo:
    allowed = [choice.model for choice in choices if choice.allowed]
    return next((model for model in allowed if model.name == preferred), allowed[0] if allowed else NO_MODEL)


async def _model_of(found: Conversation, choices: Sequence[Choice]) -> ModelInfo:
    known = next((choice.model for choice in choices if choice.model.name == found.model_id), None)
    if known is not None:
        return known
    title = await run_db(lambda: found.model.title or found.model.name)  # gone from models.toml
    return ModelInfo(name="", title=title, context_length=0, tiers=[], state="down")
