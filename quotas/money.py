"""What tokens cost, exactly. Pure."""

from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Protocol

MILLION = Decimal(1_000_000)
COST_STEP = Decimal("1e-10")
UNITS = 10**10  # of one unit of the currency: budgets are counted in COST_STEP
EXACT = 2**53 - 1  # the largest integer that Redis' scripts compare exactly
MAX_BUDGET_TOKENS = EXACT
MAX_BUDGET_COST = Decimal(900_000)  # of the currency: EXACT is 900,719.9
BATCH_FACTOR = Decimal("0.5")
FACTORS = {"batch": BATCH_FACTOR}  # by lane; 1 elsewhere


@dataclass(frozen=True)
class Prices:
    """Per million tokens; `cached` is what the engine had of the input already."""

    input: Decimal
    cached: Decimal
    output: Decimal


class TokenUsage(Protocol):
    """Tokens of one request; `cached` is part of `input`."""

    @property
    def input(self) -> int: ...
    @property
    def cached(self) -> int: ...
    @property
    def output(self) -> int: ...


def cost(usage: TokenUsage, prices: Prices, lane: str = "") -> Decimal:
    """What the tokens cost in a lane, to ten decimal places: one cached token at a cent per million is 1e-8."""
    fresh = usage.input - usage.cached
    total = fresh * prices.input + usage.cached * prices.cached + usage.output * prices.output
    return (total * FACTORS.get(lane, 1) / MILLION).quantize(COST_STEP)


def most_cost(input: int, output: int, prices: Prices, lane: str = "") -> int:
    """The most that so many tokens can cost, however much is cached; in 1e-10 of the currency, rounded up."""
    total = input * max(prices.input, prices.cached) + output * prices.output
    exact = total * FACTORS.get(lane, 1) / MILLION
    return units(exact.quantize(COST_STEP, rounding=ROUND_CEILING))


def units(amount: Decimal) -> int:
    """In 1e-10 of the currency. What is smaller than that is left out."""
    return int(amount * UNITS)


def amount(units: int) -> Decimal:
    """Of the currency."""
    return units * COST_STEP


def apart(less: Decimal, more: Decimal, currency: str) -> tuple[str, str]:
    """Two amounts for people, rounded so that they stay apart: `less` down, `more` up. Decimals as in `shown`."""
    low = high = Decimal(0)
    for places in (2, 4, 6, 10):
        step = Decimal(1).scaleb(-places)
        low, high = less.quantize(step, ROUND_FLOOR), more.quantize(step, ROUND_CEILING)
        if low or not less:
            break
    return f"{low:,.{places}f} {currency}", f"{high:,.{places}f} {currency}"


def shown(amount: Decimal, currency: str) -> str:
    """For people: at least two decimals, and no more than it takes to tell it from nothing: `12.50 USD`."""
    for places in (2, 4, 6):
        rounded = round(amount, places)
        if not amount or rounded:
            return f"{rounded:,.{places}f} {currency}"
    return f"{amount.normalize():f} {currency}"
