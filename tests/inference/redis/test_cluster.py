"""The scheduler in a real cluster: each model's shard is one slot, wherever the slot is served."""

import hashlib
import random
import re
from collections.abc import Iterator
from typing import Any

import pytest
from redis import RedisCluster
from redis.cluster import ClusterNode
from redis.exceptions import ResponseError

from chatsite.redis import Script
from inference.redis import keys
from inference.scheduling.settings import SchedulerSettings
from tests.inference.redis.cluster import NODES, cluster
from tests.inference.redis.test_scheduler import CHECKED_EVERY, STEPS, nothing_is_left_behind
from tests.inference.redis.twin import SCRIPTS, LuaBook, Twin
from tests.inference.scheduling.test_book_properties import all_is_zero_after, random_step
from tests.inference.scheduling.world import World

STORIES = 4  # for the model of each node


def strict(script: Script) -> Script:
    """The same; a server that sees this first line refuses keys of another slot even where it serves that slot too."""
    text = f"#!lua\n{script.text}"
    return Script(script.name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


STRICT = {name: strict(script) for name, script in SCRIPTS.items()}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    with cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture
def client(running: RedisCluster) -> RedisCluster:
    running.flushall(target_nodes=RedisCluster.PRIMARIES)
    return running


def node_of(client: RedisCluster, model: str, shard: int = 0) -> str:
    return client.get_node_from_key(keys.scheduler(model, shard)).name


@pytest.fixture
def models(client: RedisCluster) -> dict[str, str]:
    """By node, a model that it serves."""
    found: dict[str, str] = {}
    for number in range(100):
        found.setdefault(node_of(client, f"model-{number}"), f"model-{number}")
    assert len(found) == NODES
    return found


def prefixes_on(client: RedisCluster, node: ClusterNode) -> set[str]:
    return {re.sub(r"(?<=}):.*", "", key.decode()) for key in client.scan_iter("*", target_nodes=node)}


def tell_story(client: RedisCluster, model: str, seed: int) -> None:
    def make(settings: SchedulerSettings) -> Any:
        return Twin(settings, client, model=model, scripts=STRICT)

    rng, world = random.Random(seed), World(make)
    for step in range(STEPS):
        random_step(world, rng)
        if step % 100 == 99:
            world.lose_redis()  # so that runners enter again what they stream
        if step % CHECKED_EVERY == 0:
            world.check()
    all_is_zero_after(world)
    nothing_is_left_behind(world)


def test_lua_does_what_the_book_says_on_every_node_of_a_cluster(client: RedisCluster, models: dict[str, str]) -> None:
    for model in models.values():
        for seed in range(STORIES):
            tell_story(client, model, seed)
    shas = [script.sha for script in STRICT.values()]
    for node in client.get_primaries():
        assert all(node.redis_connection.script_exists(*shas))  # each operation has run on each node
        assert prefixes_on(client, node) == {keys.scheduler(models[node.name])}


def test_a_server_refuses_a_script_that_touches_another_slot(client: RedisCluster, models: dict[str, str]) -> None:
    here, elsewhere, *_ = models.values()
    beside = next(
        name for name in (f"beside-{number}" for number in range(100)) if node_of(client, name) == node_of(client, here)
    )
    text = "#!lua\nreturn redis.call('GET', ARGV[1])"
    assert client.eval(text, 1, keys.scheduler(here), f"{keys.scheduler(here)}:now-and-then") is None
    for other in (elsewhere, beside):
        with pytest.raises(ResponseError):
            client.eval(text, 1, keys.scheduler(here), f"{keys.scheduler(other)}:now")


def test_shards_of_one_model_are_served_by_different_nodes_and_do_not_meet(client: RedisCluster) -> None:
    other = next(shard for shard in range(1, 100) if node_of(client, "wide", shard) != node_of(client, "wide"))
    books = [LuaBook(client=client, model="wide", shard=shard, scripts=STRICT) for shard in (0, other)]
    for book in books:
        book.describe(1, "a", capn=1, capkv=0, peak_rate=1000.0)
        assert book.enqueue(1, "one", "free", "acme", input=5, uncached=5, kv=9, deadline=9, peak_rate=0)
    assert books[0].commit(2, "one", "a", "runner", uncached=5, attempt=0).attempt == 1
    first, second = (book.peek(2, 1, ["a"]) for book in books)
    assert (len(first.heads), first.replicas["a"].n) == (0, 1)
    assert (len(second.heads), second.replicas["a"].n) == (1, 0)
    for shard in (0, other):
        places = {
            node.name for node in client.get_primaries() if keys.scheduler("wide", shard) in prefixes_on(client, node)
        }
        assert places == {node_of(client, "wide", shard)}
