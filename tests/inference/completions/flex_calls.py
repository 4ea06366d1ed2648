"""What tests of the flex tier have in common."""

from typing import Any

from chatsite.database import run_db
from chatsite.redis import async_client
from inference.models import Request
from quotas import selectors
from quotas.models import Budget, Plan
from quotas.scripts import quota_prefix
from tests.inference.completions.route_calls import rows
from tests.inference.runner.conftest import House
from tests.waiting import wait_until

set_aside: set[str] = set()  # ids of those that a runner found no room for (fixture `soon`)


async def change_plan(**changes: object) -> None:
    await run_db(lambda: Plan.objects.filter(name="demo").update(**changes))
    selectors.known_plans.clear()


async def reserved(house: House) -> int:
    """How many requests have reserved."""
    return int(await async_client().zcard(f"{quota_prefix(house.person.organization.id)}:live"))


async def waits(count: int = 1) -> list[Request]:
    """The requests once there are so many."""

    async def there() -> bool:
        return len(await rows()) == count

    await wait_until(there)
    return await rows()


async def aside(request: Request) -> None:
    """Waits until a runner has found no room for it."""
    await wait_until(lambda: str(request.id) in set_aside)


def error_of(answer: Any) -> dict[str, Any]:
    return dict(answer.json()["error"])


async def limit_tokens(house: House, most: int) -> None:
    """A hard budget; whoever needs it next reads from the ledger what is spent."""
    await run_db(lambda: Budget.objects.create(organization=house.person.organization, limit_tokens=most))
    selectors.known_plans.clear()
