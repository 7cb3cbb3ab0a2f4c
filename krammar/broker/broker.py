"""The broker: builds its parts, starts them, stops them.

```python
with Broker.start() as broker:  # a free port, a temporary folder, a thread of its own
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})

async with Broker(config) as broker:  # in the running loop
    ...
```

All of a broker runs in one event loop: no part needs locks, and many brokers can live in one process.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar
from uuid import UUID
from weakref import WeakSet

from kafka_wire import ConfigResourceType, ErrorCode

from krammar.broker.cluster import ClusterMetadata, Topic
from krammar.broker.config import BrokerConfig, Listener
from krammar.broker.errors import ApiError, BrokerError
from krammar.broker.groups.coordinator import GroupCoordinator
from krammar.broker.security.users import Credentials
from krammar.broker.server import Server
from krammar.broker.session import Session
from krammar.broker.storage.manager import LogManager
from krammar.broker.transactions.coordinator import TransactionCoordinator

if TYPE_CHECKING:
    from krammar.broker.fetch_sessions import FetchSessions

log = logging.getLogger("krammar.broker")

T = TypeVar("T")

# For so long compaction holds up everything else, and then pauses for as long.
_COMPACTION_SLICE_MS = 20


class Broker:
    """A broker of one node.

    ``config`` says where its logs are and where it listens; ``clock`` gives the time in milliseconds
    since 1970.
    """

    config: BrokerConfig
    loop: asyncio.AbstractEventLoop
    logs: LogManager
    cluster: ClusterMetadata
    users: Credentials
    groups: GroupCoordinator
    transactions: TransactionCoordinator

    def __init__(
        self,
        config: BrokerConfig | None = None,
        *,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self.config = BrokerConfig.defaults() if config is None else config
        self.now_ms = clock
        self.addresses: dict[str, tuple[str, int]] = {}
        self._fetch_sessions: FetchSessions | None = None
        self._tls: dict[str, Any] = {}
        self._server: Server | None = None
        # Those that have run or were cancelled go by themselves.
        self._timers: WeakSet[asyncio.TimerHandle] = WeakSet()
        self._thread: _Thread | None = None
        self._temporary: Path | None = None

    # Starting and stopping.

    @classmethod
    def start(
        cls,
        config: BrokerConfig | None = None,
        *,
        port: int = 0,
        data_dir: str | Path | None = None,
        properties: Mapping[str, str] | None = None,
        clock: Callable[[], int] | None = None,
    ) -> Self:
        """A broker in a thread of its own, ready when this returns; ``close`` or ``with`` ends it.

        Without ``data_dir`` its logs are in a temporary folder that goes with it; ``port`` 0 takes a
        free one, on loopback. ``properties`` are settings by Kafka's names, such as
        ``{"num.partitions": "3"}``. ``config`` takes the place of all three.

        Unlike Kafka's defaults a group's first rebalance is not delayed, and the internal topics have
        one partition each: tests wait for nothing. Raises BrokerError and ConfigError.
        """
        temporary = None
        if config is None:
            if data_dir is None:
                temporary = Path(tempfile.mkdtemp(prefix="krammar-broker-"))
            config = BrokerConfig.defaults(
                **{
                    "log.dirs": str(data_dir or temporary),
                    "listeners": f"PLAINTEXT://127.0.0.1:{port}",
                    "group.initial.rebalance.delay.ms": "0",
                    "offsets.topic.num.partitions": "1",
                    "transaction.state.log.num.partitions": "1",
                    **({"krammar.fsync": "never"} if temporary else {}),
                    **(properties or {}),
                }
            )
        broker = cls(config) if clock is None else cls(config, clock=clock)
        broker._temporary = temporary
        broker._thread = _Thread(broker)
        try:
            broker._thread.start_broker()
        except BaseException:
            broker._remove_temporary()
            raise
        return broker

    async def open(self) -> None:
        """Start in the running loop. Raises BrokerError, with everything closed again."""
        self.loop = asyncio.get_running_loop()
        config = self.config
        self._server = Server(self)
        opened: list[Callable[[], None]] = []
        try:
            for listener in config.listeners:
                if listener.protocol.endswith("SSL"):
                    from krammar.broker.security.tls import server_context

                    self._tls[listener.name] = server_context(config, listener)
            self.logs = LogManager(
                config.log_dirs,
                fsync=config.fsync,
                now_ms=self.now_ms,
                warn=log.warning,
            )
            opened.append(self.logs.close)
            self.cluster = ClusterMetadata.open(
                config.metadata_log_dir, config, now_ms=self.now_ms, warn=log.warning
            )
            opened.append(self.cluster.close)
            config.set_dynamic(
                self.cluster.configs.get((BROKER, ""), {}),
                self.cluster.configs.get((BROKER, str(config.node_id)), {}),
            )
            for topic in self.cluster.topics.values():
                self._open_logs(topic, topic.partitions)
            self.users = Credentials(self)
            self.groups = GroupCoordinator(self)
            self.transactions = TransactionCoordinator(self)
            for listener in config.listeners:
                try:
                    bound = await self._server.listen(listener, self._tls.get(listener.name))
                except OSError as error:
                    raise BrokerError(
                        f"cannot listen on {listener.host}:{listener.port}: {error.strerror}"
                    ) from None
                self.addresses[listener.name] = bound[0]
            self.cluster.register(
                [(each, *self._advertised(each)) for each in config.listeners if each.kafka]
            )
            self.transactions.start()
            self.groups.start()
        except BaseException as error:
            await self._server.close()
            self._cancel_timers()
            for close in reversed(opened):
                close()
            if isinstance(error, OSError):
                raise BrokerError(f"{error.filename or 'start'}: {error.strerror}") from None
            raise
        self._server.sweep_idle()
        self.call_later(config.log_retention_check_interval_ms / 1000, self._maintain)
        self.call_later(config.log_cleaner_backoff_ms / 1000, self._compact)
        if config.fsync == "interval":
            self.call_later(config.fsync_interval_ms / 1000, self._flush)

    async def shut_down(self) -> None:
        """Stop: connections are closed, logs flushed and closed. Never raises for a second call."""
        server, self._server = self._server, None
        if server is None:
            return
        await server.close()
        self.transactions.close()
        self.groups.close()
        self._cancel_timers()
        self.cluster.close()
        self.logs.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.shut_down()

    def close(self) -> None:
        """End a broker that ``start`` has started, and its thread; its port, files and temporary folder
        are free afterwards."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.stop_broker()
            self._remove_temporary()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _remove_temporary(self) -> None:
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def call(self, function: Callable[..., T], *args: Any) -> T:
        """Run a function in the broker's loop from another thread, and return its result: how a test
        looks into a broker that ``start`` has started."""

        async def run() -> T:
            return function(*args)

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result()

    # Time.

    def call_later(
        self, seconds: float, callback: Callable[..., object], *args: Any
    ) -> asyncio.TimerHandle:
        """Call a function in the loop after a while, unless the broker closes before."""

        handle = self.loop.call_later(seconds, callback, *args)
        self._timers.add(handle)
        return handle

    def _cancel_timers(self) -> None:
        for timer in list(self._timers):
            timer.cancel()

    def _maintain(self) -> None:
        # It can be changed while the broker runs.
        self.logs.environment.producer_expiry_ms = self.config.producer_id_expiration_ms
        try:
            self.logs.maintain(self.now_ms())
        except Exception:
            log.exception("upkeep of the logs failed; it is tried again")
        self.call_later(self.config.log_retention_check_interval_ms / 1000, self._maintain)

    def _compact(self) -> None:
        more = False
        if self.config.log_cleaner_enable:
            try:
                more = self.logs.compact(self.now_ms(), budget_ms=_COMPACTION_SLICE_MS)
            except Exception:
                log.exception("compaction failed; it is tried again")
        pause = _COMPACTION_SLICE_MS if more else self.config.log_cleaner_backoff_ms
        self.call_later(pause / 1000, self._compact)

    def _flush(self) -> None:
        try:
            self.logs.flush_in_background()
        except OSError as error:
            log.error("logs could not be written through to disk: %s", error)
        self.call_later(self.config.fsync_interval_ms / 1000, self._flush)

    # Addresses.

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of the first listener, for clients' settings."""
        host, port = self._advertised(self._first)
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def host(self) -> str:
        """The address of the first listener."""
        return self._advertised(self._first)[0]

    @property
    def port(self) -> int:
        """The port of the first listener."""
        return self._advertised(self._first)[1]

    @property
    def _first(self) -> Listener:
        return next(listener for listener in self.config.listeners if listener.kafka)

    def advertised(self, session: Session) -> tuple[str, int]:
        """Where clients of the session's listener reach this broker: host and port."""
        return self._advertised(session.listener)

    def _advertised(self, listener: Listener) -> tuple[str, int]:
        host, port = self.addresses[listener.name]
        if listener.advertised_host:
            host = listener.advertised_host
        elif host in ("0.0.0.0", "::"):
            host = "localhost"
        return host, listener.advertised_port or port

    @property
    def traffic(self) -> int:
        """Bytes received and sent so far."""
        return 0 if self._server is None else self._server.traffic

    def begin_session(self, session: Session, transport: asyncio.Transport) -> None:
        """What a new connection's session needs to know before its first request."""
        protocol = session.listener.protocol
        if protocol.startswith("SASL"):
            from krammar.broker.security.sasl import Authenticator

            session.authenticated = False
            session.sasl = Authenticator(self, session)
        elif protocol == "SSL":
            from krammar.broker.security.tls import principal_of

            session.principal = principal_of(transport)

    # Topics: metadata and logs together.

    @property
    def fetch_sessions(self) -> FetchSessions:
        if self._fetch_sessions is None:
            from krammar.broker.fetch_sessions import FetchSessions

            self._fetch_sessions = FetchSessions(
                self.config.max_incremental_fetch_session_cache_slots
            )
        return self._fetch_sessions

    def create_topic(
        self,
        name: str,
        partitions: int,
        configs: Mapping[str, str] | None = None,
        *,
        topic_id: UUID | None = None,
    ) -> Topic:
        """Make a topic: its metadata and its logs. Raises ApiError where they cannot be written.

        Nothing is validated here.
        """
        topic = self.cluster.create_topic(name, partitions, configs or {}, topic_id=topic_id)
        try:
            self._open_logs(topic, topic.partitions)
        except (ApiError, BrokerError, OSError) as error:
            self.delete_topic(topic)
            raise ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"the logs of {name} cannot be made: {error}"
            ) from error
        return topic

    def add_partitions(self, topic: Topic, count: int) -> None:
        """Grow a topic to ``count`` partitions. Raises ApiError."""
        new = range(len(topic.partitions), count)
        self.cluster.add_partitions(topic, count)
        self._open_logs(topic, new)

    def delete_topic(self, topic: Topic) -> None:
        """Remove a topic with its data, and what groups have committed of it. Raises ApiError."""
        self.cluster.delete_topic(topic)
        for partition in topic.partitions:
            self.logs.delete(topic.name, partition)
        self.groups.topic_deleted(topic)

    def set_topic_configs(self, topic: Topic, changes: Mapping[str, str | None]) -> None:
        """Change a topic's settings, None to go back to the default; logs follow at once."""
        self.cluster.set_configs(TOPIC, topic.name, changes)
        self.logs.update_config(topic.name, self._log_config(topic.name))

    def _log_config(self, topic: str) -> Any:
        # Unchecked: what Kafka 3.9 let pass must not keep its folder from being served.
        return self.config.topic_config(self.cluster.configs.get((TOPIC, topic), {}), check=False)

    def _open_logs(self, topic: Topic, partitions: Sequence[int] | Mapping[int, Any]) -> None:
        config = self._log_config(topic.name)
        for partition in partitions:
            self.logs.open(topic.name, topic.topic_id, partition, config)


TOPIC = ConfigResourceType.TOPIC
BROKER = ConfigResourceType.BROKER


class _Thread(threading.Thread):
    """The thread of a broker that is not in the caller's loop."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(name="krammar-broker", daemon=True)
        self.broker = broker
        self.ready = threading.Event()
        self.error: BaseException | None = None
        self.stop: asyncio.Event | None = None

    def start_broker(self) -> None:
        self.start()
        self.ready.wait()
        if self.error is not None:
            self.join()
            raise self.error

    def stop_broker(self) -> None:
        stop = self.stop
        if stop is not None and self.is_alive():
            self.broker.loop.call_soon_threadsafe(stop.set)
        self.join()

    def run(self) -> None:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self.stop = asyncio.Event()
        try:
            await self.broker.open()
        except BaseException as error:
            self.error = error
            return
        finally:
            self.ready.set()
        await self.stop.wait()
        await self.broker.shut_down()


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's where it is installed, else asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
