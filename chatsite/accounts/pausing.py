"""Keys that are paused when they spend far more than usual, by their owner's choice, and go on when they say so."""

from uuid import UUID

from django.db import transaction
from django.utils import timezone

from chatsite.accounts import audit, keys
from chatsite.accounts.models import ApiKey, KeyEvent, User
from chatsite.accounts.protocol import Actor
from chatsite.errors import NotFound

PAUSED = "paused"
CHOICE = "paused when it spends ten times what is usual"


@transaction.atomic
def pause(chain_id: UUID, by: Actor, why: str) -> bool:
    """All keys of the chain are refused from now on. False where none of them works, or all are paused already."""
    found = ApiKey.objects.select_for_update().filter(chain_id=chain_id, revoked_at=None, paused_at=None)
    paused = list(found)
    for key in paused:
        key.paused_at = timezone.now()
        key.save(update_fields=["paused_at"])
        audit.record(key, KeyEvent.Kind.CHANGED, by, {PAUSED: ("no", why)})
    keys.forget(ApiKey.objects.filter(chain_id=chain_id))
    return bool(paused)


@transaction.atomic
def resume(user: User, key_id: UUID, by: Actor) -> ApiKey:
    """The key works again, and those that it has replaced, too. Idempotent. Raises NotFound."""
    key = _own(user, key_id)
    for each in ApiKey.objects.select_for_update().filter(chain_id=key.chain_id, paused_at__isnull=False):
        each.paused_at = None
        each.save(update_fields=["paused_at"])
        audit.record(each, KeyEvent.Kind.CHANGED, by, {PAUSED: ("yes", "no")})
    keys.forget(ApiKey.objects.filter(chain_id=key.chain_id))
    return key


@transaction.atomic
def choose(user: User, key_id: UUID, by: Actor, *, pauses: bool) -> ApiKey:
    """Whether the key, and those that replace it, are paused when they spend far more than usual. Raises NotFound."""
    key = _own(user, key_id)
    if key.pause_when_unusual != pauses:
        ApiKey.objects.filter(chain_id=key.chain_id).update(pause_when_unusual=pauses)
        words = ("yes", "no") if key.pause_when_unusual else ("no", "yes")
        audit.record(key, KeyEvent.Kind.CHANGED, by, {CHOICE: words})
    return key


def _own(user: User, key_id: UUID) -> ApiKey:
    found = ApiKey.objects.select_for_update().filter(pk=key_id, user=user).first()
    if found is None:
        raise NotFound
    return found
