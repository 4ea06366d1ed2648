from inference.protocol import QueuePlace


def test_what_is_shown_never_rises_but_after_a_preemption() -> None:
    first = QueuePlace(5, None).after(None)
    assert first == QueuePlace(5, None)
    second = QueuePlace(7, 4.0).after(first)
    assert second == QueuePlace(5, 4.0)
    assert QueuePlace(3, 9.0).after(second) == QueuePlace(3, 4.0)
    assert QueuePlace(3, None).after(second) == QueuePlace(3, 4.0)
    assert QueuePlace(8, 9.0, preemptions=1).after(second) == QueuePlace(8, 9.0, preemptions=1)


def test_no_time_is_shown_while_the_model_loads() -> None:
    assert QueuePlace(1, 3.0, loading=True).after(QueuePlace(2, 1.5)) == QueuePlace(1, None, loading=True)
