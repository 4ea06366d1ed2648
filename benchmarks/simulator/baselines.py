"""What others do: requests go straight to an engine, whose own queue they wait in, in the order they came."""

import bisect
import math
import random
from collections import OrderedDict
from collections.abc import Sequence

from benchmarks.simulator.cluster import FAILED, Cluster, Replica, Request

MAX_ATTEMPTS = 3


class Push:
    """The common part: choose a replica at arrival, send there at once, try another where one died."""

    def __init__(self) -> None:
        self.waiting: list[Request] = []  # while no replica is up

    def start(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def choose(self, request: Request, up: Sequence[Replica]) -> Replica:
        raise NotImplementedError

    def arrive(self, request: Request) -> None:
        up = [replica for replica in self.cluster.replicas if replica.up]
        if not up:
            self.waiting.append(request)
            return
        self.cluster.send(request, self.choose(request, up))

    def first_token(self, request: Request) -> None:
        """Nothing depends on it."""

    def finished(self, request: Request) -> None:
        """Nothing depends on it."""

    def lost(self, replica: Replica, requests: list[Request]) -> None:
        for request in requests:
            if request.emitted or request.attempts >= MAX_ATTEMPTS:
                self.cluster.end(request, FAILED)  # half a reply cannot be taken back
            else:
                self.arrive(request)

    def joined(self, replica: Replica) -> None:
        waiting, self.waiting = self.waiting, []
        for request in waiting:
            self.arrive(request)


class RoundRobin(Push):
    """First come, first served, each to the next replica."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = 0

    def choose(self, request: Request, up: Sequence[Replica]) -> Replica:
        self.turn += 1
        return up[self.turn % len(up)]


def load(replica: Replica) -> int:
    """Requests that were sent to it and are not done."""
    return len(replica.holding)


class LeastLoaded(Push):
    """To the replica with the fewest requests, the first of equals."""

    def choose(self, request: Request, up: Sequence[Replica]) -> Replica:
        return min(up, key=load)


class BoundedHashing(Push):
    """Consistent hashing with bounded loads on the prompt's beginning: the next on the ring where one is too full."""

    POINTS = 100
    BOUND = 1.25  # of the mean
    BLOCKS = 16  # of the prompt that are hashed

    def start(self, cluster: Cluster) -> None:
        super().start(cluster)
        self._ring: list[tuple[float, str]] = []

    def choose(self, request: Request, up: Sequence[Replica]) -> Replica:
        if len(self._ring) != len(up) * self.POINTS:
            points = (
                (random.Random(f"{each.id}/{point}").random(), each.id) for each in up for point in range(self.POINTS)
            )
            self._ring = sorted(points)
        by_id = {replica.id: replica for replica in up}
        most = math.ceil(self.BOUND * (sum(map(load, up)) + 1) / len(up))
        key = random.Random(str(request.hashes[: self.BLOCKS] or request.job.chain[0][0])).random()
        place = bisect.bisect(self._ring, (key, ""))
        for step in range(len(self._ring)):
            replica = by_id.get(self._ring[(place + step) % len(self._ring)][1])
            if replica is not None and load(replica) + 1 <= most:
                return replica
        return min(up, key=load)


class RadixTree(Push):
    """Where at least 0.3 of the prompt matches, unless the loads are far apart; else where fewest tokens are kept.

    The rule of cache-aware routers: the imbalance counts when the spread is over 64 requests and over 1.5 times.
    """

    MATCH = 0.3
    SPREAD = 64
    TIMES = 1.5
    KEPT = 26_000  # blocks of each replica's tree

    def start(self, cluster: Cluster) -> None:
        super().start(cluster)
        self._trees: dict[str, OrderedDict[int, None]] = {}

    def choose(self, request: Request, up: Sequence[Replica]) -> Replica:
        loads = [load(replica) for replica in up]
        blocks = request.hashes[: request.job.input // self.cluster.profile.block]
        if max(loads) - min(loads) > self.SPREAD and max(loads) > self.TIMES * min(loads):
            chosen = min(up, key=load)
        else:
            best, match = max(((each, self._match(each, blocks)) for each in up), key=lambda pair: pair[1])
            smallest = min(up, key=lambda each: len(self._tree(each)))
            chosen = best if match > self.MATCH * max(1, len(blocks)) else smallest
        self._remember(chosen, blocks)
        return chosen

    def _tree(self, replica: Replica) -> OrderedDict[int, None]:
        return self._trees.setdefault(f"{replica.id}/{replica.epoch}", OrderedDict())

    def _match(self, replica: Replica, blocks: Sequence[int]) -> int:
        tree = self._tree(replica)
        for count, key in enumerate(blocks):
            if key not in tree:
                return count
        return len(blocks)

    def _remember(self, replica: Replica, blocks: Sequence[int]) -> None:
        tree = self._tree(replica)
        for key in blocks:
            tree[key] = None
            tree.move_to_end(key)
        while len(tree) > self.KEPT:
            tree.popitem(last=False)
