"""What a runner does with its streams after Redis lost its data."""

from uuid import UUID

from chatsite.database import run_db
from chatsite.redis import async_client, run_pipeline
from inference import claims
from inference.runner.stream import Interruption, Stream


async def reopen(stream: Stream, runner_id: UUID) -> bool:
    """Enters lease and log again from memory; False when PostgreSQL gives the request to somebody else."""
    if stream.request is None:
        return True  # not ours yet: the claim decides
    held = await run_db(claims.held, stream.id, stream.claim)
    if held is None:
        return False
    if held.cancel_requested_at is not None:  # the flag was lost with the rest
        stream.interrupt(Interruption.CANCELLED)
    head, scheduler = stream.head, stream.pool.scheduler
    call = scheduler.reopen_call(
        head.id,
        head.lane,
        head.tenant,
        attempt=stream.attempt,
        replica=stream.member.id,
        runner=str(runner_id),
        input=head.input,
        kv=head.kv,
        emitted=len(stream.output.ids),
        uncached=0 if stream.output.first_token_at else stream.placement.choice.uncached,
        deadline=head.deadline,
        rank=head.rank,
        weight=stream.request.weight,
    )
    if not await scheduler.run(call):
        return False
    flusher = stream.runner.flusher
    async with flusher.lock:  # an entry that comes before the beginning would be a gap to readers
        [result] = await run_pipeline(async_client(), [stream.opening])
        if result != 1:
            return False
        stream.opened = True
        stream.output.log_anew()
    flusher.mark(stream, urgent=True)
    return True
