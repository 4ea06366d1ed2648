"""Sessions in the database and the cache that stay ended.

With Django's own store a request that runs while its session is ended may put it back into the cache, from a row that
it has read or written just before; it would then let somebody in for two weeks, in no list. Here an ended session is
cached as such, a session that was read is cached only where nothing is, and one that is saved is cached while its row
is locked. As the row and the cache change in one transaction, neither does while the cache is away.
"""

from collections.abc import Callable
from typing import Any, Final

from asgiref.sync import sync_to_async
from django.contrib.sessions.backends import cached_db, db
from django.core.cache.backends.base import BaseCache
from django.db import transaction

ENDED: Final = {"_ended": True}  # to a process of Django's own store it is a session of nobody
ENDED_SECONDS: Final = 600  # longer than a request may take to cache what it has read


class SessionStore(cached_db.SessionStore):
    _cache: BaseCache
    _get_session_from_db: Callable[[], Any]

    def load(self) -> dict[str, Any]:
        """Empty, and without a key, for a session that has ended or never was."""
        data: dict[str, Any] | None = self._cache.get(self.cache_key)
        if data is None and (row := self._get_session_from_db()):
            data = self.decode(row.session_data)
            self._cache.add(self.cache_key, data, self.get_expiry_age(expiry=row.expire_date))
        if data is None or data == ENDED:
            self._session_key = None
            return {}
        return data

    def exists(self, session_key: str) -> bool:
        return bool(db.SessionStore.exists(self, session_key))

    def save(self, must_create: bool = False) -> None:
        """Raises UpdateError when the session has ended meanwhile."""
        with transaction.atomic():
            super().save(must_create)

    def delete(self, session_key: str | None = None) -> None:
        key = session_key or self.session_key
        if key is None:
            return
        with transaction.atomic():
            db.SessionStore.delete(self, key)  # waits for who is saving it
            self._cache.set(f"{self.cache_key_prefix}{key}", ENDED, ENDED_SECONDS)

    async def aload(self) -> dict[str, Any]:
        return await sync_to_async(self.load)()

    async def aexists(self, session_key: str) -> bool:
        return await sync_to_async(self.exists)(session_key)

    async def asave(self, must_create: bool = False) -> None:
        await sync_to_async(self.save)(must_create)

    async def adelete(self, session_key: str | None = None) -> None:
        await sync_to_async(self.delete)(session_key)
