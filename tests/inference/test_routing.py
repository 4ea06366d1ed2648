from uuid import UUID

from inference.routing import EJECT_AFTER, EJECT_SECONDS, ReplicaState, ReplicaView, choose, eject_failing, usable


def views(count: int) -> list[ReplicaView]:
    return [ReplicaView(UUID(int=n + 1), slots=4, state=ReplicaState.READY) for n in range(count)]


def test_the_emptiest_replica_takes_the_request() -> None:
    a, b = views(2)
    assert choose([(a, 3), (b, 1)], avoid=None) is b


def test_s27_no_replica_takes_more_than_its_slots() -> None:
    a, b = views(2)
    assert choose([(a, 4), (b, 4)], avoid=None) is None


def test_the_replica_that_just_failed_is_the_last_choice_but_a_choice() -> None:
    a, b = views(2)
    assert choose([(a, 0), (b, 3)], avoid=a.id) is b
    assert choose([(a, 0), (b, 4)], avoid=a.id) is a


def test_s28_a_replica_that_fails_requests_is_ejected_although_its_probe_is_green() -> None:
    pool = views(3)
    for _ in range(EJECT_AFTER):
        pool[0].failed()
    assert eject_failing(pool, now=0.0) == [pool[0]]
    assert usable(pool, now=1.0) == pool[1:]
    assert usable(pool, now=EJECT_SECONDS + 1) == pool
    pool[0].failed()  # half open: one more failure, and longer
    assert eject_failing(pool, now=40.0) == [pool[0]]
    assert pool[0].ejected_until == 40.0 + 2 * EJECT_SECONDS
    pool[0].succeeded()
    assert pool[0].ejections == 0


def test_never_more_than_a_third_is_ejected_and_none_when_most_look_bad() -> None:
    pool = views(4)
    for view in pool[:2]:
        for _ in range(EJECT_AFTER):
            view.failed()
    assert len(eject_failing(pool, now=0.0)) == 1
    pool = views(4)
    for view in pool[:3]:
        for _ in range(EJECT_AFTER):
            view.failed()
    assert eject_failing(pool, now=0.0) == []


def test_where_all_ready_replicas_are_ejected_ejection_is_off() -> None:
    [only] = pool = views(1)
    only.ejected_until = 100.0
    assert usable(pool, now=1.0) == pool
