"""A real cluster of three Valkey processes on loopback, which share the slots evenly."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from redis import Redis, RedisCluster
from redis.cluster import ClusterNode
from redis.exceptions import ConnectionError

from chatsite.operations.embedded import valkey
from chatsite.operations.processes import GuardedProcess
from tests.waiting import wait_until_sync

NODES = 3
SLOTS = 16384
HOST = "127.0.0.1"
START_SECONDS = 20.0


@contextmanager
def cluster(folder: Path) -> Iterator[RedisCluster]:
    """A client of a cluster that serves every slot; its processes end with the block."""
    ports = free_ports(2 * NODES)
    with ExitStack() as stack:
        nodes = []
        for number in range(NODES):
            process = _start(folder / f"node-{number}", ports[2 * number], ports[2 * number + 1])
            stack.callback(process.end)
            nodes.append(stack.enter_context(Redis(HOST, ports[2 * number], socket_timeout=5)))
        for node in nodes:
            wait_until_sync(lambda node=node: _answers(node), START_SECONDS)
        for number, node in enumerate(nodes):
            first, last = SLOTS * number // NODES, SLOTS * (number + 1) // NODES - 1
            node.execute_command("CLUSTER", "ADDSLOTSRANGE", first, last)
            node.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for number in range(1, NODES):
            nodes[0].execute_command("CLUSTER", "MEET", HOST, ports[2 * number], ports[2 * number + 1])
        for node in nodes:
            wait_until_sync(lambda node=node: _is_whole(node), START_SECONDS)
        yield stack.enter_context(RedisCluster(startup_nodes=[ClusterNode(HOST, ports[0])], socket_timeout=5))


def free_ports(count: int) -> list[int]:
    """Different ones: they are held until all are found."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind((HOST, 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def _start(folder: Path, port: int, bus: int) -> GuardedProcess:
    command = valkey(folder).command
    options = {
        "port": port,
        "bind": HOST,
        "unixsocket": "",
        "appendonly": "no",
        "cluster-enabled": "yes",
        "cluster-port": bus,
        "cluster-announce-ip": HOST,
        "cluster-config-file": "nodes.conf",
    }
    argv = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    return GuardedProcess(replace(command, argv=[*command.argv, *argv]), folder / "server.log")


def _answers(node: Redis) -> bool:
    try:
        return bool(node.ping())
    except ConnectionError:
        return False


def _is_whole(node: Redis) -> bool:
    said = node.execute_command("CLUSTER", "INFO")
    lines = said if isinstance(said, dict) else dict(line.split(":") for line in said.decode().split())
    return lines["cluster_state"] == "ok" and lines["cluster_known_nodes"] == str(NODES)
