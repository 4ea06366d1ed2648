"""One attempt at one request: claim it, stream it, and end it or give it back."""

import asyncio
import contextlib
import time
from enum import StrEnum
from typing import TYPE_CHECKING
from uuid import UUID

import structlog
from django.conf import settings
from django.db import DatabaseError, InterfaceError
from redis.exceptions import RedisError

from chatsite.concurrency import discard
from chatsite.database import run_db
from chatsite.errors import AppError
from chatsite.ids import new_id
from chatsite.redis import Call, async_client, run_pipeline
from inference import claims, events, prompt_store, tokenization
from inference.errors import EngineUnavailable
from inference.finishing import release, release_if_over, settle_unclaimed
from inference.models import Lane, Request, RequestStatus
from inference.owners import owner
from inference.prompt_store import StoredPrompt
from inference.protocol import Sampling
from inference.redis import rules
from inference.runner.member import Member
from inference.runner.output import Output
from inference.runner.placement import Placement
from inference.runner.starting import may_start
from inference.runner.upstream import engine_call
from inference.scheduling.answers import Head
from inference.scheduling.health import time_limits
from inference.settlement import CANCELLED, ENDINGS, Ending, saved_text, settle_claimed
from inference.vllm import Delta, EngineError, EngineRejected, EngineStream

if TYPE_CHECKING:
    from inference.runner.dispatch import Dispatcher
    from inference.runner.process import Runner

log = structlog.get_logger(__name__)


class Interruption(StrEnum):
    """Why a stream is cut from our side."""

    CANCELLED = "cancelled"  # somebody asked to stop
    FENCED = "fenced"  # another attempt has the request, or our lease may have run out
    HANDOVER = "handover"  # this process ends
    PREEMPTED = "preempted"  # somebody more urgent needs its place
    QUOTA = "quota"  # its reservation is used up, and there is no more
    HELD = "held"  # its limits do not let it start: it waits elsewhere by now, or has ended


class Stream:
    """A running reply: who holds it, and its way from claim to settlement. `output` is what it has said."""

    def __init__(
        self,
        runner: "Runner",
        dispatcher: "Dispatcher",
        member: Member,
        head: Head,
        attempt: int,
        placement: Placement,
    ) -> None:
        self.runner, self.dispatcher, self.pool, self.member = runner, dispatcher, dispatcher.pool, member
        self.id, self.head, self.attempt, self.placement = UUID(head.id), head, attempt, placement
        self.claim = new_id()
        self.request: Request | None = None  # set once PostgreSQL has given us the claim
        self.renewed_at = time.monotonic()  # when the last renewal that succeeded was sent
        self.interruption: Interruption | None = None
        self.output = Output()
        self.settling = False
        self.opened = False  # the log takes what we append
        self.tops_up_at: float = 32  # tokens of output from which on its reservation does not wait for a heartbeat
        self._began = self.sent = member.begins()
        self.recovered = attempt == 1  # `output` holds what earlier attempts emitted
        self.keeps_text = True
        self._upstream: asyncio.Task[None] | None = None

    @property
    def has_unsaved(self) -> bool:
        """Whether PostgreSQL lacks tokens that it should have, should this process die."""
        unsaved = self.output.saved_tokens < len(self.output.ids)
        return self.keeps_text and self.request is not None and not self.settling and unsaved

    def interrupt(self, why: Interruption) -> None:
        """Closes the upstream call, which frees the sequence on the engine."""
        if self.interruption is None or why is Interruption.FENCED:
            self.interruption = why
        if self._upstream is not None and not self._upstream.done():
            self._upstream.cancel()  # again, when asked again: a client library may swallow one

    async def run(self, prompt: StoredPrompt | None) -> None:
        """From claim to settlement. Never raises: what went wrong ends in the request's state or gives it back."""
        structlog.contextvars.bind_contextvars(request=str(self.id), attempt=self.attempt)
        self._upstream = asyncio.create_task(self._generate(prompt))
        try:
            await self._upstream
        except asyncio.CancelledError:
            if self.interruption is None:
                raise  # the process is being torn down
        except EngineRejected as error:
            await self._settle(Ending(RequestStatus.FAILED, "", "engine_rejected", str(error)))
            return
        except EngineError as error:
            log.warning("engine failed", url=self.member.row.url, error=f"{type(error).__name__}: {error}")
            await self._give_back(failed=True)
            return
        except AppError as error:  # the prompt could not be made again
            await self._settle(Ending(RequestStatus.FAILED, "", error.code, error.message))
            return
        except (RedisError, DatabaseError, InterfaceError, OSError) as error:
            log.warning("store failed", error=f"{type(error).__name__}: {error}")
            await asyncio.sleep(0.5)  # the store is away: do not spin
            await self._give_back()
            return
        except Exception:
            log.exception("attempt failed")  # our own fault: counts as an attempt, so that it ends
            await self._give_back(failed=True, by_engine=False)
            return
        if self.interruption is None:
            if self.output.received:  # else an earlier attempt had everything
                self.member.succeeded(self.sent)
            self._tell_cached()
            await self._settle(self._success())
        else:
            await self._interrupted(self.interruption)

    # Generating

    async def _generate(self, prompt: StoredPrompt | None) -> None:
        if self.head.lane == Lane.BATCH:
            if not await may_start(self.id, self.pool.scheduler, self.attempt):
                self.interruption = self.interruption or Interruption.HELD
                return
            self._began = time.monotonic()
            self.dispatcher.placed(self.head, self.placement)
        if self.attempt == 1 and prompt is not None:
            await self._begin(prompt)
            return
        if not await self._claim() or not await self._open():
            return
        if prompt is None:
            prompt = await prompt_store.restore(self._claimed)
        await self._recover()
        await self._prepare(prompt)
        self.output.finish_reason = await self._ended_before(prompt.sampling)
        if self.output.finish_reason:
            return
        if self.output.ids and prompt.sampling.guided:
            raise EngineUnavailable("The engine was lost in the middle of a reply of a prescribed form. Try again.")
        await self._consume(self._deltas(prompt))

    async def _ended_before(self, sampling: Sampling) -> str:
        """Why an earlier attempt had nothing more to say, and was lost before it could settle; empty when it had."""
        output = self.output
        if output.said_stop:
            return "stop"
        if len(output.ids) >= sampling.max_tokens:
            return "length"
        may_end = output.ids and not sampling.extra.get("ignore_eos")
        return "stop" if may_end and output.ids[-1] in await tokenization.end_tokens(self.pool.model) else ""

    async def _begin(self, prompt: StoredPrompt) -> None:
        """The first attempt: the upstream call starts while PostgreSQL is asked; nothing is logged before it agrees."""
        deltas = self._deltas(prompt)
        first = asyncio.ensure_future(anext(deltas, None))
        try:
            if not await self._claim(prompt.owner_kind):
                return
            await self._prepare(prompt)
            if not first.done() and not await self._open():  # else the first entry opens it
                return
            delta = await first
        except BaseException:
            deltas.close()
            raise
        finally:
            if self.interruption is not None:
                deltas.close()
            await discard(first)
        if delta is not None:
            self._take(delta)
            await self._consume(deltas)
        else:
            deltas.close()

    async def _consume(self, deltas: EngineStream) -> None:
        async with contextlib.aclosing(deltas):
            if self.output.said_stop:  # with the first token already
                return
            async for delta in deltas:
                if self.interruption is not None:
                    return
                self._take(delta)
                if self.output.said_stop:
                    return

    async def _prepare(self, prompt: StoredPrompt) -> None:
        """The decoder stands behind the tokens of the owner's text: those of an earlier request end the prompt."""
        prompt_ids = events.unpack_ids(prompt.token_ids)
        before = prompt_ids[len(prompt_ids) - self.output.base_tokens :]
        if not prompt.sampling.stop:
            before += self.output.ids
        self.output.begin(prompt.sampling, await tokenization.decoder(self.pool.model, before))

    @property
    def _claimed(self) -> Request:
        assert self.request is not None
        return self.request

    @property
    def opening(self) -> Call:
        ttl = settings.PROMPT_TTL_SECONDS
        return events.open_call(self.id, self.claim, self.attempt, self.output.base_tokens, ttl)

    async def _claim(self, owner_kind: str = "") -> bool:
        request = await run_db(
            claims.take,
            self.id,
            self.claim,
            self.attempt,
            self.member.row.id,
            self.placement.record(self.head, self.attempt),
            owner_kind,
        )
        if request is None:
            log.info("claim refused")
            self.interruption = Interruption.FENCED
            await release_if_over(self.id)
            return False
        request.model = self.pool.model
        self.output.base_tokens, self.output.base_chars = request.base_tokens, request.base_chars
        self.keeps_text = owner(request.owner_kind).keeps_text
        self.request = request
        if request.cancel_requested_at is not None:
            self.interruption = Interruption.CANCELLED
        return self.interruption is None

    async def _open(self) -> bool:
        """Makes the log ours; False when a later attempt has it."""
        [opened] = await run_pipeline(async_client(), [self.opening])
        if isinstance(opened, Exception):
            raise opened
        self.opened = bool(opened)
        if not opened:
            self.interruption = Interruption.FENCED
        return self.interruption is None

    async def _recover(self) -> None:
        """Takes up what earlier attempts emitted: the longer of the log and what PostgreSQL saved."""
        try:
            logged = await events.read_log(async_client(), self.id)
        except (RedisError, OSError) as error:
            log.warning("token log unreadable", error=str(error))
            logged = None  # what PostgreSQL has saved is kept
        output = self.output
        known = await run_db(saved_text, self.id, output.base_tokens, output.base_chars, None)
        whole = await run_db(saved_text, self.id, output.base_tokens, output.base_chars, logged)
        self.recovered = True
        in_log = logged.from_token + len(logged.token_ids) - output.base_tokens if logged else 0
        if output.take_up(whole, known, in_log):
            self.runner.flusher.mark(self)

    def _deltas(self, prompt: StoredPrompt) -> EngineStream:
        call = engine_call(self.member.served_name, prompt, self.output.ids)
        first, next_ = time_limits(rules.settings(), self.placement.prefill, self.member.peak_rate)
        return self.member.engine.stream(call, first_token_timeout=first, idle_timeout=next_)

    def _take(self, delta: Delta) -> None:
        first = self.output.first_token_at is None
        self.output.take(delta)
        self.member.answers(self.sent, self.output.received)
        if first and self.output.first_token_at is not None:
            if not self.placement.before:  # else part of what was ahead may have been done by then
                self.member.prefilled(self.placement.choice.uncached, time.monotonic() - self._began)
            self.runner.prefilled(self)
            if self.attempt == 1 and self.request is not None:
                self.dispatcher.foresight.first_token(self.request, self.output.first_token_at)
        if delta.token_ids or delta.text:
            self.runner.flusher.mark(self, urgent=first)

    def _tell_cached(self) -> None:
        """How much of the prompt the engine had, which it says at the end of a whole stream, and only there."""
        placement, cached = self.placement, self.output.cached
        if cached is not None:
            self.dispatcher.prefixes.cached(self.member.id, placement.hashes, placement.expected, cached)

    # Ending

    def _success(self) -> Ending:
        output = self.output
        output.finish()
        if self.keeps_text and not output.base_chars and not output.text.strip():
            return Ending(RequestStatus.FAILED, "", "empty_reply", "The model gave an empty reply.")
        cut = output.finish_reason in ("length", "quota")
        return Ending(RequestStatus.SUCCEEDED, output.finish_reason if cut else "stop")

    async def _interrupted(self, why: Interruption) -> None:
        if why is Interruption.CANCELLED and self.request is not None:
            await self._settle(CANCELLED)
        elif why is Interruption.QUOTA:
            self.output.finish_reason = "quota"
            await self._settle(self._success())
        elif why not in (Interruption.FENCED, Interruption.HELD):
            await self._give_back(preempted=why is Interruption.PREEMPTED)
        # Fenced: whoever holds the request now does the rest. A row that is terminal is released by whoever settled it.

    async def _settle(self, ending: Ending) -> None:
        request = self.request
        if request is None:  # it never was ours
            return
        if not self.recovered:  # cut before it had taken up what earlier attempts emitted: that text must not be lost
            await self._recovered_for_certain()
        await self.runner.flusher.flush([self])
        saved = await self.runner.persister.finish(self)
        output = self.output
        request.first_token_at = request.first_token_at or output.first_token_at
        while self.interruption is not Interruption.FENCED:
            try:
                settled = await run_db(settle_claimed, request, ending, output.produced, output.cached, saved=saved)
            except (DatabaseError, InterfaceError) as error:
                log.warning("settling waits for the database", error=str(error))
                await asyncio.sleep(0.5)  # the lease is renewed meanwhile, so the text is safe here
                continue
            if settled:
                self.runner.released += await release([request])
            return

    async def _recovered_for_certain(self) -> None:
        while not self.recovered and self.interruption is not Interruption.FENCED:
            try:
                await self._recover()
            except (DatabaseError, InterfaceError) as error:
                log.warning("recovering waits for the database", error=str(error))
                await asyncio.sleep(0.5)

    async def _give_back(self, *, failed: bool = False, by_engine: bool = True, preempted: bool = False) -> None:
        """Back to the queue at the old rank, with what was emitted; ended when it failed too often."""
        blamed = failed and by_engine
        if blamed:
            self.member.failed(self.sent)  # before anything takes time: others are about to be sent there
        await self.runner.flusher.flush([self])
        await self.runner.persister.save([self])
        try:
            if blamed:
                await self.pool.suspect(self.member)
            outcome = await self.pool.scheduler.release(
                self.head.id,
                self.attempt,
                emitted=len(self.output.ids),
                failed=failed,
                preempted=preempted,
                avoid=self.member.id if blamed else "",
            )
        except (RedisError, OSError) as error:
            log.warning("not given back; its lease will run out", error=str(error))
            return
        if outcome in ENDINGS:
            if self.request is not None:
                await self._settle(ENDINGS[outcome])
            else:
                await settle_unclaimed(self.id, ENDINGS[outcome])
