import json
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.scheduling.settings import (
    AdmissionSettings,
    EjectionSettings,
    InvalidSettings,
    LaneSettings,
    LeaseSettings,
    ReplicaSettings,
    SchedulerSettings,
)


def test_the_defaults_are_those_that_are_documented() -> None:
    settings = SchedulerSettings()
    lanes = {name: settings.lane(name) for name in ("enterprise", "paid", "free", "batch")}
    assert [lane.weight for lane in lanes.values()] == [50, 30, 15, 5]
    assert [lane.gate_seconds for lane in lanes.values()] == [1.0, 1.0, 0.25, 0.06]
    assert [lane.ceiling for lane in lanes.values()] == [1.0, 1.0, 0.9, 0.7]
    assert [lane.objective_seconds for lane in lanes.values()] == [0.5, 1, 5, None]
    assert [lane.timeout_seconds for lane in lanes.values()] == [30, 30, 60, None]
    assert [lane.shed_from for lane in lanes.values()] == [None, 1.0, 0.7, None]
    assert [lane.preempts for lane in lanes.values()] == [True, True, False, False]
    assert [lane.preempted_after_first_token for lane in lanes.values()] == [False, False, False, True]


def test_settings_survive_json_and_are_frozen() -> None:
    settings = SchedulerSettings(lease=LeaseSettings(max_attempts=5))
    assert SchedulerSettings.from_dict(json.loads(json.dumps(settings.to_dict()))) == settings
    with pytest.raises(FrozenInstanceError):
        settings.lease.max_attempts = 4  # type: ignore[misc]


def test_what_is_missing_has_its_lanes_own_default() -> None:
    settings = SchedulerSettings.from_dict({"lanes": {"batch": {"weight": 8}}})
    assert settings.lane("batch") == replace(SchedulerSettings().lane("batch"), weight=8)
    assert settings.lane("free") == SchedulerSettings().lane("free")


def test_every_fault_is_named_by_its_path() -> None:
    data = {
        "lanes": {"free": {"weight": -1, "speed": 3}, "batch": {"ceiling": None}},
        "cost": 3,
        "lease": {"max_attempts": 2.5},
        "score": {"exploration": True},
        "order": {"quantum": float("nan")},
    }
    with pytest.raises(InvalidSettings) as caught:
        SchedulerSettings.from_dict(data)
    assert sorted(caught.value.faults) == [
        "cost must be an object",
        "lanes.batch.ceiling must be a number",
        "lanes.free.speed is not a setting",
        "lanes.free.weight must be within 0.001 and 1e+06, not -1",
        "lease.max_attempts must be a whole number",
        "order.quantum must be within 1 and 1e+09, not nan",
        "score.exploration must be a number",
    ]


def test_numbers_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(InvalidSettings, match="must not exceed lease_seconds"):
        LeaseSettings(lease_seconds=5.5)
    with pytest.raises(InvalidSettings, match="kv_low must not exceed kv_high"):
        ReplicaSettings(kv_low=0.96)
    with pytest.raises(InvalidSettings, match="rate_min_samples must not exceed rate_samples"):
        ReplicaSettings(rate_samples=4)
    with pytest.raises(InvalidSettings, match=r"^seconds must not exceed most_seconds$"):
        EjectionSettings(seconds=601)
    with pytest.raises(InvalidSettings, match="retry_after_low must not exceed retry_after_high"):
        AdmissionSettings(retry_after_low=121)
    with pytest.raises(InvalidSettings, match=r"^admission\.retry_after_low must not exceed retry_after_high$"):
        SchedulerSettings.from_dict({"admission": {"retry_after_high": 0.5}})
    assert AdmissionSettings(retry_after_low=2, retry_after_high=2).retry_after_high == 2


def test_a_number_as_text_among_those_that_may_contradict_is_a_clear_refusal() -> None:
    with pytest.raises(InvalidSettings) as caught:
        SchedulerSettings.from_dict({"lease": {"lease_seconds": "7"}, "replica": {"kv_low": None}})
    assert sorted(caught.value.faults) == [
        "lease.lease_seconds must be a number",
        "replica.kv_low must be a number",
    ]


def test_a_switch_must_be_a_switch_and_a_section_a_section() -> None:
    with pytest.raises(InvalidSettings, match="preempts must be true or false"):
        LaneSettings(preempts=1)  # type: ignore[arg-type]
    with pytest.raises(InvalidSettings, match="lease must be a group of LeaseSettings"):
        SchedulerSettings(lease=3)  # type: ignore[arg-type]


def test_an_unknown_lane_is_an_error() -> None:
    with pytest.raises(ValueError, match="no lane 'gold'"):
        SchedulerSettings().lane("gold")


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.dictionaries(st.sampled_from(["lanes", "free", "weight", "lease", "x"]), inner, max_size=4),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["lanes", "lease", "score", "x"]), json_values, max_size=4))
def test_whatever_was_stored_makes_settings_or_a_clear_refusal(data: dict[str, Any]) -> None:
    try:
        settings = SchedulerSettings.from_dict(data)
    except InvalidSettings as error:
        assert error.faults
    else:
        assert SchedulerSettings.from_dict(settings.to_dict()) == settings
