"""What a page says where a message is refused in a crowd: on which plan, and which model would take it."""

from chatsite.accounts.protocol import Principal
from chatsite.errors import AppError
from inference import selectors as inference_selectors
from inference.errors import HighDemand
from inference.models import Model
from quotas.selectors import aplan_of

CHARACTERS = 4  # of a token, about


async def worded(principal: Principal, error: AppError) -> AppError:
    """The same error, in the words of a page. Programs read others: they know their plan."""
    if not isinstance(error, HighDemand):
        return error
    plan = await aplan_of(principal.organization_id)
    return HighDemand(f"High demand on the {plan.name} plan.", retry_after=error.retry_after)


async def smaller_for(principal: Principal, error: AppError, model: str | None, content: str) -> Model | None:
    """A model that would begin to reply before this one may be asked again. Raises redis and database errors."""
    if not isinstance(error, HighDemand) or model is None or error.retry_after is None:
        return None
    tokens = len(content) // CHARACTERS
    return await inference_selectors.sooner_model(model, principal.organization_id, tokens, error.retry_after)
