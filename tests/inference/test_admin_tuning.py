"""The scheduler's settings in the admin."""

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.http import HttpResponse
from django.test import Client
from django.urls import reverse

from inference import tuning
from inference.models import SchedulerTuning
from inference.redis import rules
from inference.scheduling.settings import LANES, SchedulerSettings
from inference.tuning_changes import SETTINGS, flat, nested
from inference.tuning_forms import TuningForm
from inference.tuning_texts import LANE, OTHERS, SECTIONS, text_of
from tests.admin_rows import grant, signed_in
from tests.conftest import Person
from tests.tuning import tune

pytestmark = pytest.mark.django_db
PAGE = "/admin/inference/schedulertuning/"
DEFAULTS = {path: each.default for path, each in SETTINGS.items()}


@pytest.fixture
def root(make_person: Any) -> Any:
    return make_person("root@example.com", superuser=True).user


@pytest.fixture
def staff(root: Any) -> Client:
    return signed_in(root)


def filled(page: HttpResponse) -> dict[str, Any]:
    """What a browser would send of the page as it is."""
    form: TuningForm = page.context["form"]  # type: ignore[attr-defined]
    values = {name: form[name].value() for name in form.fields}
    sent = {name: "" if value is None else value for name, value in values.items() if value is not False}
    return {**sent, "version": page.context["version"]}  # type: ignore[attr-defined]


def save(client: Client, **changes: Any) -> HttpResponse:
    """`__` stands for the dots of a setting's name."""
    given = {name.replace("__", "."): value for name, value in changes.items()}
    return client.post(PAGE, {**filled(client.get(PAGE)), **given})


def stored() -> dict[str, Any] | None:
    row = SchedulerTuning.objects.first()
    return row.values if row else None


def refused(answer: HttpResponse) -> dict[str, list[str]]:
    """Messages by field. Nothing may be stored."""
    assert answer.status_code == 400
    assert stored() is None
    assert not LogEntry.objects.exists()
    return {name: list(messages) for name, messages in answer.context["form"].errors.items()}  # type: ignore[attr-defined]


def test_every_setting_has_a_text_and_the_other_way_round() -> None:
    assert all(text_of(path).meaning for path in SETTINGS)
    lanes = {each.name for each in SETTINGS.values() if each.lane}
    assert (set(LANE), set(OTHERS)) == (lanes, {path for path, each in SETTINGS.items() if not each.lane})
    assert list(SECTIONS) == list(SchedulerSettings().to_dict())


def test_settings_one_by_one_are_the_settings() -> None:
    assert SchedulerSettings.from_dict(nested(DEFAULTS)) == SchedulerSettings()
    assert flat(SchedulerSettings().to_dict()) == DEFAULTS


def test_the_page_shows_every_default(staff: Client) -> None:
    page = staff.get(PAGE)
    html = page.content.decode()
    assert f"All {len(SETTINGS)} settings are as by default" in " ".join(html.split())
    assert filled(page)["lease.lease_seconds"] == "7"
    assert filled(page)["ejection.most_share"] == repr(1 / 3)
    assert filled(page)["lanes.batch.objective_seconds"] == ""
    assert "lanes.batch.preempted_after_first_token" in filled(page)
    assert "lanes.batch.preempts" not in filled(page)
    assert "A request whose lease is not renewed for so long is taken back. 0.1 to 3,600 s, default 7." in html
    for path in SETTINGS:
        assert f'name="{path}"' in html, path


def test_the_page_as_it_is_changes_nothing(staff: Client) -> None:
    assert save(staff).status_code == 302
    assert "No setting has changed." in staff.get(PAGE).content.decode()
    assert stored() is None
    assert not LogEntry.objects.exists()


def test_a_change_is_stored_as_the_difference_and_taken_up(staff: Client) -> None:
    answer = save(staff, lease__lease_seconds="9.5", lanes__free__timeout_seconds="", order__aging_ms="100")
    assert answer["Location"] == PAGE
    assert stored() == {
        "lanes": {"free": {"timeout_seconds": None}},
        "lease": {"lease_seconds": 9.5},
        "order": {"aging_ms": 100},
    }
    tuning.refresh()
    assert rules.settings() == SchedulerSettings.from_dict(stored() or {})
    assert rules.settings().lease.lease_seconds == 9.5
    html = staff.get(PAGE).content.decode()
    row = SchedulerTuning.objects.get()
    assert "3 settings have changed. Every process takes this up within 5 seconds." in html
    assert f"<b>3 of {len(SETTINGS)}</b> settings differ" in html
    assert f"{row.changed_at:%Y-%m-%d %H:%M:%S} UTC" in html
    assert html.count(">changed</span>") == 3


def test_what_is_set_to_its_default_again_is_not_stored(staff: Client) -> None:
    tune(lease={"lease_seconds": 9.0, "max_attempts": 4}, lanes={"free": {"weight": 20.0}})
    save(staff, lease__lease_seconds="7.0", lanes__free__weight="15")
    assert stored() == {"lease": {"max_attempts": 4}}


def test_switches_are_switched(staff: Client) -> None:
    tune(lanes={"free": {"preempts": True}})
    page = filled(staff.get(PAGE))
    page.pop("lanes.free.preempts")
    page["lanes.batch.preempts"] = "on"
    assert staff.post(PAGE, page).status_code == 302
    assert stored() == {"lanes": {"batch": {"preempts": True}}}


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        ("lease.lease_seconds", "0.01", "Must be within 0.1 and 3,600."),
        ("lease.max_attempts", "101", "Must be within 1 and 100."),
        ("lanes.free.weight", "10000000", "Must be within 0.001 and 1,000,000."),
        ("lanes.paid.timeout_seconds", "-1", "Must be within 0.1 and 604,800."),
        ("lease.lease_seconds", "long", "Enter a number."),
        ("lease.lease_seconds", "nan", "Enter a number."),
        ("lease.lease_seconds", "1e999", "Enter a number."),
        ("lease.lease_seconds", "\0", "Enter a number."),
        ("lease.lease_seconds", "", "Enter a number."),
        ("lease.max_attempts", "2.5", "Enter a whole number."),
        ("lease.max_attempts", "9" * 5000, "Enter a whole number."),
        ("lanes.free.timeout_seconds", "none", "Enter a number."),
    ],
)
def test_what_is_wrong_is_said_at_the_field(staff: Client, path: str, text: str, message: str) -> None:
    answer = staff.post(PAGE, {**filled(staff.get(PAGE)), path: text})
    assert refused(answer) == {path: [message]}
    html = answer.content.decode()
    assert f'<p class="error" id="id_{path}_error">{message}</p>' in html
    assert f'href="#id_{path}"' in html
    tuning.refresh()
    assert rules.settings() == SchedulerSettings()


def test_contradictions_are_said_at_each_field_that_takes_part(staff: Client) -> None:
    message = "Abort seconds and heartbeat seconds together must not exceed lease seconds."
    names = ["lease.abort_seconds", "lease.heartbeat_seconds", "lease.lease_seconds"]
    assert refused(save(staff, lease__abort_seconds="6.5")) == {name: [message] for name in names}
    message = "KV low must not exceed KV high."
    expected = {"replica.kv_low": [message], "replica.kv_high": [message]}
    assert refused(save(staff, replica__kv_high="0.4")) == expected


def test_all_that_is_wrong_is_said_at_once_and_kept_in_the_fields(staff: Client) -> None:
    answer = save(staff, lease__abort_seconds="6.5", cost__cached="11", order__quantum="x")
    wrong = {"lease.abort_seconds", "lease.heartbeat_seconds", "lease.lease_seconds", "cost.cached", "order.quantum"}
    assert set(refused(answer)) == wrong
    html = answer.content.decode()
    assert "Nothing was saved: 5 fields to correct" in html
    assert 'value="6.5"' in html
    assert 'value="x"' in html


def test_an_empty_form_changes_nothing(staff: Client) -> None:
    assert "lease.lease_seconds" in refused(staff.post(PAGE, {}))


def test_somebody_elses_change_is_not_overwritten(staff: Client) -> None:
    for present in ({}, {"lease": {"max_attempts": 4}}):
        SchedulerTuning.objects.all().delete()
        if present:
            tune(**present)
        mine = filled(staff.get(PAGE))
        tune(lease={"max_attempts": 5})
        answer = staff.post(PAGE, {**mine, "lease.reap_limit": "7"})
        assert answer.status_code == 400
        assert "Somebody else has changed the settings" in answer.content.decode()
        assert 'value="7"' in answer.content.decode()
        assert stored() == {"lease": {"max_attempts": 5}}


def test_back_to_the_defaults_once_that_is_confirmed(staff: Client) -> None:
    tune(lease={"lease_seconds": 9.0}, lanes={"batch": {"timeout_seconds": 5.0}})
    asked = staff.get(f"{PAGE}reset/").content.decode()
    assert "Go back to the defaults?" in asked
    assert "Batch, timeout seconds" in asked
    assert stored() == {"lease": {"lease_seconds": 9.0}, "lanes": {"batch": {"timeout_seconds": 5.0}}}
    assert staff.post(f"{PAGE}reset/")["Location"] == PAGE
    assert stored() == {}
    lines = LogEntry.objects.get().change_message.splitlines()
    assert lines == ["Reset to the defaults.", "Batch, timeout seconds: 5 → none", "Lease, lease seconds: 9 → 7"]
    assert "All settings are as by default" in staff.get(f"{PAGE}reset/").content.decode()


def test_the_history_names_who_and_both_values(staff: Client, root: Any) -> None:
    history = reverse("admin:inference_schedulertuning_history", args=[1])
    assert staff.get(history).status_code == 200
    save(staff, lease__lease_seconds="9", lanes__free__preempts="on")
    html = staff.get(history).content.decode()
    assert "Free, preempts: no → yes<br>Lease, lease seconds: 7 → 9" in html
    assert root.get_username() in html
    entry = LogEntry.objects.get()
    save(staff, lease__lease_seconds="8")
    html = staff.get(history).content.decode()
    assert html.index("lease seconds: 9 → 8") < html.index("lease seconds: 7 → 9")
    assert (entry.user_id, entry.object_id, entry.object_repr) == (root.pk, "1", "Scheduler settings")
    assert staff.get(entry.get_admin_url())["Location"] == PAGE


def test_only_who_may(person: Person, stranger: Person) -> None:
    outsider = signed_in(grant(stranger.user, "inference.view_replica"))
    pages = [PAGE, f"{PAGE}reset/", f"{PAGE}1/history/"]
    assert [outsider.get(page).status_code for page in pages] == [403, 403, 403]
    assert [outsider.post(page, {"lease.lease_seconds": "9"}).status_code for page in pages[:2]] == [403, 403]
    assert Client().get(PAGE).status_code == 302
    changer = signed_in(grant(person.user, "inference.change_schedulertuning"))
    assert save(changer, lease__lease_seconds="9").status_code == 302
    assert stored() == {"lease": {"lease_seconds": 9.0}}
    assert PAGE in changer.get(reverse("admin:index")).content.decode()


def test_who_may_look_changes_nothing(person: Person) -> None:
    viewer = signed_in(grant(person.user, "inference.view_schedulertuning"))
    page = viewer.get(PAGE)
    html = page.content.decode()
    assert html.count("disabled") >= len(SETTINGS)
    assert ">Save<" not in html
    assert viewer.post(PAGE, filled(page)).status_code == 403
    assert viewer.get(f"{PAGE}reset/").status_code == 403
    assert viewer.post(f"{PAGE}reset/").status_code == 403


def test_it_is_neither_added_nor_deleted(staff: Client) -> None:
    tune(lease={"max_attempts": 4})
    assert staff.get(f"{PAGE}add/").status_code == 403
    assert staff.post(f"{PAGE}1/delete/", {"post": "yes"}).status_code == 403
    assert staff.get(f"{PAGE}2/history/").status_code == 302
    assert stored() == {"lease": {"max_attempts": 4}}


@pytest.mark.parametrize(
    "values",
    [
        {"lease": {"lease_seconds": 0, "gone": 1}, "lanes": {"free": 3}, "nothing": {}},
        {"lease": {"lease_seconds": "7"}, "cost": None},
        {"lease": [1]},
        [],
    ],
)
def test_what_is_stored_and_not_valid_can_be_mended(staff: Client, values: Any) -> None:
    SchedulerTuning.objects.create(values=values)
    assert "What is stored is not valid" in staff.get(PAGE).content.decode()
    assert staff.get(f"{PAGE}reset/").status_code == 200
    assert save(staff, lease__lease_seconds="8").status_code == 302
    assert stored() == {"lease": {"lease_seconds": 8.0}}
    SchedulerTuning.objects.update(values=values)
    assert staff.post(f"{PAGE}reset/").status_code == 302
    assert stored() == {}


def test_labels_are_unlike(staff: Client) -> None:
    """By its label and lane each field of a section can be told from the others."""
    form: TuningForm = staff.get(PAGE).context["form"]
    for part in form.parts():
        titles = [row.title for row in part.rows] or [entry.setting.title for entry in part.entries]
        assert len(titles) == len(set(titles)), part.name
        assert all([entry.setting.lane for entry in row.entries] == list(LANES) for row in part.rows)
