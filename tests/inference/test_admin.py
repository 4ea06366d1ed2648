"""Requests, models and replicas in the admin."""

import time
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from redis.exceptions import ConnectionError as RedisConnectionError

from chatsite.redis import sync_client
from inference.models import Model, Replica
from inference.redis import keys
from tests.admin_rows import Rows, grant, make_model, make_request, make_rows, signed_in
from tests.conftest import Person

pytestmark = pytest.mark.django_db


@pytest.fixture
def staff(make_person: Any) -> Client:
    return signed_in(make_person("root@example.com", superuser=True).user)


@pytest.fixture
def rows(person: Person) -> Rows:
    return make_rows(person, make_model())


def page_of(staff: Client, name: str, key: object) -> str:
    page = staff.get(reverse(f"admin:{name}_change", args=[key]))
    assert page.status_code == 200
    return str(page.content.decode())


def test_a_request_shows_its_course_and_its_cost(staff: Client, rows: Rows) -> None:
    html = page_of(staff, "inference_request", rows.request.pk)
    for step in ("Accepted and queued", "Claimed by a replica", "First token", "Done", "Released by queue and quota"):
        assert step in html
    for value in ("Paid", "812", "640", "245", "max tokens <b>1024</b>", "69.7 tokens a second"):
        assert value in html, value
    cost = (172 * Decimal("0.1") + 640 * Decimal("0.01") + 245 * Decimal("0.4")) / 1_000_000
    assert f"{cost.normalize():f} USD" in html
    assert rows.request.cache_salt not in html


def test_a_request_leads_to_all_that_belongs_to_it(staff: Client, rows: Rows) -> None:
    html = page_of(staff, "inference_request", rows.request.pk)
    for name in ("accounts_user", "accounts_organization", "accounts_apikey", "inference_replica",
                 "conversations_message", "conversations_conversation"):  # fmt: skip
        assert reverse(f"admin:{name}_change", args=[dict(rows.pages())[name]]) in html, name
    ledger = f"{reverse('admin:quotas_ledgerentry_changelist')}?q=req_{rows.request.pk}"
    assert ledger in html
    assert len(staff.get(ledger).context["cl"].result_list) == 1


def test_a_request_that_runs_is_not_settled(staff: Client, rows: Rows) -> None:
    changes = {"status": "running", "finished_at": None, "released_at": None, "api_key_id": None}
    html = page_of(staff, "inference_request", make_request(rows.person, rows.model, **changes).pk)
    assert "not yet settled" in html
    assert "so far" in html
    assert "which is gone" in html  # its message


def test_a_request_that_failed_says_why(staff: Client, rows: Rows) -> None:
    changes = {"status": "failed", "error_code": "engine_unavailable", "error_message": "No engine could finish this."}
    html = page_of(staff, "inference_request", make_request(rows.person, rows.model, **changes).pk)
    assert "engine_unavailable" in html
    assert "No engine could finish this." in html


@pytest.mark.parametrize("name", ["inference_request", "inference_model", "inference_replica"])
def test_they_are_to_look_at(staff: Client, rows: Rows, name: str) -> None:
    key = dict(rows.pages())[name]
    assert staff.post(reverse(f"admin:{name}_change", args=[key]), {"status": "failed"}).status_code == 403
    assert staff.post(reverse(f"admin:{name}_delete", args=[key]), {"post": "yes"}).status_code == 403
    assert staff.get(reverse(f"admin:{name}_add")).status_code == 403


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ({"status__exact": "succeeded"}, 1), ({"status__exact": "failed"}, 1), ({"lane__exact": "free"}, 0),
        ({"model__name__exact": "small"}, 2), ({"made": "hour"}, 2), ({"made": "month", "status__exact": "failed"}, 1),
    ],
)  # fmt: skip
def test_requests_by_status_lane_model_and_age(staff: Client, rows: Rows, query: dict[str, str], count: int) -> None:
    make_request(rows.person, rows.model, status="failed")
    assert len(staff.get(reverse("admin:inference_request_changelist"), query).context["cl"].result_list) == count


def publish(replica: Replica, state: str) -> None:
    place = keys.replica(keys.scheduler(replica.model_id), replica.id)
    sync_client().hset(place, mapping={"state": state, "seen": int(time.time() * 1000)})


@pytest.mark.parametrize("state", ["ready", "loading", "down"])
def test_how_replicas_do_now(staff: Client, rows: Rows, state: str) -> None:
    address = reverse("admin:inference_replica_changelist")
    assert ">unknown<" in staff.get(address).content.decode()
    publish(rows.replica, state)
    assert f">{state}<" in staff.get(address).content.decode()
    assert f">{state}<" in page_of(staff, "inference_replica", rows.replica.pk)
    assert f">{state}<" in staff.get(reverse("admin:index")).content.decode()


def test_without_redis_the_pages_open_and_say_unknown(staff: Client, rows: Rows, monkeypatch: Any) -> None:
    def away(*_args: Any) -> Any:
        raise RedisConnectionError

    monkeypatch.setattr("inference.overview.sync_client", away)
    assert ">unknown<" in staff.get(reverse("admin:inference_replica_changelist")).content.decode()
    assert ">unknown<" in page_of(staff, "inference_replica", rows.replica.pk)
    assert "Redis does not answer" in staff.get(reverse("admin:index")).content.decode()


def test_a_list_of_replicas_asks_redis_once(staff: Client, rows: Rows, monkeypatch: Any) -> None:
    from inference import admin

    for number in range(5):
        Replica.objects.create(model=rows.model, url=f"http://127.0.0.1:82{number}")
    asked = []
    real = admin._states
    monkeypatch.setattr(admin, "_states", lambda replicas: asked.append(len(replicas)) or real(replicas))
    staff.get(reverse("admin:inference_replica_changelist"))
    assert asked == [6]


def test_the_front_page_is_cheap_and_tells_what_failed(
    staff: Client, rows: Rows, django_assert_max_num_queries: Any
) -> None:
    failed = make_request(rows.person, rows.model, status="failed", error_code="engine_unavailable")
    staff.get(reverse("admin:index"))
    with django_assert_max_num_queries(9):
        html = staff.get(reverse("admin:index")).content.decode()
    assert reverse("admin:inference_request_change", args=[failed.pk]) in html
    assert "engine_unavailable" in html
    assert "0 of 1 replica ready" in html


def test_the_front_page_shows_no_more_than_somebody_may_see(rows: Rows, stranger: Person) -> None:
    html = signed_in(grant(stranger.user)).get(reverse("admin:index")).content.decode()
    assert "Requests in the past" not in html
    assert "replica" not in html


def test_models_show_what_they_cost_and_who_may_use_them(staff: Client, rows: Rows) -> None:
    Model.objects.update(price_input=Decimal("0.100000"))
    html = staff.get(reverse("admin:inference_model_changelist")).content.decode()
    assert "0.1<" in html
    assert "free, paid, enterprise" in html
