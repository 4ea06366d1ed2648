"""What runners tell all processes of a model."""

import pytest

from chatsite.redis import async_client
from inference import forecast
from inference.redis import keys
from tests.inference.runner.conftest import House, up
from tests.waiting import wait_until


async def test_a_word_is_taken_back_when_the_last_engine_is_gone(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecast, "FRESH_SECONDS", 600)  # it does not run out by itself
    await up(house)
    told = keys.forecast(keys.scheduler(house.model.name))
    house.engines[0].kill()

    async def taken_back() -> bool:
        return not await async_client().exists(told)

    await wait_until(taken_back)
    await house.engines[0].start()
    await wait_until(lambda: async_client().exists(told))
