"""Where a user is signed in: the list of it, and ending sessions.

A session counts where Django keeps it; allauth's UserSession says from which device it came. When it was last seen is
written every few minutes, by whoever looks at the session anyway, and not by a middleware on each request.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from importlib import import_module
from typing import Any, Final
from uuid import UUID

from allauth.usersessions.models import UserSession
from django.conf import settings
from django.contrib.auth import HASH_SESSION_KEY
from django.contrib.sessions.models import Session
from django.db import transaction
from django.utils import timezone
from django.utils.crypto import constant_time_compare

from chatsite import notices
from chatsite.accounts.devices import device_name
from chatsite.accounts.models import User
from chatsite.caching import ShortCache

SEEN_SECONDS: Final = 300.0  # what a session's last-seen time may be off
LISTED: Final = 100
seen_lately: ShortCache[str, bool] = ShortCache(SEEN_SECONDS)


@dataclass(frozen=True)
class Place:
    """One session, as the account page lists it."""

    id: int
    device: str
    ip: str
    signed_in: datetime
    last_seen: datetime
    current: bool


def places(user: User, current_key: str) -> list[Place]:
    """The user's live sessions: this one first, then by when they were last seen."""
    rows = list(UserSession.objects.filter(user=user).order_by("-last_seen_at")[:LISTED])
    alive = _alive(user, [row.session_key for row in rows])
    found = [
        Place(
            id=row.pk,
            device=device_name(row.user_agent),
            ip=row.ip,
            signed_in=row.created_at,
            last_seen=row.last_seen_at,
            current=row.session_key == current_key,
        )
        for row in rows
        if row.session_key in alive
    ]
    return sorted(found, key=lambda place: not place.current)


def _alive(user: User, keys: Iterable[str]) -> set[str]:
    """Which of these sessions still let somebody in: not expired, and from after the last change of the password."""
    rows = Session.objects.filter(session_key__in=list(keys), expire_date__gt=timezone.now())
    valid = [user.get_session_auth_hash(), *user.get_session_auth_fallback_hash()]
    alive = set()
    for row in rows:
        kept = str(row.get_decoded().get(HASH_SESSION_KEY, ""))
        if any(constant_time_compare(kept, each) for each in valid):
            alive.add(row.session_key)
    return alive


def end(user: User, session_id: int, current_key: str) -> bool:
    """Ends one other session of the user. False when there is none such (any more)."""
    return bool(_end(user, UserSession.objects.filter(user=user, pk=session_id).exclude(session_key=current_key)))


def end_others(user: User, current_key: str) -> int:
    """Ends all sessions of the user but this one; returns how many."""
    return _end(user, UserSession.objects.filter(user=user).exclude(session_key=current_key))


def end_all(user: User) -> int:
    """Ends every session of the user; returns how many."""
    return _end(user, UserSession.objects.filter(user=user))


@transaction.atomic
def _end(user: User, rows: Any) -> int:
    """In one transaction: where the cache cannot be told, the row stays too, or the cached session would live on."""
    ended = list(rows.order_by("pk"))  # locked in one order, so that two who end each other's do not wait in a ring
    store = import_module(settings.SESSION_ENGINE).SessionStore()
    for row in ended:
        store.delete(row.session_key)
        row.delete()
    announce(user.pk)
    return len(ended)


def forget(session_key: str) -> None:
    """The session has ended by itself."""
    UserSession.objects.filter(session_key=session_key).delete()


def announce(user_id: UUID) -> None:
    """Tells the user's pages, after the commit, to look whether their session still holds."""
    transaction.on_commit(partial(notices.announce_sync, user_id, notices.SESSIONS))


def note_seen(session_key: str) -> None:
    """Somebody is here with this session. Costs a write every few minutes and process, else nothing."""
    if seen_lately.get(session_key):
        return
    seen_lately.put(session_key, True)
    now = timezone.now()
    stale = now - timedelta(seconds=SEEN_SECONDS)
    UserSession.objects.filter(session_key=session_key, last_seen_at__lt=stale).update(last_seen_at=now)
