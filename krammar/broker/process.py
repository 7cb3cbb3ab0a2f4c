"""A broker in a process of its own: ``Broker.start(process=True)``, with the methods of a broker that tests use.

Tools that change the process of a test do not change that one: freezegun, pyfakefs, gevent.monkey, forks.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from functools import cached_property, partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

import kafka_wire

from krammar.broker.errors import BrokerError
from krammar.broker.log.files import check_locks
from krammar.util.calls import Caller, CallsEnded, Channel
from krammar.util.closing import Closing
from krammar.util.forks import OwnProcess, close_sockets_in_children

if TYPE_CHECKING:
    from krammar.broker.config import BrokerConfig
    from krammar.broker.metadata_image import Partition
    from krammar.faults.remote import RemoteFaults

# What the subprocess runs: it gets the number of its end of the socket as argument.
MAIN = "krammar.broker.process_main"
# How long the subprocess may take to close its logs, in seconds.
_CLOSING_SECONDS = 30.0


class BrokerProcess(Closing):
    """A broker with one node in a subprocess, which ends with this process or with ``close``.

    Its methods can be called from any thread. One call follows the other.

    Attributes:
        bootstrap_servers: ``host:port`` of each node's first Kafka listener
        host, port: those of the first node
        metrics: the numbers of ``--metrics``; ``metrics.value`` reads one
    """

    kind = "Broker"

    def __init__(self, options: Mapping[str, Any], *, main: str = MAIN) -> None:
        """Start the subprocess and the broker in it.

        Args:
            options: the arguments of ``Broker.start``, as plain values
            main: the module that the subprocess runs

        Raises:
            BrokerError, ConfigError, ValueError: the broker cannot start.
            TypeError: an argument cannot be sent to another process, such as a filter.
        """
        check_locks()
        self._process = OwnProcess("the connection to the broker")
        ours, theirs = socket.socketpair()
        # Otherwise the broker would live as long as processes that are forked from this one.
        close_sockets_in_children(ours)
        self._socket = ours
        self._calls = Caller(Channel(ours))
        with theirs:
            # -P: modules in the working folder do not hide those of krammar.
            command = [sys.executable, "-P", "-m", main, str(theirs.fileno())]
            self._subprocess: subprocess.Popen[bytes] | None = subprocess.Popen(
                command, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL, env=_environment()
            )
        self.pid = self._subprocess.pid
        try:
            started = self.call_target("start", "start", self.kind, dict(options))
        except BaseException:
            self.close()
            raise
        self.bootstrap_servers, self.host, self.port, self._static = started

    def restart(self) -> None:
        """Stop the broker, and start it again with its data, as ``Broker.restart``. Raises BrokerError."""
        self.call_target("broker", "restart")

    def replace(self, options: Mapping[str, Any]) -> None:
        """Stop the broker, and start another one in the same subprocess, with the arguments of ``Broker.start``."""
        started = self.call_target("start", "start", self.kind, dict(options))
        self.bootstrap_servers, self.host, self.port, self._static = started
        vars(self).pop("config", None)

    def call_target(self, target: str, method: str, *args: Any, **named: Any) -> Any:
        """Call a method of an object in the subprocess.

        Raises:
            ForkedError: this process was forked from the one that has started the broker.
            BrokerError: the subprocess has ended.
        """
        self._process.check()
        try:
            return self._calls.call(target, method, *args, **named)
        except CallsEnded:
            raise BrokerError(f"the process {self.pid} of the broker has ended") from None

    def close(self) -> None:
        """Stop the broker and its process. Does nothing in a process that was forked from this one."""
        running, self._subprocess = self._subprocess, None
        if running is None or not self._process.is_this:
            return
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        try:
            running.wait(_CLOSING_SECONDS)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"{name!r}: a broker in another process has no such attribute; use its public methods, or start it "
            "without process=True"
        )

    def bootstrap_servers_of(self, listener: str) -> str:
        """Return ``host:port`` of each node's listener of this name, as advertised. Raises ValueError."""
        return str(self.call_target("broker", "bootstrap_servers_of", listener))

    @property
    def bound_listeners(self) -> str:
        """The setting ``listeners`` of the first node, with the ports on which it listens instead of 0."""
        return str(self.call_target("broker", "bound_listeners"))

    @cached_property
    def config(self) -> BrokerConfig:
        """The settings of the first node."""
        from krammar.broker.config import BrokerConfig

        return BrokerConfig(self._static)

    def advance_clock(self, ms: int, *, node: int | None = None, members: bool = False) -> None:
        """Set the clock ahead, as ``Broker.advance_clock``. Raises ValueError."""
        self.call_target("broker", "advance_clock", ms, node=node, members=members)

    @cached_property
    def faults(self) -> RemoteFaults:
        """The rules of faults, which apply to every client of the broker."""
        return self._faults_of("faults", kafka_wire)

    @cached_property
    def wafka_faults(self) -> RemoteFaults:
        """The rules of faults for clients of Wafka's listeners."""
        import wafka_wire

        return self._faults_of("wafka_faults", wafka_wire)

    def _faults_of(self, target: str, protocol: ModuleType) -> RemoteFaults:
        from krammar.faults.remote import RemoteFaults

        return RemoteFaults(partial(self.call_target, target), protocol)

    @cached_property
    def metrics(self) -> RemoteMetrics:
        """The numbers of ``--metrics``. Requests are counted from the first use on."""
        return RemoteMetrics(self)


class RemoteMetrics:
    """The metrics of a broker in another process."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        broker.call_target("metrics", "value", "process_cpu_seconds_total")  # counts from now on

    def value(self, name: str, **labels: object) -> float:
        """Return a number, or the sum of those whose labels have these values. Raises LookupError."""
        return float(self._broker.call_target("metrics", "value", name, **labels))


class ClusterProcess(BrokerProcess):
    """A broker with several nodes in a subprocess. The methods are those of ``Cluster``, with the same errors."""

    kind = "Cluster"

    def _cluster(self, method: str, *args: Any, **named: Any) -> Any:
        return self.call_target("broker", method, *args, **named)

    def stop_node(self, node_id: int) -> None:
        """Stop a node."""
        self._cluster("stop_node", node_id)

    def kill_node(self, node_id: int) -> None:
        """Kill a node without moving its leaders."""
        self._cluster("kill_node", node_id)

    def refuse_connections(self, *node_ids: int) -> None:
        """Let nodes refuse new connections, until ``heal``."""
        self._cluster("refuse_connections", *node_ids)

    def start_node(self, node_id: int) -> None:
        """Start a stopped node on its old ports."""
        self._cluster("start_node", node_id)

    def add_node(self) -> int:
        """Start another node, and return its id."""
        node_id = int(self._cluster("add_node"))
        self.bootstrap_servers = str(self._cluster("bootstrap_servers"))
        return node_id

    def remove_node(self, node_id: int) -> None:
        """Remove a node for good."""
        self._cluster("remove_node", node_id)
        self.bootstrap_servers = str(self._cluster("bootstrap_servers"))

    def partition_from(self, others: Literal["clients", "nodes"], *node_ids: int) -> None:
        """Cut nodes off, until ``heal``."""
        self._cluster("partition_from", others, *node_ids)

    def heal(self) -> None:
        """End all network partitions."""
        self._cluster("heal")

    def leader(self, topic: str, partition: int) -> int:
        """Return the node that leads a partition, or -1."""
        return int(self._cluster("leader", topic, partition))

    def partition(self, topic: str, partition: int) -> Partition:
        """Return a copy of a partition: its ``leader``, ``leader_epoch``, ``replicas`` and ``isr``."""
        found: Partition = self._cluster("partition", topic, partition)
        return found

    def move_leader(self, topic: str, partition: int, to: int) -> None:
        """Make a running node the leader of a partition."""
        self._cluster("move_leader", topic, partition, to)

    def unclean_election(
        self, topic: str, partition: int, *, lose: int, to: int | None = None
    ) -> int:
        """Let a replica lead that lacks the last records, and return the end of the log."""
        return int(self._cluster("unclean_election", topic, partition, lose=lose, to=to))

    def coordinator(self, key: str, kind: Literal["group", "transaction"] = "group") -> int:
        """Return the node that coordinates a group or a transactional id, or -1."""
        return int(self._cluster("coordinator", key, kind))

    def move_coordinator(
        self, key: str, to: int, kind: Literal["group", "transaction"] = "group"
    ) -> None:
        """Make a running node the coordinator of a group, or of a transactional id."""
        self._cluster("move_coordinator", key, to, kind)


def _environment() -> dict[str, str]:
    """Return the environment in which the subprocess finds the same packages of krammar."""
    folders = [str(Path(str(each)).parent) for each in _package_folders()]
    known = os.environ.get("PYTHONPATH")
    paths = [*dict.fromkeys(folders), *([known] if known else [])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def _package_folders() -> list[str]:
    import krammar

    return [os.path.dirname(str(each.__file__)) for each in (krammar, kafka_wire)]
