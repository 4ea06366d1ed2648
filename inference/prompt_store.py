"""Prompts of open requests: in Redis, and made again from their owner when Redis lost them."""

from uuid import UUID

import msgspec
from django.conf import settings

from chatsite.database import run_db
from chatsite.redis import Put, async_client
from inference import tokenization
from inference.errors import EngineUnavailable
from inference.events import pack_ids
from inference.models import Model, Request
from inference.owners import owner
from inference.protocol import Prepared, Sampling
from inference.redis import keys


class StoredPrompt(msgspec.Struct, array_like=True):
    """What a runner needs beside the request's row. `token_ids` packed, see events.pack_ids."""

    token_ids: bytes
    sampling: Sampling
    cache_salt: str
    owner_kind: str = ""  # "": not known


_encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(StoredPrompt).decode


def put(request_id: UUID, prepared: Prepared, owner_kind: str) -> Put:
    """To be sent ahead of the call that enqueues the request."""
    stored = StoredPrompt(pack_ids(prepared.token_ids), prepared.sampling, prepared.cache_salt, owner_kind)
    return Put(keys.prompt(request_id), _encode(stored), settings.PROMPT_TTL_SECONDS)


async def exists(request: Request) -> bool:
    """Whether it is stored, or could be made again. Raises redis errors."""
    if await async_client().exists(keys.prompt(request.id)):
        return True
    return await run_db(owner(request.owner_kind).prompt, request.owner_id, request.id) is not None


async def restore(request: Request) -> StoredPrompt:
    """Builds the prompt again. Raises EngineUnavailable when the owner is gone or keeps no text, PromptError kinds."""
    source = await run_db(owner(request.owner_kind).prompt, request.owner_id, request.id)
    if source is None:
        raise EngineUnavailable("The prompt of this reply was lost and could not be made again.")
    model = await run_db(Model.objects.get, name=request.model_id)
    token_ids = await tokenization.encode(model, source.turns) + source.prefix_ids
    return StoredPrompt(pack_ids(token_ids), Sampling(**request.sampling), request.cache_salt)
