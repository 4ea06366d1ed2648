"""One attempt at one request: claim it, stream it, and end it or give it back."""

import asyncio
import contextlib
import time
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING
from uuid import UUID

import structlog
from django.conf import settings
from django.db import DatabaseError, InterfaceError
from django.utils import timezone
from redis.exceptions import RedisError

from chatsite.database import run_db
from chatsite.errors import AppError
from chatsite.ids import new_id
from chatsite.redis import async_client, run_pipeline
from inference import claims, events, prompt_store, tokenization
from inference.detokenizer import Detokenizer
from inference.errors import EngineUnavailable
from inference.finishing import release, release_if_over, settle_unclaimed
from inference.models import Request, RequestStatus
from inference.owners import owner
from inference.prompt_store import StoredPrompt
from inference.redis.scheduler import Head
from inference.replicas import Member, Pool
from inference.settlement import CANCELLED, ENDINGS, Ending, Text, saved_text, settle_claimed
from inference.stopping import StopMatcher
from inference.vllm import Delta, EngineCall, EngineError, EngineRejected, EngineStream, TokenLogprob

if TYPE_CHECKING:
    from inference.runner.process import Runner

log = structlog.get_logger(__name__)


class Interruption(StrEnum):
    """Why a stream is cut from our side."""

    CANCELLED = "cancelled"  # somebody asked to stop
    FENCED = "fenced"  # another attempt has the request, or our lease may have run out
    HANDOVER = "handover"  # this process ends


class Stream:
    """The state of a running reply. Token and character positions count from the start of the owner's text."""

    def __init__(self, runner: "Runner", pool: Pool, member: Member, head: Head, attempt: int) -> None:
        self.runner, self.pool, self.member = runner, pool, member
        self.id, self.lane, self.attempt, self.input = head.id, head.lane, attempt, head.input
        self.claim = new_id()
        self.request: Request | None = None  # set once PostgreSQL has given us the claim
        self.renewed_at = time.monotonic()  # when the last renewal that succeeded was sent
        self.interruption: Interruption | None = None
        self.ids: list[int] = []  # of this request, over all attempts
        self.pieces: list[str] = []
        self.base_tokens = self.base_chars = 0
        self.chars = 0  # of `pieces`
        self.unlogged_text = ""
        self.logged_tokens = 0  # of `ids`
        self.textual = 0  # entries of text without a token of its own
        self.unsaved_text = ""
        self.saved_tokens = 0
        self.settling = False
        self.recovered = attempt == 1  # `ids` and `pieces` hold what earlier attempts emitted
        self.keeps_text = True
        self.logprobs: list[TokenLogprob | None] = []  # one for each of `ids`, where they are asked for
        self.wants_logprobs = False
        self.stopper: StopMatcher | None = None
        self.cached = 0
        self.first_token_at: datetime | None = None
        self.finish_reason = ""
        self._decoder: Detokenizer | None = None
        self._upstream: asyncio.Task[None] | None = None

    @property
    def emitted(self) -> int:
        """Tokens of the owner's text so far."""
        return self.base_tokens + len(self.ids)

    @property
    def has_unsaved(self) -> bool:
        """Whether PostgreSQL lacks tokens that it should have, should this process die."""
        return self.keeps_text and self.request is not None and not self.settling and self.saved_tokens < len(self.ids)

    @property
    def text(self) -> str:
        if len(self.pieces) > 1:
            self.pieces = ["".join(self.pieces)]
        return self.pieces[0] if self.pieces else ""

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
            await self._give_back(failed=False)
            return
        except Exception:
            log.exception("attempt failed")  # our own fault: counts as an attempt, so that it ends
            await self._give_back(failed=True)
            return
        if self.interruption is None:
            self.member.view.succeeded()
            await self._settle(self._success())
        else:
            await self._interrupted(self.interruption)

    # Generating

    async def _generate(self, prompt: StoredPrompt | None) -> None:
        if self.attempt == 1 and prompt is not None:
            await self._begin(prompt)
            return
        if not await self._claim():
            return
        if prompt is None:
            prompt = await prompt_store.restore(self._claimed)
        await self._recover()
        await self._prepare(prompt)
        if self.stopper is not None and self.stopper.matched:
            self.finish_reason = "stop"
        elif len(self.ids) >= prompt.sampling.max_tokens:
            self.finish_reason = "length"
        elif self.ids and self.ids[-1] in await tokenization.end_tokens(self.pool.model):
            self.finish_reason = "stop"  # the earlier attempt had finished, and was lost before it could settle
        elif self.ids and prompt.sampling.guided:
            raise EngineUnavailable("The engine was lost in the middle of a reply of a prescribed form. Try again.")
        else:
            await self._consume(self._deltas(prompt))

    async def _begin(self, prompt: StoredPrompt) -> None:
        """The first attempt: the upstream call starts while PostgreSQL is asked; nothing is logged before it agrees."""
        deltas = self._deltas(prompt)
        first = asyncio.create_task(_next(deltas))
        try:
            if not await self._claim():
                return
            await self._prepare(prompt)
            delta = await first
        except BaseException:
            deltas.close()
            raise
        finally:
            if self.interruption is not None:
                deltas.close()
            await _discard(first)
        if delta is not None:
            self._take(delta)
            await self._consume(deltas)
        else:
            deltas.close()

    async def _consume(self, deltas: EngineStream) -> None:
        async with contextlib.aclosing(deltas):
            if self.said_stop:  # with the first token already
                return
            async for delta in deltas:
                if self.interruption is not None:
                    return
                self._take(delta)
                if self.said_stop:
                    return

    @property
    def said_stop(self) -> bool:
        return self.stopper is not None and self.stopper.matched

    async def _prepare(self, prompt: StoredPrompt) -> None:
        """The decoder stands behind the tokens that the owner's text has: those of an earlier request end the prompt.

        The matcher of stop strings has read the same text, of which it may hold back some that no log has.
        """
        sampling = prompt.sampling
        self.wants_logprobs = sampling.logprobs is not None
        self.logprobs = [None] * len(self.ids)
        prompt_ids = events.unpack_ids(prompt.token_ids)
        before = prompt_ids[len(prompt_ids) - self.base_tokens :]
        if not sampling.stop:
            self._decoder = await tokenization.decoder(self.pool.model, before + self.ids)
            return
        self.stopper = StopMatcher(sampling.stop)
        self._decoder = await tokenization.decoder(self.pool.model, before)
        text = self._decoder.feed(self.ids) if self._decoder else self.text
        self._add_text(self.stopper.feed(text)[self.chars :])

    @property
    def _claimed(self) -> Request:
        assert self.request is not None
        return self.request

    async def _claim(self) -> bool:
        request = await run_db(claims.take, self.id, self.claim, self.attempt, self.member.row.id)
        if request is None:
            log.info("claim refused")
            self.interruption = Interruption.FENCED
            await release_if_over(self.id)
            return False
        request.model = self.pool.model
        self.base_tokens, self.base_chars = request.base_tokens, request.base_chars
        self.keeps_text = owner(request.owner_kind).keeps_text
        self.request = request
        opening = events.open_call(self.id, self.claim, self.attempt, self.base_tokens, settings.PROMPT_TTL_SECONDS)
        [opened] = await run_pipeline(async_client(), [opening])
        if isinstance(opened, Exception):
            raise opened
        if not opened:
            self.interruption = Interruption.FENCED
        elif request.cancel_requested_at is not None:
            self.interruption = Interruption.CANCELLED
        return self.interruption is None

    async def _recover(self) -> None:
        """Takes up what earlier attempts emitted: the longer of the log and what PostgreSQL saved."""
        try:
            logged = await events.read_log(async_client(), self.id)
        except (RedisError, OSError) as error:
            log.warning("token log unreadable", error=str(error))
            logged = None  # what PostgreSQL has saved is kept
        known = await run_db(saved_text, self.id, self.base_tokens, self.base_chars, None)
        whole = await run_db(saved_text, self.id, self.base_tokens, self.base_chars, logged)
        self.ids, self.pieces, self.chars = list(whole.token_ids), [whole.text], len(whole.text)
        self.cached = self._claimed.cached_tokens
        self.saved_tokens, self.unsaved_text = len(known.token_ids), whole.text[len(known.text) :]
        self.recovered = True
        in_log = logged.from_token + len(logged.token_ids) - self.base_tokens if logged else 0
        if in_log < len(self.ids):  # Redis lost it: the log begins again with everything
            self.unlogged_text, self.logged_tokens = whole.text, 0
            self.runner.flusher.mark(self)
        else:
            self.logged_tokens = len(self.ids)

    def _deltas(self, prompt: StoredPrompt) -> EngineStream:
        sampling = prompt.sampling
        done = len(self.ids)
        call = EngineCall(
            model=self.member.served_name,
            prompt_ids=events.unpack_ids(prompt.token_ids) + self.ids,
            max_tokens=sampling.max_tokens - done,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            # The same seed would repeat the draws of the first attempt: another one, derived from it.
            seed=sampling.seed if sampling.seed is None or not done else (sampling.seed + done) % 2**31,
            min_tokens=max(0, sampling.min_tokens - done),
            cache_salt=prompt.cache_salt,
            logprobs=sampling.logprobs,
            extra=sampling.extra,
        )
        return self.member.engine.stream(
            call,
            first_token_timeout=settings.FIRST_TOKEN_TIMEOUT_SECONDS,
            idle_timeout=settings.IDLE_TOKEN_TIMEOUT_SECONDS,
        )

    def _take(self, delta: Delta) -> None:
        if delta.cached_tokens is not None:  # the engine tells it last; of a reply that was cut it is not known
            self.cached = delta.cached_tokens
        if delta.token_ids or delta.text:
            first = self.first_token_at is None
            if first:
                self.first_token_at = timezone.now()
            if self.stopper is None:
                self._add_text(self._decoder.feed(delta.token_ids) if self._decoder else delta.text)
                self.ids += delta.token_ids
            else:
                self._take_until_stop(self.stopper, delta)
            if self.wants_logprobs:
                self._take_logprobs(delta)
            self.runner.flusher.mark(self, urgent=first)
        if delta.finish_reason and not self.said_stop:
            self.finish_reason = delta.finish_reason

    def _take_until_stop(self, stopper: StopMatcher, delta: Delta) -> None:
        """Token by token: those after the one that completes a stop string are not the caller's."""
        if self._decoder is None:
            self._add_text(stopper.feed(delta.text))
            self.ids += delta.token_ids
        else:
            for token_id in delta.token_ids:
                self._add_text(stopper.feed(self._decoder.feed([token_id])))
                self.ids.append(token_id)
                if stopper.matched:
                    break
        if stopper.matched:
            self.finish_reason = "stop"

    def _take_logprobs(self, delta: Delta) -> None:
        """One for each token: an engine that sends too few leaves the rest unknown."""
        missing = len(self.ids) - len(self.logprobs)
        self.logprobs += [*delta.logprobs, *[None] * missing][:missing]

    def _add_text(self, text: str) -> None:
        if text:
            self.pieces.append(text)
            self.chars += len(text)
            self.unlogged_text += text
            self.unsaved_text += text

    # Ending

    def _success(self) -> Ending:
        if self.finish_reason != "length" and self._decoder is not None:
            # After a cut (length, stop) a half character is left for Continue, which completes it.
            rest = self._decoder.flush()
            self._add_text(rest if self.stopper is None else self.stopper.feed(rest))
        if self.stopper is not None:
            self._add_text(self.stopper.flush())
        if self.keeps_text and not self.base_chars and not self.text.strip():
            return Ending(RequestStatus.FAILED, "", "empty_reply", "The model gave an empty reply.")
        return Ending(RequestStatus.SUCCEEDED, "length" if self.finish_reason == "length" else "stop")

    async def _interrupted(self, why: Interruption) -> None:
        if why is Interruption.CANCELLED and self.request is not None:
            await self._settle(CANCELLED)
        elif why is not Interruption.FENCED:
            await self._give_back(failed=False)
        # Fenced: whoever holds the request now does the rest. A row that is terminal is released by whoever settled it.

    async def _settle(self, ending: Ending) -> None:
        request = self.request
        if request is None:  # it never was ours
            return
        if not self.recovered:  # cut before it had taken up what earlier attempts emitted: that text must not be lost
            await self._recovered_for_certain()
        await self.runner.flusher.flush([self])
        saved = await self.runner.persister.finish(self)
        produced = Text(self.ids, self.text)
        request.first_token_at = request.first_token_at or self.first_token_at
        while self.interruption is not Interruption.FENCED:
            try:
                settled = await run_db(settle_claimed, request, ending, produced, self.cached, saved=saved)
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

    async def _give_back(self, *, failed: bool) -> None:
        """Back to the queue at the old rank, with what was emitted; ended when it failed too often."""
        await self.runner.flusher.flush([self])
        await self.runner.persister.save([self])
        replica = self.member.row.id if failed else None
        try:
            if failed:
                await self.pool.suspect(self.member)
            outcome = await self.pool.scheduler.release(
                self.id,
                self.attempt,
                emitted=self.emitted,
                failed=failed,
                avoid=replica,
                max_attempts=settings.MAX_ATTEMPTS,
                wait_seconds=settings.FAILOVER_WAIT_SECONDS,
            )
        except (RedisError, OSError) as error:
            log.warning("not given back; its lease will run out", error=str(error))
            return
        if outcome in ENDINGS:
            if self.request is not None:
                await self._settle(ENDINGS[outcome])
            else:
                await settle_unclaimed(self.id, ENDINGS[outcome])

    # After Redis lost its data

    async def reopen(self, runner_id: UUID) -> bool:
        """Enters lease and log again from memory; False when PostgreSQL gives the request to somebody else."""
        if self.request is None:
            return True  # not ours yet: the claim decides
        held = await run_db(claims.held, self.id, self.claim)
        if held is None:
            return False
        if held.cancel_requested_at is not None:  # the flag was lost with the rest
            self.interrupt(Interruption.CANCELLED)
        request = self.request
        opened = await self.pool.scheduler.reopen(
            self.id,
            lane=self.lane,
            tenant=request.organization_id,
            attempt=self.attempt,
            emitted=self.emitted,
            replica=self.member.row.id,
            runner=runner_id,
            lease_seconds=settings.LEASE_SECONDS,
            deadline_ms=int(request.deadline.timestamp() * 1000),
            tokens=self.input,
        )
        if not opened:
            return False
        opening = events.open_call(self.id, self.claim, self.attempt, self.base_tokens, settings.PROMPT_TTL_SECONDS)
        [result] = await run_pipeline(async_client(), [opening])
        if result != 1:
            return False
        self.unlogged_text, self.logged_tokens = self.text, 0
        self.runner.flusher.mark(self, urgent=True)
        return True


async def _next(deltas: EngineStream) -> Delta | None:
    return await anext(deltas, None)


async def _discard(task: asyncio.Task[Delta | None]) -> None:
    """Ends a task whose result nobody wants any more; one that is done is left as it is."""
    if not task.done():
        task.cancel()
        await asyncio.wait([task])
    if not task.cancelled():
        task.exception()  # retrieved: the caller has its own reason to stop, or has seen it already
