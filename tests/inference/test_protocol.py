"""What a waiting reader is shown."""

from inference.protocol import GRACE_SECONDS, QueuePlace


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
