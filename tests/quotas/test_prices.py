"""Price lists: which price a request is billed at, and that none is ever changed."""

from datetime import timedelta
from decimal import Decimal
from uuid import UUID

import pytest
from django.db import DatabaseError, IntegrityError, transaction
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from chatsite.ids import first_id, new_id
from inference.protocol import Usage
from quotas import money, prices
from quotas.models import Price
from quotas.money import cost, most_cost, shown, units
from quotas.protocol import Prices

OLD, NEW = Prices(Decimal(1), Decimal("0.5"), Decimal(2)), Prices(Decimal(3), Decimal(1), Decimal(4))
NONE = Prices(Decimal(9), Decimal(9), Decimal(9))


def at(seconds: float) -> UUID:
    """An id made so many seconds from now."""
    return first_id(timezone.now() + timedelta(seconds=seconds))


def test_without_a_price_list_the_model_s_own_prices_count(db: None) -> None:
    assert prices.price_of("small", new_id(), NONE) == prices.PriceVersion(None, NONE)


def test_the_first_prices_of_the_file_always_were_and_a_change_counts_from_soon_on(db: None) -> None:
    prices.sync_price("small", OLD)
    prices.sync_price("small", OLD)
    assert Price.objects.count() == 1
    assert prices.price_of("small", at(-1e8), NONE).prices == OLD
    prices.sync_price("small", NEW)
    known = [prices.price_of("small", at(seconds), NONE) for seconds in (-60, 5, 15, 1e8)]
    assert [each.prices for each in known] == [OLD, OLD, NEW, NEW]
    assert known[0].id != known[2].id
    prices.sync_price("small", OLD)
    assert Price.objects.filter(source="file").count() == 3


def test_prices_of_the_admin_stay_when_the_file_is_read_again(db: None) -> None:
    prices.sync_price("small", OLD)
    Price.objects.create(
        model="small",
        valid_from=timezone.now() - timedelta(hours=1),
        input=NEW.input,
        cached=NEW.cached,
        output=NEW.output,
    )
    prices.known_prices.clear()
    prices.sync_price("small", OLD)
    assert prices.price_of("small", new_id(), NONE).prices == NEW
    assert prices.price_of("small", at(-7200), NONE).prices == OLD
    assert prices.price_of("other", new_id(), NONE).prices == NONE


def test_a_price_is_never_changed_and_stays_once_it_is_in_force(db: None) -> None:
    prices.sync_price("small", OLD)
    row = Price.objects.get()
    for change in (lambda: Price.objects.update(input=0), row.delete):
        with pytest.raises(DatabaseError, match="add another"), transaction.atomic():
            change()
    with pytest.raises(IntegrityError), transaction.atomic():
        Price.objects.create(model="small", valid_from=row.valid_from, input=1, cached=1, output=1)
    with pytest.raises(IntegrityError), transaction.atomic():
        Price.objects.create(model="other", valid_from=row.valid_from, input=-1, cached=1, output=1)
    future = Price.objects.create(
        model="small", valid_from=timezone.now() + timedelta(days=1), input=1, cached=1, output=1
    )
    future.delete()
    assert Price.objects.get() == row


AMOUNTS = st.decimals(0, 1000, places=6)
TOKENS = st.integers(0, 2**31 - 1)


@given(TOKENS, st.floats(0, 1), TOKENS, AMOUNTS, AMOUNTS, AMOUNTS, st.sampled_from(["free", "batch"]))
def test_no_usage_costs_more_than_was_reserved_for_it(
    input: int, share: float, output: int, fresh: Decimal, cached: Decimal, out: Decimal, lane: str
) -> None:
    price = Prices(fresh, cached, out)
    usage = Usage(input, min(input, int(input * share)), output)
    total = cost(usage, price, lane)
    assert total == total.quantize(money.COST_STEP)
    assert units(total) <= most_cost(input, output, price, lane)
    assert money.amount(units(total)) == total


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("12.5", "12.50 USD"),
        ("0", "0.00 USD"),
        ("0.004", "0.0040 USD"),
        ("1e-8", "0.00000001 USD"),
        ("1234567", "1,234,567.00 USD"),
    ],
)
def test_amounts_for_people(value: str, text: str) -> None:
    assert shown(Decimal(value), "USD") == text


def test_the_largest_budget_is_counted_exactly() -> None:
    assert units(money.MAX_BUDGET_COST) < money.EXACT
