"""Database calls from async code: a bounded executor as large as the connection pool, never the one shared thread."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from datetime import tzinfo
from functools import partial
from typing import ParamSpec, TypeVar

from django.conf import settings
from django.db import close_old_connections
from django.utils import timezone

P = ParamSpec("P")
R = TypeVar("R")

_executor = ThreadPoolExecutor(max_workers=settings.DATABASE_POOL_SIZE, thread_name_prefix="database")


def _call(zone: tzinfo, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    close_old_connections()
    try:
        with timezone.override(zone):
            return function(*args, **kwargs)
    finally:
        close_old_connections()


async def run_db(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Runs `function`, which may use the ORM, in a thread of the pool, with the caller's log fields and time zone."""
    call = partial(_call, timezone.get_current_timezone(), function, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_executor, copy_context().run, call)
