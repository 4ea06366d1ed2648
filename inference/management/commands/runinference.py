"""Runs a runner process."""

import asyncio
import signal
from typing import Any

import uvloop
from django.core.management.base import BaseCommand

from chatsite.garbage import collect_seldom
from chatsite.redis import close_async_client
from inference.replicas import close_session
from inference.runner.process import Runner


class Command(BaseCommand):
    help = "Takes requests from the queues and streams them from the engines, until SIGTERM or Ctrl-C."

    def handle(self, *args: Any, **options: Any) -> None:
        collect_seldom()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # a third less CPU for each token
            runner.run(_serve())


async def _serve() -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        await Runner().run(stop)
    finally:
        await close_session()
        await close_async_client()
