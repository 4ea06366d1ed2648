"""What a waiting reader is shown, and how a request is named."""

import pytest

from chatsite.ids import new_id, public_id
from inference.protocol import GRACE_SECONDS, QueuePlace, answer_id, request_named


def shown(place: QueuePlace) -> tuple[int, float | None, bool]:
    return place.position, place.eta, place.late


def test_what_is_shown_never_rises_but_after_a_preemption() -> None:
    first = QueuePlace(5, None).after(None, 0)
    assert shown(first) == (5, None, False)
    second = QueuePlace(7, 4.0).after(first, 1)
    assert shown(second) == (5, 4.0, False)
    assert shown(QueuePlace(3, 9.0).after(second, 2)) == (3, 4.0, False)
    assert shown(QueuePlace(3, None).after(second, 2)) == (3, 4.0, False)
    assert shown(QueuePlace(8, 9.0, preemptions=1).after(second, 2)) == (8, 9.0, False)


def test_a_time_that_has_passed_is_shown_no_more() -> None:
    place = QueuePlace(2, 4.0).after(None, 100)
    place = QueuePlace(1, 30.0).after(place, 104 + GRACE_SECONDS)  # it was too short, but is not over for certain
    assert shown(place) == (1, 4.0, False)
    place = QueuePlace(1, 30.0).after(place, 105 + GRACE_SECONDS)
    assert shown(place) == (1, None, True)
    place = QueuePlace(1, 1.0).after(place, 120)  # nobody would believe another one
    assert shown(place) == (1, None, True)
    assert shown(QueuePlace(4, 8.0, preemptions=1).after(place, 121)) == (4, 8.0, False)


def test_a_time_that_falls_counts_from_when_it_was_shown() -> None:
    place = QueuePlace(3, 10.0).after(None, 0)
    place = QueuePlace(2, 8.0).after(place, 9)
    assert shown(QueuePlace(2, 9.0).after(place, 16)) == (2, 8.0, False)
    assert shown(QueuePlace(2, 9.0).after(place, 18 + GRACE_SECONDS)) == (2, None, True)


def test_no_time_is_shown_while_the_model_loads() -> None:
    before = QueuePlace(2, 1.5).after(None, 0)
    place = QueuePlace(1, 3.0, loading=True).after(before, 60)
    assert shown(place) == (1, None, False)
    assert shown(QueuePlace(1, 3.0).after(place, 61)) == (1, 3.0, False)


def test_a_request_is_found_by_each_of_its_names() -> None:
    request = new_id()
    for name in (public_id("req", request), answer_id(True, request), answer_id(False, request)):
        assert request_named(name) == request
    assert answer_id(True, request) == f"chatcmpl-{request.hex}"
    assert answer_id(False, request) == f"cmpl-{request.hex}"


@pytest.mark.parametrize(
    "name",
    [
        *("", "chatcmpl-", "chatcmpl-x", "cmpl-{id}", "msg_{id}", "chatcmpl_{hex}", "chatcmpl-{HEX}", "{hex}"),
        *("chatcmpl-{hex}0", "chatcmpl-{hex} ", "chatcmpl-urn:uuid:{hex}", "gptcmpl-{hex}", "req_{hex}"),
    ],
)
def test_what_is_no_name_of_a_request(name: str) -> None:
    request = new_id()
    assert request_named(name.format(id=request, hex=request.hex, HEX="A" + request.hex[1:])) is None
