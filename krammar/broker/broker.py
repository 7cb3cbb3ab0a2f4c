"""The broker: starts and stops its parts, in an event loop or in a thread of its own.

```python
with Broker.start() as broker:  # a free port, a temporary folder, a separate thread
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})

async with Broker(config) as broker:  # in the running event loop
    ...
```

A broker runs entirely in one event loop, so no part needs locks, and one process can run many
brokers.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AsyncExitStack
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, overload
from uuid import UUID

import kafka_wire

from krammar.broker.assembly import Assembly
from krammar.broker.config import BrokerConfig, Listener
from krammar.broker.config.definitions import split_address
from krammar.broker.errors import BrokerError
from krammar.broker.log.files import check_locks
from krammar.broker.node import Node, node_configs
from krammar.broker.timers import Timers, system_ms
from krammar.broker.upkeep import Upkeep
from krammar.util.closing import Closing
from krammar.util.event_loop import new_event_loop
from krammar.util.forks import OwnProcess
from krammar.util.replaced import replaced_by
from krammar.util.sockets import address_text, why
from krammar.util.temporary import TemporaryFolder

if TYPE_CHECKING:
    from krammar.broker.metrics import Metrics
    from krammar.broker.process import BrokerProcess
    from krammar.broker.share.partitions import SharePartitions
    from krammar.broker.share.sessions import ShareSessions
    from krammar.faults import Faults
    from krammar.proxy.interface import Filter

log = logging.getLogger("krammar.broker")

T = TypeVar("T")


class Broker(Closing):
    """A broker with one node, or with several nodes on the same logs (``Cluster`` controls them).

    Args:
        config: the settings, among them the log folders and listeners
        nodes: the number of nodes
        clock: returns the time in milliseconds since 1970
        filters: run on requests and responses, as in the proxy

    Attributes:
        nodes, addresses, connections, groups, handlers: by node id; the last four
            are the first node's
        loop, timers, logs, cluster, topics, transactions, share_states, elections: exist
            while it is open
        metrics_address: host and port of the page for Prometheus
        equipped: functions that are called with each node that gets its parts, at each start, before clients can
            connect to it
    """

    # The number of nodes by default, and the partitions of an internal topic per node; at least one
    # in all.
    _usual_nodes, _internal_per_node = 1, 0

    def __init__(
        self,
        config: BrokerConfig | None = None,
        *,
        nodes: int = 1,
        clock: Callable[[], int] = system_ms,
        filters: Iterable[Filter] = (),
    ) -> None:
        check_locks()
        config = BrokerConfig.defaults() if config is None else config
        configs = [config] if nodes == 1 else node_configs(config, nodes)
        self.config = configs[0]
        self.nodes = {each.node_id: Node(each) for each in configs}
        first = self.nodes[self.config.node_id]
        self.addresses = first.addresses
        self.connections = first.connections
        for node in self.nodes.values():
            node.connections.share(self.connections)
        if filters := (*filters, *self._late_changes()):
            self._filter(kafka_wire, *filters)
        self.equipped: list[Callable[[Node], None]] = []
        self._clock = clock
        self._ahead_ms = 0  # of the clock, from before the last restart
        self._process = OwnProcess("the broker")
        self._opened = AsyncExitStack()  # closes everything that is open
        self._thread: threading.Thread | None = None
        self._temporary: TemporaryFolder | None = None
        self._loop_thread = 0

    # Starting and stopping.

    @classmethod
    @overload
    def start(
        cls,
        config: BrokerConfig | None = None,
        *,
        nodes: int | None = None,
        port: int = 0,
        data_dir: str | Path | None = None,
        properties: Mapping[str, str] | None = None,
        clock: Callable[[], int] | None = None,
        filters: Iterable[Filter] = (),
        process: Literal[False] = False,
    ) -> Self: ...

    @classmethod
    @overload
    def start(
        cls,
        config: BrokerConfig | None = None,
        *,
        nodes: int | None = None,
        port: int = 0,
        data_dir: str | Path | None = None,
        properties: Mapping[str, str] | None = None,
        process: Literal[True],
    ) -> BrokerProcess: ...

    @classmethod
    def start(
        cls,
        config: BrokerConfig | None = None,
        *,
        nodes: int | None = None,
        port: int = 0,
        data_dir: str | Path | None = None,
        properties: Mapping[str, str] | None = None,
        clock: Callable[[], int] | None = None,
        filters: Iterable[Filter] = (),
        process: bool = False,
    ) -> Self | BrokerProcess:
        """Start a broker in a thread of its own; ``close`` or the end of ``with`` stops it.

        To keep tests fast, unlike Kafka's defaults, rebalances are not delayed, members of consumer
        groups send heartbeats often, and the internal topics have one partition each.

        Args:
            config: the settings, instead of the port, the folder and the properties
            nodes: the number of nodes; by default one, and three of a ``Cluster``
            port: the port on loopback; 0 selects a free one
            data_dir: the log folder; by default a temporary folder that is deleted with the broker
            properties: settings by Kafka's names, such as ``{"num.partitions": "3"}``
            clock: returns the time in milliseconds since 1970
            filters: filters of ``krammar.proxy``, from the client to the broker
            process: run the broker in a process of its own, without ``clock`` and ``filters``

        Returns:
            The broker, ready for connections; with ``process``, a ``BrokerProcess``, which has the
            methods that tests use.

        Raises:
            BrokerError, ConfigError: the broker cannot start.
            TypeError: an element of ``filters`` is not a filter for Kafka's protocol.
            ValueError: ``nodes`` is less than 1.
        """
        if process:
            return cls._start_process(
                {"nodes": nodes, "port": port, "data_dir": data_dir, "properties": properties},
                config,
                clock is not None or bool(tuple(filters)),
            )
        if tool := replaced_by():
            raise BrokerError(f"{tool}: start the broker with process=True")
        nodes = cls._usual_nodes if nodes is None else nodes
        if nodes < 1:
            raise ValueError(f"a cluster needs at least one node, not {nodes}")
        internal = str(max(1, cls._internal_per_node * nodes))
        temporary = None
        if config is None:
            if data_dir is None:
                temporary = TemporaryFolder("krammar-broker-")
            config = BrokerConfig.defaults(
                **{
                    "log.dirs": str(data_dir or (temporary and temporary.path)),
                    "listeners": f"PLAINTEXT://127.0.0.1:{port}",
                    "group.consumer.assignment.interval.ms": "0",
                    "group.consumer.heartbeat.interval.ms": "200",
                    "group.consumer.min.heartbeat.interval.ms": "1",
                    "group.initial.rebalance.delay.ms": "0",
                    "group.share.assignment.interval.ms": "0",
                    "group.share.heartbeat.interval.ms": "200",
                    "group.share.min.heartbeat.interval.ms": "1",
                    "offsets.topic.num.partitions": internal,
                    "share.coordinator.state.topic.num.partitions": internal,
                    "transaction.state.log.num.partitions": internal,
                    **({"krammar.fsync": "off"} if temporary else {}),
                    **(properties or {}),
                }
            )
        try:
            broker = cls(config, nodes=nodes, clock=clock or system_ms, filters=filters)
        except BaseException:
            if temporary is not None:
                temporary.remove()
            raise
        broker._temporary = temporary
        started: Future[None] = Future()
        broker._thread = threading.Thread(
            target=broker._serve_in_thread, args=(started,), name="krammar-broker", daemon=True
        )
        broker._thread.start()
        try:
            error = started.exception()
            if error is not None:
                broker._thread.join()
                raise error
        except BaseException:
            broker._remove_temporary()
            raise
        return broker

    @classmethod
    def _process_class(cls) -> type[BrokerProcess]:
        """Return the class of such a broker in another process."""
        from krammar.broker.process import BrokerProcess

        return BrokerProcess

    @classmethod
    def _start_process(
        cls, options: dict[str, Any], config: BrokerConfig | None, has_functions: bool
    ) -> BrokerProcess:
        """Start the broker in another process. Raises as ``start``."""
        if has_functions:
            raise ValueError("clock and filters run in this process: leave out process=True")
        if config is not None:
            options["config"] = config.static
        return cls._process_class()(options)

    def _serve_in_thread(self, started: Future[None]) -> None:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(self._serve(started))

    async def _serve(self, started: Future[None]) -> None:
        self._stop = asyncio.Event()
        try:
            await self.open()
        except BaseException as error:
            started.set_exception(error)
            return
        started.set_result(None)
        await self._stop.wait()
        await self.shut_down()

    async def open(self) -> None:
        """Start in the running event loop.

        Raises:
            BrokerError, ConfigError: the broker cannot start; everything that was opened is closed
            again.
        """
        self._loop_thread = threading.get_ident()
        nodes = self.nodes.values()
        try:
            self._assemble()
            for node in nodes:
                self._note_equipped(node)
            for node in nodes:
                await self._listen(node)
            if self.config.metrics is not None:
                await self._serve_metrics(self.config.metrics, self.metrics)
            if len(nodes) > 1:
                self.elections.settle()
            self.transactions.start()
            self.share_states.start()
        except BaseException as error:
            await self.shut_down()
            if isinstance(error, OSError):
                raise BrokerError(f"{error.filename or 'cannot start'}: {error.strerror}") from None
            raise
        for node in nodes:
            node.begin_upkeep()
        Upkeep(self.config, self.timers, self.logs).start()

    def _assemble(self) -> None:
        """Build all parts. Raises BrokerError, ConfigError and OSError."""
        parts = Assembly(self.config, self.nodes, self._now_ms, self._opened)
        self._assembly = parts
        self.loop, self.timers = parts.loop, parts.timers
        self.logs, self.cluster, self.topics = parts.logs, parts.cluster, parts.topics
        self.elections, self.transactions = parts.elections, parts.transactions
        self.share_states = parts.share_states
        first = self.nodes[self.config.node_id]
        self.groups, self.handlers = first.groups, first.handlers

    def _note_equipped(self, node: Node) -> None:
        for notify in self.equipped:
            notify(node)

    def _now_ms(self) -> int:
        return self._clock() + self._ahead_ms

    async def _listen(self, node: Node) -> None:
        """Open the listeners of a node, and register it in the cluster."""
        await node.listen()
        listeners = [each for each in node.config.listeners if each.kafka]
        self.cluster.register(
            [(each, *node.addresses.advertised(each)) for each in listeners],
            node_id=node.config.node_id,
            rack=node.config.broker_rack,
        )

    async def shut_down(self) -> None:
        """Close connections, then flush and close the logs. A second call does nothing."""
        await self._opened.pop_all().aclose()

    def restart(self) -> None:
        """Stop, and start again on the same ports, with the same data, clocks and rules of faults.

        Clients are disconnected. ``metrics`` begin again. Any thread but the broker's own can call it.

        Raises:
            BrokerError, ConfigError: it cannot start again, because another program uses a port, for example.
            ForkedError: this process was forked from the broker's.
        """
        self._process.check()
        asyncio.run_coroutine_threadsafe(self._restart(), self.loop).result()

    async def _restart(self) -> None:
        self._ahead_ms += self.timers.ahead_ms
        nodes = [each for each in self.nodes.values() if each.timers is not self.timers]
        ahead = [(each, each.timers.ahead_ms) for each in nodes]
        await self.shut_down()
        vars(self).pop("metrics", None)  # they count what the old parts do
        await self.open()
        for node, ms in ahead:
            node.timers.advance(ms)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.shut_down()

    def close(self) -> None:
        """Stop a broker that was started with ``start``.

        Its thread has ended afterwards, its port and files are closed, and its temporary folder is
        deleted. Does nothing in a process that was forked from the broker's.
        """
        if not self._process.is_this:
            return
        thread, self._thread = self._thread, None
        if thread is not None:
            if thread.is_alive():
                self.loop.call_soon_threadsafe(self._stop.set)
            thread.join()
            self._remove_temporary()

    def _remove_temporary(self) -> None:
        if self._temporary is not None:
            self._temporary.remove()

    # Addresses.

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of each node's first Kafka listener, for the setting of clients."""
        found = [node.addresses.advertised(self._first) for node in self.nodes.values()]
        return ",".join(map(address_text, found))

    def bootstrap_servers_of(self, listener: str) -> str:
        """Return ``host:port`` of each node's listener of this name, as advertised. Raises ValueError for an unknown one."""
        known = {each.name: each for each in self.config.listeners if each.kafka}
        if listener not in known:
            raise ValueError(f"there is no listener {listener!r}, only {', '.join(known)}")
        found = [node.addresses.advertised(known[listener]) for node in self.nodes.values()]
        return ",".join(map(address_text, found))

    @property
    def bound_listeners(self) -> str:
        """The setting ``listeners`` of the first node, with the ports on which it listens instead of 0."""
        return ",".join(
            f"{each.name}://{address_text((each.host, self.addresses[each.name][1]))}"
            for each in self.config.listeners
        )

    @property
    def host(self) -> str:
        """The host of the first Kafka listener."""
        return self.addresses.advertised(self._first)[0]

    @property
    def port(self) -> int:
        """The port of the first Kafka listener."""
        return self.addresses.advertised(self._first)[1]

    @property
    def _first(self) -> Listener:
        return next(listener for listener in self.config.listeners if listener.kafka)

    # Tests.

    def call(self, function: Callable[..., T], *args: Any) -> T:
        """Run a function in the broker's event loop, from any thread, and return its result.

        Tests use it to inspect a broker that was started with ``start``.

        Raises:
            BrokerError: pyfakefs has replaced the files of this process.
            ForkedError: this process was forked from the broker's.
        """
        self._process.check()
        if tool := replaced_by():
            raise BrokerError(f"{tool}: start the broker with process=True")
        if threading.get_ident() == self._loop_thread:
            return function(*args)

        async def run() -> T:
            return function(*args)

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result()

    def advance_clock(self, ms: int, *, node: int | None = None, members: bool = False) -> None:
        """Set the clock ahead, and run the timers that are due then. Any thread can call it.

        A node's clock is what logins, fetches, groups and the times of appended records go by.
        Transactions, retention and producers go by the clock that all nodes share.

        Args:
            ms: milliseconds
            node: advance the clock of one node only, by its id
            members: whether the sessions and rebalances of group members end too. Their clients
                send heartbeats in real time, so a clock far ahead expires the members of all
                groups.

        Raises:
            ValueError: there is no such node, or ``ms`` is negative.
        """
        if isinstance(ms, bool) or not isinstance(ms, int) or ms < 0:
            raise ValueError(f"ms is a number of milliseconds from 0 on, not {ms!r}")
        if node is not None and node not in self.nodes:
            known = ", ".join(map(str, self.nodes))
            raise ValueError(f"there is no node {node}, only {known}")
        self.call(lambda: self._timers_of(node).advance(ms, members=members))

    def _timers_of(self, node: int | None) -> Timers:
        return self.timers if node is None else self.nodes[node].timers

    @property
    def faults(self) -> Faults:
        """The rules of faults, which apply to every client of the broker:

        ```python
        broker.faults.on("Produce", topic="orders").answer(ErrorCode.NOT_LEADER_OR_FOLLOWER).times(3)
        ```

        Raises:
            ForkedError: this process was forked from the broker's.
        """
        self._process.check()
        return self._kafka_faults

    @cached_property
    def _kafka_faults(self) -> Faults:

        def topic_name(topic_id: UUID) -> str | None:
            topic = self.cluster.topics_by_id.get(topic_id)
            return None if topic is None else topic.name

        return self._faults_of(kafka_wire, topic_names=topic_name)

    @cached_property
    def wafka_faults(self) -> Faults:
        """The rules of faults for clients of Wafka's listeners, with the names of ``wafka_wire``:

        ```python
        broker.wafka_faults.on("Produce", topic="lines").answer(ErrorCode.UNKNOWN_SERVER_ERROR).once()
        ```
        """
        import wafka_wire

        return self._faults_of(wafka_wire)

    def _faults_of(self, protocol: ModuleType, **options: Any) -> Faults:
        from krammar.faults import Faults
        from krammar.faults.engine import OF_THE_BROKER

        def advance(ms: int, members: bool, node: int | None) -> None:
            self._timers_of(node).advance(ms, members=members)

        faults = Faults(protocol, sees=OF_THE_BROKER, advance=advance, **options)
        self._filter(protocol, faults)
        return faults

    def _late_changes(self) -> list[Filter]:
        """Return the filter that delays changes, if the settings ask for it."""
        delay_ms = self.config.kafka_like_delays_ms
        if not delay_ms:
            return []
        from krammar.broker.late_changes import LateChanges

        return [LateChanges(lambda: self.cluster.topics, lambda: self.timers.now_ms(), delay_ms)]

    def _filter(self, protocol: ModuleType, *filters: Filter) -> None:
        """Run filters over the requests of a protocol, before those that run already."""
        from krammar.proxy.chain import Chain

        known = self.connections.chains.get(protocol)
        if known is not None:
            for each in filters:
                known.add_first(each)
            return
        self.connections.chains[protocol] = Chain(protocol, filters)  # of all nodes

    @cached_property
    def metrics(self) -> Metrics:
        """The numbers of ``--metrics``. Requests are counted from the first use on.

        ```python
        assert broker.metrics.value("kafka_log_log_logendoffset", topic="orders") == 10
        ```
        """
        return self.call(self._count)

    def _count(self) -> Metrics:
        from krammar.broker.handlers.share_fetch import ShareFetchHandlers
        from krammar.broker.metrics import Metrics
        from krammar.broker.share.reads import ShareReads

        def shared() -> Iterator[tuple[SharePartitions, ShareSessions]]:
            for node in self.nodes.values():
                found = node.handlers.of(ShareFetchHandlers)
                yield found.partitions, found.sessions

        nodes = self.nodes.values()
        metrics = Metrics(
            self.timers,
            [node.connections for node in nodes],
            self.cluster,
            self.logs,
            [node.groups for node in nodes],
            ShareReads(shared, self.share_states, self.cluster, self.logs),
            self.call,
        )
        for node in nodes:
            node.handlers.observe_by(metrics.observe)
        return metrics

    async def _serve_metrics(self, address: str, metrics: Metrics) -> None:
        from krammar.util.http_server import HttpPage
        from krammar.util.prometheus import CONTENT_TYPE

        slices = self.connections.slices
        page = HttpPage("/metrics", CONTENT_TYPE, lambda: slices.run_from_start(metrics.text()))
        host, port = split_address("krammar.metrics", address)
        try:
            self.metrics_address = await page.listen(host, port)
        except (OSError, UnicodeError) as error:
            raise BrokerError(f"cannot listen on {host}:{port} for metrics: {why(error)}") from None
        self._opened.push_async_callback(page.close)
