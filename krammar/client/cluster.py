"""The cluster: connections to its brokers, its metadata, and the choice of the broker for a request."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from kafka_wire import ErrorCode, MetadataRequest

from krammar.client.connection import Connection, wait
from krammar.client.deadline import Backoff, Deadline
from krammar.client.errors import (
    AdvertisedAddressError,
    ClientError,
    StateError,
    TransportError,
    UnreachableError,
    kafka_error,
)
from krammar.client.in_flight import RequestInFlight
from krammar.client.metadata import Metadata, Partition, Topic, TopicPartition
from krammar.client.probe import is_refusal
from krammar.client.settings import Settings
from krammar.client.tls import client_context
from krammar.client.transport import Address
from krammar.util.sockets import address_text


class AdvertisedAddresses:
    """The failures until a client reaches an advertised address; ``reached`` is true from then on.

    They show that a client reaches its bootstrap servers, but no address that the brokers advertise.
    """

    # How long a client tries, in seconds. A broker that has just started may answer before its name is published.
    PATIENCE = 5.0

    def __init__(self) -> None:
        self.reached = False
        self._since: float | None = None
        self._tried: dict[str, str] = {}

    def failed(
        self,
        address: Address,
        error: TransportError,
        began: float,
        *,
        advertised: Iterable[Address],
        connections: Iterable[Connection],
    ) -> None:
        """Note that an advertised address cannot be reached.

        Args:
            began: when connecting began, by ``time.monotonic``.
            advertised: all addresses in the cluster's metadata.
            connections: the open connections.

        Raises:
            AdvertisedAddressError: no address was reached for five seconds, but a bootstrap server answers.
        """
        if self._since is None:
            self._since = began
        name = address_text(address)
        self._tried[name] = str(error).removeprefix(f"{name}: ")
        open_to = {connection.address for connection in connections}
        if (
            time.monotonic() - self._since < self.PATIENCE
            or not open_to
            or open_to & set(advertised)
        ):
            return
        raise AdvertisedAddressError(min(map(address_text, open_to)), self._tried) from error


T = TypeVar("T")


class Cluster:
    """The brokers of a cluster; connections are opened when they are needed.

    Every operation ends at its deadline. Operations retry with growing pauses after lost connections, after errors that
    Kafka marks as retriable, and if a leader or coordinator has moved. Not thread-safe.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.metadata = Metadata()
        self._context = client_context(settings) if settings.tls else None
        self._connections: dict[Address, Connection] = {}
        self._failed: dict[Address, float] = {}
        self._advertised = AdvertisedAddresses()
        self.reached = False  # whether any connection was ever established
        self._closed = False

    def close(self) -> None:
        """Close all connections."""
        self._closed = True
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # Time.

    def deadline(self, doing: str, timeout_ms: float | None = None) -> Deadline:
        """Return the deadline ``timeout_ms`` from now; the default is ``default.api.timeout.ms``."""
        limit = self.settings.default_api_timeout_ms if timeout_ms is None else timeout_ms
        return Deadline(limit, doing)

    def broker_timeout_ms(self, deadline: Deadline) -> int:
        """Return how long a broker may take for a request."""
        return min(self.settings.request_timeout_ms, max(1, deadline.left_ms))

    def backoff(self) -> Backoff:
        """Return new pauses with the settings ``retry.backoff.ms`` and ``retry.backoff.max.ms``."""
        s = self.settings
        return Backoff(s.retry_backoff_ms, s.retry_backoff_max_ms, s.retries)

    def retrying(self, deadline: Deadline, attempt: Callable[[], T]) -> T:
        """Call ``attempt`` until it succeeds, and return its result.

        Raises the error of an attempt if retrying cannot help; see ``Backoff.delay``.
        """
        backoff = self.backoff()
        while True:
            try:
                return attempt()
            except ClientError as error:
                backoff.pause(deadline, error)

    # Connections.

    @property
    def connections(self) -> list[Connection]:
        """The open connections."""
        return [c for c in self._connections.values() if c.closed is None]

    def _open(self, address: Address, deadline: Deadline) -> Connection:
        if self._closed:
            raise StateError("the client is closed")
        connection = self._connections.get(address)
        if connection is not None:
            connection.renew_login(deadline)
            if connection.usable:
                return connection
            del self._connections[address]
        try:
            connection = Connection(address, self.settings, deadline, self._context)
        except TransportError:
            self._failed[address] = time.monotonic()
            raise
        self._failed.pop(address, None)
        self.reached = True
        self._connections[address] = connection
        return connection

    def node(self, node_id: int, deadline: Deadline) -> Connection:
        """Return the connection to a broker.

        Raises:
            TransportError: the broker cannot be reached, or its address is unknown.
            AdvertisedAddressError: only bootstrap servers can be reached, for five seconds.
            AuthenticationError: the broker refuses the login.
        """
        node = self.metadata.nodes.get(node_id)
        if node is None:
            raise TransportError(f"broker {node_id}", "its address is not known")
        address = (node.host, node.port)
        if self._advertised.reached:
            return self._open(address, deadline)
        began = time.monotonic()
        try:
            connection = self._open(address, deadline)
        except TransportError as error:
            known, open_ = self._known_addresses(), self.connections
            self._advertised.failed(address, error, began, advertised=known, connections=open_)
            raise
        self._advertised.reached = True
        return connection

    def any(self, deadline: Deadline) -> Connection:
        """Return the connection to any broker.

        Open connections are preferred, the least busy ones first, then known brokers, then ``bootstrap.servers``.

        Raises:
            UnreachableError: no server can be reached. It is not retriable if all refuse the client's
                first connection.
            AuthenticationError: the broker refuses the login.
        """
        # Sorted into a copy, because connections may be removed during the loop. In random order, because a broker
        # that is cut off from the others has old metadata.
        order = {each: (each.in_flight, random.random()) for each in self._connections.values()}
        for connection in sorted(order, key=order.__getitem__):
            connection.renew_login(deadline)
            if connection.usable:
                return connection
        known = self._known_addresses()
        random.shuffle(known)
        candidates = list(dict.fromkeys([*known, *self.settings.bootstrap_servers]))
        candidates.sort(key=lambda address: self._failed.get(address, 0.0))
        tried: dict[str, str] = {}
        retriable = self.reached or self.settings.krammar_retry_bootstrap
        for index, address in enumerate(candidates):
            # Each server gets a share of the time, so that one without an answer leaves time for the others.
            share = deadline.left_ms / (len(candidates) - index)
            try:
                return self._open(address, Deadline(share, deadline.doing))
            except TransportError as error:
                name = address_text(address)
                tried[name] = str(error).removeprefix(f"{name}: ")
                retriable = retriable or not is_refusal(error)
        raise UnreachableError(tried, retriable=retriable)

    def _known_addresses(self) -> list[Address]:
        return [(node.host, node.port) for node in self.metadata.nodes.values()]

    # Requests.

    def send(
        self,
        connection: Connection,
        request: Any,
        deadline: Deadline,
        *,
        low: int = 0,
        high: int = 32767,
        extra_ms: int = 0,
        expect_response: bool = True,
    ) -> RequestInFlight:
        """Queue a request on a connection; it expires after ``request.timeout.ms`` plus ``extra_ms``.

        Args:
            low: the lowest version that can be used.
            high: the highest version that can be used.
        """
        throttled = connection.throttled_until - time.monotonic()
        if throttled > 0:
            time.sleep(min(throttled, deadline.left))
        limit = self.settings.request_timeout_ms + extra_ms
        return connection.send(
            request,
            low=low,
            high=high,
            timeout_ms=min(limit, max(1, deadline.left_ms)),
            expect_response=expect_response,
        )

    def wait(self, seconds: float) -> None:
        """Wait until one of the connections with requests in flight receives data."""
        wait([c for c in self._connections.values() if c.in_flight], seconds)

    def wait_for(self, pending: RequestInFlight, deadline: Deadline) -> Any:
        """Wait for a response. Raises DeadlineError, and the errors of ``RequestInFlight.result``."""
        while not pending.done:
            deadline.check()
            self.wait(deadline.left)
        return pending.result()

    def call(
        self,
        request: Any,
        deadline: Deadline,
        *,
        node_id: int | None = None,
        low: int = 0,
        high: int = 32767,
        check: Callable[[Any], None] | None = None,
    ) -> Any:
        """Send a request and return the response; retry after retriable errors.

        Args:
            node_id: the broker; None means any.
            check: raises the error that a response contains.
        """

        def attempt() -> Any:
            connection = self.any(deadline) if node_id is None else self.node(node_id, deadline)
            response = self.wait_for(
                self.send(connection, request, deadline, low=low, high=high), deadline
            )
            if check is not None:
                check(response)
            return response

        return self.retrying(deadline, attempt)

    # Metadata.

    def refresh_once(
        self, names: Iterable[str] | None, deadline: Deadline, *, auto_create: bool | None
    ) -> list[Topic]:
        """Request metadata as ``refresh`` does, but without retries."""
        if auto_create is None:
            auto_create = self.settings.allow_auto_create_topics
        connection = self.any(deadline)
        topics = None if names is None else [MetadataRequest.Topic(name=name) for name in names]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=auto_create)
        low = 0 if auto_create else 4
        response = self.wait_for(self.send(connection, request, deadline, low=low), deadline)
        if response.error_code:
            if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
                self._rebootstrap()
                raise TransportError(str(connection), "the broker now belongs to another cluster")
            raise kafka_error(response.error_code, "Metadata")
        if not response.brokers:
            raise TransportError(str(connection), "the broker knows no brokers")
        return self.metadata.update(response, time.monotonic())

    def _rebootstrap(self) -> None:
        """Start again from ``bootstrap.servers`` (KIP-1102)."""
        self.metadata = Metadata()
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def refresh(
        self, names: Iterable[str] | None, deadline: Deadline, *, auto_create: bool | None = None
    ) -> list[Topic]:
        """Request metadata and return the topics; a topic that has failed has its ``error`` set.

        Args:
            names: the topics; None means all.
            auto_create: whether the broker may create missing topics; the default is the setting
                ``allow.auto.create.topics``.
        """
        names = None if names is None else list(names)
        return self.retrying(
            deadline, lambda: self.refresh_once(names, deadline, auto_create=auto_create)
        )

    def update_topics(
        self, names: Iterable[str], deadline: Deadline, *, auto_create: bool | None = None
    ) -> None:
        """Request metadata once for topics that are unknown, or older than ``metadata.max.age.ms``.

        Raises:
            TransportError: the brokers cannot be reached.
            KafkaError: a topic has an error that is not retriable.
        """
        limit = self.settings.metadata_max_age_ms
        stale = [n for n in dict.fromkeys(names) if not self.metadata.is_fresh(n, limit)]
        if stale:
            for topic in self.refresh_once(stale, deadline, auto_create=auto_create):
                if topic.error is not None and not topic.error.retriable:
                    raise topic.error

    def topic(self, name: str, deadline: Deadline, *, auto_create: bool | None = None) -> Topic:
        """Return the metadata of a topic, requested if it is unknown or too old.

        Raises:
            UnknownTopicOrPartition: the topic does not exist.
        """

        def attempt() -> Topic:
            if not self.metadata.is_fresh(name, self.settings.metadata_max_age_ms):
                for topic in self.refresh_once([name], deadline, auto_create=auto_create):
                    if topic.error is not None:
                        raise topic.error
            found = self.metadata.topics.get(name)
            if found is None:
                raise kafka_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
            return found

        return self.retrying(deadline, attempt)

    def partition(self, at: TopicPartition) -> Partition:
        """Return the known metadata of a partition.

        Raises:
            UnknownTopicOrPartition: the partition is unknown.
            LeaderNotAvailable: the partition has no leader.
        """
        topic = self.metadata.topics.get(at.topic)
        found = None if topic is None else topic.partitions.get(at.partition)
        if found is None:
            raise kafka_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(at))
        if found.leader < 0:
            raise kafka_error(ErrorCode.LEADER_NOT_AVAILABLE, str(at))
        return found

    def features(self, deadline: Deadline) -> dict[str, int]:
        """Return the levels of the cluster's finalized features (KIP-584)."""
        return self.retrying(deadline, lambda: self.any(deadline).versions.features)
