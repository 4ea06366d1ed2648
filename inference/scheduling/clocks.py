"""Virtual time among those that wait: start-time fair queueing with bounded credit and debt."""

from collections.abc import Iterator


class Clocks:
    """Virtual times (service received / weight) of members, some of which are backlogged.

    The floor is the smallest time among the backlogged. While there are none nobody is owed anything: it is where the
    last one stopped, and goes along with what is served then. It never falls.
    """

    def __init__(self) -> None:
        self.times: dict[str, float] = {}
        self.backlogged: set[str] = set()
        self._stopped = 0.0

    @property
    def floor(self) -> float:
        return min((self.times[member] for member in self.backlogged), default=self._stopped)

    def join(self, member: str, most_ahead: float) -> None:
        """It becomes backlogged: idling earned no credit, and at most `most_ahead` of its debt is kept.

        math.inf for a member that has been served all the time, only had nothing waiting for a moment.
        """
        if member not in self.backlogged:
            self.times[member] = self.joining_time(member, most_ahead)
            self.backlogged.add(member)

    def joining_time(self, member: str, most_ahead: float) -> float:
        """The time that `join` would give one that does not wait."""
        floor = self.floor
        return min(max(self.times.get(member, floor), floor), floor + most_ahead)

    def leave(self, member: str) -> None:
        """Nothing of it waits any more."""
        if self.backlogged == {member}:
            self._stopped = max(self._stopped, self.times[member])
        self.backlogged.discard(member)

    def charge(self, member: str, service: float) -> None:
        """Service, already divided by its weight."""
        self.times[member] = self.times.get(member, self.floor) + service
        if service > 0 and not self.backlogged:
            self._stopped = max(self._stopped, self.times[member])

    def lead(self, member: str) -> float:
        """How far it is ahead of the floor; below 0 only for those that do not wait."""
        return self.times[member] - self.floor

    def forget(self, member: str) -> None:
        """Drop its time, unless it waits or has a debt."""
        if member in self.times and member not in self.backlogged and self.times[member] <= self.floor:
            del self.times[member]

    @property
    def least(self) -> str:
        """Of the backlogged, the one with the smallest time."""
        return min(self.backlogged, key=lambda member: (self.times[member], member))

    def in_order(self) -> list[str]:
        """The backlogged, smallest time first."""
        return sorted(self.backlogged, key=lambda member: (self.times[member], member))

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self.times))
