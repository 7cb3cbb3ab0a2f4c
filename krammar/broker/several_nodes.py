"""Several nodes in one process, for tests of clients.

```python
with Cluster.start(nodes=3) as cluster:
    cluster.stop_node(2)
    cluster.move_leader("orders", 0, to=1)
```

The nodes share one event loop and one storage; nothing is replicated. Clients see the leaders,
replicas and errors of a cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from krammar.broker.broker import Broker
from krammar.broker.errors import ApiError, BrokerError
from krammar.broker.metadata_image import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, Partition
from krammar.broker.node import Node, node_configs
from krammar.proxy.delivery import reset

if TYPE_CHECKING:
    from krammar.broker.process import BrokerProcess
    from krammar.faults.rules import Rule

T = TypeVar("T")


class Cluster(Broker):
    """A broker with several nodes, by default three, that a test stops, starts and isolates.

    Topics have three replicas by default, and the internal topics two partitions per node. The ids
    of the nodes begin at ``node.id``, which is 1 by default. A port that is given to ``start`` is
    that of the first node, and the others have the next ones.

    The methods may be called from any thread but the cluster's own. They return when clients see
    the change.
    """

    _usual_nodes, _internal_per_node = 3, 2

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._black_holes: list[tuple[Sequence[int], Rule]] = []
        self._refusing: set[int] = set()

    @classmethod
    def _process_class(cls) -> type[BrokerProcess]:
        from krammar.broker.process import ClusterProcess

        return ClusterProcess

    # Nodes.

    def stop_node(self, node_id: int) -> None:
        """Stop a node: its leaders move to other replicas in sync, then its connections and ports close.

        Partitions whose last replica in sync it has get no leader. Does nothing if the node is
        stopped.

        Raises:
            ValueError: the cluster has no such node.
        """
        node = self._known(node_id)

        async def stop() -> None:
            self._refusing.discard(node_id)
            if node_id in self.cluster.running:
                self.cluster.fence(node_id)
                self.elections.settle()
            else:
                node.handlers.see(self.cluster)  # it may be cut off
            await node.server.close()

        self._run(stop)

    def kill_node(self, node_id: int) -> None:
        """Kill a node: its connections are reset and its ports close, but nothing moves.

        It stays the leader and coordinator that it was, as in Kafka before the controller notices.
        ``stop_node`` is that moment; ``start_node`` starts it again. Does nothing if the node does
        not run.

        Raises:
            ValueError: the cluster has no such node.
        """
        node = self._known(node_id)

        async def kill() -> None:
            self._refusing.discard(node_id)
            node.server.refuse()
            for connection in list(node.connections.open):
                reset(connection.transport)

        self._run(kill)

    def refuse_connections(self, *node_ids: int) -> None:
        """Let nodes refuse new connections, until ``heal``. Open connections continue.

        Raises:
            ValueError: the cluster has no such node.
        """
        for node_id in node_ids:
            self.call(self._known(node_id).server.refuse)
            self._refusing.add(node_id)

    def start_node(self, node_id: int) -> None:
        """Start a stopped node on its old ports. It becomes a replica in sync, and a leader where there is none.

        Raises:
            BrokerError: another program uses a port.
            ValueError: the cluster has no such node.
        """
        node = self._known(node_id)

        async def start() -> None:
            if not node.server.is_listening:
                await self._listen(node)
                self.elections.settle()

        self._run(start)

    async def _restart(self) -> None:
        self._refusing.clear()  # all nodes listen
        await super()._restart()

    def add_node(self) -> int:
        """Start another node, and return its id. It has no partitions: new topics use it, and ``move_leader``.

        It listens on free ports, or on those after the ports of the last node.

        Raises:
            BrokerError: another program uses a port.
            ValueError: the cluster was started with one node, which serves all partitions.
        """
        if self.nodes[self.config.node_id].timers is self.timers:
            raise ValueError(
                "a cluster that was started with one node has no others: start it with two"
            )

        async def add() -> int:
            number = max(self.cluster.node_ids) - self.config.node_id + 1
            node = Node(node_configs(self.config, number + 1)[number])
            node_id = node.config.node_id
            node.connections.share(self.connections)
            self._assembly.add(node)
            self._note_equipped(node)
            try:
                await self._listen(node)
            except BaseException:
                self._assembly.remove(node)
                raise
            self.nodes[node_id] = node
            if "metrics" in vars(self):
                self.metrics.add_node(node.connections, node.groups)
                node.handlers.observe_by(self.metrics.observe)
            self.elections.settle()
            node.begin_upkeep()
            return node_id

        return self._run(add)

    def remove_node(self, node_id: int) -> None:
        """Remove a node for good: other nodes get its replicas, and then it stops, as in ``stop_node``.

        Raises:
            ValueError: the cluster has no such node, or it is the first one, whose settings are those of the cluster.
        """
        node = self._known(node_id)
        if node_id == self.config.node_id:
            raise ValueError(f"node {node_id} cannot be removed, because it is the first: stop it")

        async def remove() -> None:
            self.elections.leave(node_id)
            self._refusing.discard(node_id)
            self.cluster.unregister(node_id)
            self.elections.settle()
            await node.server.close()
            del self.nodes[node_id]
            self._assembly.remove(node)

        self._run(remove)

    # The network.

    def partition_from(self, others: Literal["clients", "nodes"], *node_ids: int) -> None:
        """Cut nodes off, until ``heal``.

        From ``"clients"``: the nodes answer no request that arrives from now on; connections stay
        open. From ``"nodes"``: the other nodes treat them as stopped. Clients that still ask them
        get the metadata of this moment, and NOT_LEADER_OR_FOLLOWER or NOT_COORDINATOR.

        Raises:
            ValueError: the cluster has no such node, or ``others`` is neither of the two.
        """
        for node_id in node_ids:
            self._known(node_id)
        if others == "clients":
            self._black_holes.append((node_ids, self.faults.on(node=node_ids).black_hole()))
        elif others == "nodes":
            self._try(lambda: self._isolate(node_ids))
        else:
            raise ValueError(
                f'nodes are cut off from "clients" or from "nodes", not from {others!r}'
            )

    def _isolate(self, node_ids: Sequence[int]) -> None:
        before = self.cluster.frozen()
        for node_id in node_ids:
            if node_id in self.cluster.running:
                self.cluster.fence(node_id)
                self.nodes[node_id].handlers.see(before)
        self.elections.settle()

    def heal(self) -> None:
        """End all network partitions. Connections with unanswered requests are closed, and nodes accept new ones."""
        while self._black_holes:
            node_ids, rule = self._black_holes.pop()
            self.faults.remove(rule)
            for node_id in node_ids:
                self.call(self.nodes[node_id].connections.abort)

        async def rejoin() -> None:
            while self._refusing:
                await self.nodes[self._refusing.pop()].listen()
            for node_id, node in self.nodes.items():
                if node.server.is_listening and node_id not in self.cluster.running:
                    node.handlers.see(self.cluster)
                    await self._listen(node)
            self.elections.settle()

        self._run(rejoin)

    # Partitions.

    def leader(self, topic: str, partition: int) -> int:
        """Return the node that leads a partition, or -1.

        Raises:
            ValueError: the partition does not exist.
        """
        return self.partition(topic, partition).leader

    def partition(self, topic: str, partition: int) -> Partition:
        """Return a partition: its ``leader``, ``leader_epoch``, ``replicas`` and ``isr``.

        Raises:
            ValueError: the partition does not exist.
        """
        return self._try(lambda: self.elections.find(topic, partition)[1])

    def move_leader(self, topic: str, partition: int, to: int) -> None:
        """Make a running node the leader of a partition. If it has no replica, it gets the old leader's.

        Raises:
            ValueError: the partition does not exist, or the node does not run.
        """
        self._known(to)

        def move() -> None:
            if to not in self.cluster.running:
                raise ValueError(
                    f"node {to} cannot lead {topic}-{partition}: it is stopped (start_node({to}))"
                )
            self.elections.move_leader(*self.elections.find(topic, partition), to)

        self._try(move)

    def unclean_election(
        self, topic: str, partition: int, *, lose: int, to: int | None = None
    ) -> int:
        """Let a replica take over that lacks the last records, as after an unclean leader election.

        The records are gone, although they were acknowledged, and the leader epoch rises. Clients
        that have read them see that the log was truncated (KIP-320).

        Args:
            lose: the number of records to lose; more if that would divide a batch
            to: the new leader; by default the first other replica that runs

        Returns:
            The offset of the first lost record, which is the end of the log.

        Raises:
            ValueError: the partition does not exist or is internal, ``lose`` is less than 1, or the
            node cannot lead.
        """
        if isinstance(lose, bool) or not isinstance(lose, int) or lose < 1:
            raise ValueError(f"lose is a number of records from 1 on, not {lose!r}")
        if to is not None:
            self._known(to)
        return self._try(
            lambda: self.elections.elect_behind(*self.elections.find(topic, partition), lose, to)
        )

    def coordinator(self, key: str, kind: Literal["group", "transaction"] = "group") -> int:
        """Return the node that coordinates a group or a transactional id, or -1.

        Raises:
            ValueError: nothing was coordinated yet, or ``kind`` is neither of the two.
        """
        return self.leader(*self._coordinating(key, kind))

    def move_coordinator(
        self, key: str, to: int, kind: Literal["group", "transaction"] = "group"
    ) -> None:
        """Make a running node the coordinator of a group, or of a transactional id.

        All groups in the same partition of the internal topic move with it.

        Raises:
            ValueError: nothing was coordinated yet, the node does not run, or ``kind`` is neither
            of the two.
        """
        self.move_leader(*self._coordinating(key, kind), to)

    def _coordinating(self, key: str, kind: str) -> tuple[str, int]:
        topics = {"group": OFFSETS_TOPIC, "transaction": TRANSACTIONS_TOPIC}
        if kind not in topics:
            raise ValueError(f"nodes coordinate a group or a transaction, not a {kind!r}")
        topic = topics[kind]
        return topic, self.call(lambda: self.topics.coordinating_partition(topic, key))

    def _known(self, node_id: int) -> Node:
        node = self.nodes.get(node_id)
        if node is None:
            raise ValueError(
                f"the cluster has no node {node_id}, only {', '.join(map(str, self.nodes))}"
            )
        return node

    def _try(self, function: Callable[[], T]) -> T:
        try:
            return self.call(function)
        except ApiError as error:
            raise ValueError(str(error.message or error)) from None

    def _run(self, change: Callable[[], Coroutine[Any, Any, T]]) -> T:
        self._process.check()
        try:
            return asyncio.run_coroutine_threadsafe(change(), self.loop).result()
        except ApiError as error:
            raise BrokerError(f"{error.code.name}: {error.message}") from None
