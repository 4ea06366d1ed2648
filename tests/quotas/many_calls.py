"""A process that makes many calls at once against the limits of one organization: `-m tests.quotas.many_calls JSON`.

Says how many were admitted. Whoever starts it names the database and Redis in the environment.
"""

import asyncio
import json
import os
import sys
from uuid import UUID

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "chatsite.settings")


def say(word: object) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


async def main(organization: UUID, user: UUID, count: int, wanted: list[int], concurrent: int, budget: list) -> int:
    from chatsite.accounts.protocol import Principal
    from chatsite.errors import RateLimited
    from chatsite.ids import new_id
    from chatsite.redis import async_client
    from quotas.budgets import BudgetLimit, Unit
    from quotas.protocol import PlanLimits, Want
    from quotas.services import reserve

    limits = tuple(
        BudgetLimit(scope, subject, "It", Unit(unit), limit, days) for scope, subject, unit, limit, days in budget
    )
    plan = PlanLimits("test", "paid", 1_000_000_000, concurrent, budgets=limits)
    who = Principal(user, organization)
    say("ready")
    sys.stdin.readline()
    await async_client().ping()

    async def call() -> int:
        try:
            await reserve(who, plan, {new_id(): Want(*wanted)}, 60)
        except RateLimited:
            return 0
        return 1

    return sum(await asyncio.gather(*(call() for _ in range(count))))


if __name__ == "__main__":
    django.setup()
    given = json.loads(sys.argv[1])
    say(asyncio.run(main(UUID(given.pop("organization")), UUID(given.pop("user")), **given)))
