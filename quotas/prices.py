"""Price lists: what a model's tokens cost, from when on. A request is billed at the price when it was accepted."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.utils import timezone

from chatsite.caching import ShortCache
from chatsite.database import run_db
from chatsite.ids import made_at
from quotas.models import Price
from quotas.protocol import Prices

PRICE_SECONDS = 5.0
# A new price is known everywhere before it is in force: else a process would reserve at the old and bill at the new.
AHEAD = timedelta(seconds=2 * PRICE_SECONDS)
ALWAYS = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class PriceVersion:
    """`id` None: of a model without a price list."""

    id: int | None
    prices: Prices
    valid_from: datetime = ALWAYS


known_prices: ShortCache[str, tuple[PriceVersion, ...]] = ShortCache(PRICE_SECONDS)


def price_of(model: str, request_id: UUID, otherwise: Prices) -> PriceVersion:
    """The price at which a request is billed, by when its id was made. `otherwise`: of a model without a price list."""
    return _at(_versions(model), made_at(request_id), otherwise)


async def aprice_of(model: str, request_id: UUID, otherwise: Prices) -> PriceVersion:
    """`price_of`, for async code: a thread is used only when the prices are not known."""
    known = known_prices.get(model)
    versions = known if known is not None else await run_db(_versions, model)
    return _at(versions, made_at(request_id), otherwise)


def _at(versions: tuple[PriceVersion, ...], moment: datetime, otherwise: Prices) -> PriceVersion:
    return next((each for each in versions if each.valid_from <= moment), PriceVersion(None, otherwise))


def _versions(model: str) -> tuple[PriceVersion, ...]:
    """The newest first."""
    known = known_prices.get(model)
    if known is None:
        rows = Price.objects.filter(model=model).order_by("-valid_from")
        known = tuple(PriceVersion(row.pk, Prices(row.input, row.cached, row.output), row.valid_from) for row in rows)
        known_prices.put(model, known)
    return known


def sync_price(model: str, prices: Prices) -> None:
    """What models.toml says now. A change makes a new version, in force in ten seconds; the first one always was."""
    last = Price.objects.filter(model=model, source=Price.Source.FILE).order_by("-valid_from").first()
    if last is not None and Prices(last.input, last.cached, last.output) == prices:
        return
    begins = timezone.now() + AHEAD if Price.objects.filter(model=model).exists() else ALWAYS
    Price.objects.create(
        model=model,
        valid_from=begins,
        input=prices.input,
        cached=prices.cached,
        output=prices.output,
        source=Price.Source.FILE,
    )
    known_prices.drop(model)
