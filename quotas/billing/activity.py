"""Which organizations have used something lately: a look at the newest rows of the ledger, not at everybody."""

from datetime import timedelta
from typing import Final
from uuid import UUID

from django.db import transaction
from django.db.models import Max
from django.utils import timezone

from chatsite.ids import first_id
from quotas.billing.models import LedgerPlace
from quotas.models import Budget, LedgerEntry

LOOKED_BACK: Final = timedelta(days=31)  # of requests: older ones are corrected, which sets off no alert
SLACK: Final = timedelta(minutes=2)


class Activity:
    """Organizations with new rows in the ledger, or with a budget that was changed, since a task last asked.

    Call `done` when all of them were seen to; otherwise they are named again.
    """

    def __init__(self, task: str) -> None:
        self._place, _ = LedgerPlace.objects.get_or_create(task=task)
        self._begun = timezone.now()
        self._newest = LedgerEntry.objects.aggregate(newest=Max("id"))["newest"] or 0
        rows = LedgerEntry.objects.filter(id__gt=self._place.before, id__lte=self._newest)
        rows = rows.filter(request_id__gte=first_id(self._begun - LOOKED_BACK))
        changed = Budget.objects.filter(changed_at__gte=self._place.at - SLACK)
        self.organizations: set[UUID] = {
            *rows.values_list("organization_id", flat=True).distinct(),
            *changed.values_list("organization_id", flat=True),
        }

    @transaction.atomic
    def done(self) -> None:
        place = LedgerPlace.objects.select_for_update().get(task=self._place.task)
        if place.at > self._begun:  # another worker has looked later
            return
        place.before, place.last, place.at = min(place.last, self._newest), self._newest, self._begun
        place.save()
