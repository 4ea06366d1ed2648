"""What was there before a migration is as good afterwards."""

import importlib
from datetime import timedelta
from typing import Any

import pytest
from django.apps import apps
from django.db import connection
from django.utils import timezone

from chatsite.ids import new_id
from inference.models import Model, Request, SchedulerTuning
from inference.scheduling.settings import SchedulerSettings
from tests.conftest import Person
from tests.inference.runner.conftest import model

__all__ = ["model"]
forget = importlib.import_module("inference.migrations.0007_texts_of_ended_calls").FORGET
forget_corrections = importlib.import_module("inference.migrations.0013_corrections_by_size").forget
WRITTEN = {"stop": ["a secret"], "extra": {"top_k": 5, "logit_bias": {"1": 1}, "response_format": {"a": "secret"}}}


@pytest.mark.parametrize(
    ("status", "before", "after"),
    [
        ("succeeded", WRITTEN, {"stop": [], "extra": {"top_k": 5}}),
        ("expired", {"stop": ["a secret"], "extra": {}}, {"stop": [], "extra": {}}),
        ("failed", {"stop": [], "extra": {"logit_bias": {}}}, {"stop": [], "extra": {}}),
        ("cancelled", {"temperature": 0.5}, {"temperature": 0.5}),
        ("shed", {"stop": ["a secret"]}, {"stop": []}),
        ("queued", WRITTEN, WRITTEN),
        ("running", WRITTEN, WRITTEN),
    ],
)
def test_texts_of_ended_calls_are_forgotten(
    person: Person, model: Model, status: str, before: dict[str, Any], after: dict[str, Any]
) -> None:
    request = Request.objects.create(
        organization=person.organization,
        user_id=person.user.pk,
        model=model,
        lane="paid",
        owner_kind="completion",
        owner_id=new_id(),
        status=status,
        sampling={"max_tokens": 9, **before},
        prompt_tokens=5,
        deadline=timezone.now() + timedelta(seconds=30),
    )
    for _ in range(2):
        with connection.cursor() as cursor:
            cursor.execute(forget)
        request.refresh_from_db()
        assert request.sampling == {"max_tokens": 9, **after}


def test_settings_that_are_no_more_do_not_have_the_others_refused(database: None) -> None:
    row = SchedulerTuning.objects.create(
        values={"prediction": {"correction_alpha": 0.1, "samples": 50}, "admission": {"queue_cap": 7}}
    )
    for _ in range(2):
        forget_corrections(apps, None)
    row.refresh_from_db()
    assert row.values == {"prediction": {"samples": 50}, "admission": {"queue_cap": 7}}
    assert SchedulerSettings.from_dict(row.values).admission.queue_cap == 7
