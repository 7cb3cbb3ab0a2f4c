"""The client: one object for tools and for Spark executors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any
from uuid import UUID

from krammar.client.cluster import Cluster
from krammar.client.fetch import Reader
from krammar.client.metadata import Node, Topic, TopicPartition
from krammar.client.offsets import At, OffsetAt, list_offsets
from krammar.client.settings import Settings
from krammar.util.closing import Closing
from krammar.wire.batches import Record

if TYPE_CHECKING:
    from krammar.client.admin import Admin
    from krammar.client.group_overview import GroupOverviews
    from krammar.client.groups import Groups
    from krammar.client.produce import Producer

# Arguments accept a plain pair as a partition.
Partitions = Mapping[TopicPartition, int] | Mapping[tuple[str, int], int]


class Client(Closing):
    """A blocking client of a cluster.

    ```python
    with Client("localhost:9092") as client:
        for at, record in client.records("orders"):
            print(at, record.offset, record.value)
    ```

    The client connects when the first operation needs a connection. It is not thread-safe: each thread or process
    creates its own client from the same ``Settings``, which can be pickled. ``admin`` creates and changes
    topics, ``groups`` reads and commits the offsets of groups.

    Every operation has an argument ``timeout_ms`` (default: ``default.api.timeout.ms``). After that time it raises
    DeadlineError, or UnreachableError if no server can be reached. If all servers refuse the first
    connection, UnreachableError is raised immediately, unless ``krammar.retry.bootstrap`` is true.

    Args:
        servers: ``bootstrap.servers``, such as ``"a:9092,b:9092"``, or complete settings.
        settings: settings by Kafka's names.
        more: settings as keywords with underscores, such as ``isolation_level="read_committed"``.

    Raises:
        SettingsError: a setting is unknown or invalid.
        ClientError: base of all errors of operations.
    """

    def __init__(
        self,
        servers: str | Iterable[str] | Settings | None = None,
        settings: Mapping[str, Any] | None = None,
        /,
        **more: Any,
    ) -> None:
        if isinstance(servers, Settings):
            self.settings = servers.with_(settings, **more) if settings or more else servers
        else:
            given = dict(settings or {})
            if servers is not None:
                given["bootstrap.servers"] = servers
            self.settings = Settings.of(given, **more)
        self.cluster = Cluster(self.settings)

    # Imported on first use: they take a third of the client's import time, and processes of Spark that
    # only read do not need them.

    @cached_property
    def admin(self) -> Admin:
        """Creates, changes and describes topics and settings."""
        from krammar.client.admin import Admin

        return Admin(self.cluster)

    @cached_property
    def groups(self) -> Groups:
        """Lists consumer groups, and reads and commits their offsets."""
        from krammar.client.groups import Groups

        return Groups(self.cluster)

    @cached_property
    def group_overviews(self) -> GroupOverviews:
        """Describes classic, consumer and share groups in one form, and changes their offsets."""
        from krammar.client.group_overview import GroupOverviews

        return GroupOverviews(self.cluster, self.groups)

    def close(self) -> None:
        """Close all connections of the client. Producers have their own connections; close them first."""
        self.cluster.close()

    # Topics and brokers.

    def topics(
        self, names: Iterable[str] | None = None, *, timeout_ms: float | None = None
    ) -> dict[str, Topic]:
        """Return topics by name.

        Args:
            names: the topics; None means all.

        Raises:
            UnknownTopicOrPartition: a topic does not exist; there are no retries.
            TopicAuthorizationFailed: the client may not describe a topic.
        """
        deadline = self.cluster.deadline("listing topics", timeout_ms)
        wanted = None if names is None else list(names)
        found = self.cluster.refresh(wanted, deadline, auto_create=False)
        for topic in found:
            if topic.error is not None and wanted is not None:
                raise topic.error
        return {topic.name: topic for topic in found if topic.error is None}

    def partitions(self, topic: str, *, timeout_ms: float | None = None) -> list[TopicPartition]:
        """Return the partitions of a topic, sorted. Raises the same errors as ``topics``."""
        found = self.topics([topic], timeout_ms=timeout_ms)[topic]
        return [TopicPartition(topic, index) for index in sorted(found.partitions)]

    def nodes(self, *, timeout_ms: float | None = None) -> dict[int, Node]:
        """Return the brokers by id."""
        self.cluster.refresh([], self.cluster.deadline("listing brokers", timeout_ms))
        return dict(self.cluster.metadata.nodes)

    # Writing.

    def producer(self, settings: Mapping[str, Any] | None = None, /, **more: Any) -> Producer:
        """Return a producer with the client's settings and these changes. It has its own connections."""
        from krammar.client.produce import Producer

        own = self.settings
        if (
            self.cluster.reached
        ):  # the brokers exist; if they refuse connections, they are restarting
            own = own.with_(krammar_retry_bootstrap=True)
        return Producer(own.with_(settings, **more) if settings or more else own)

    # Reading.

    def list_offsets(
        self,
        wanted: Partitions,
        *,
        isolation_level: str | None = None,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, OffsetAt]:
        """Return an offset for each partition.

        Args:
            wanted: for each partition a place (``At.EARLIEST``, ``At.LATEST``, ``At.MAX_TIMESTAMP``), or a
                time in milliseconds since 1970; a time gives the first record that is not older.
            isolation_level: with ``read_committed``, ``At.LATEST`` is the last stable offset. Default: the
                client's setting.
        """
        level = isolation_level or self.settings.isolation_level
        return list_offsets(
            self.cluster,
            _partitions(wanted),
            self.cluster.deadline("listing offsets", timeout_ms),
            read_committed=level == "read_committed",
        )

    def fetch(
        self,
        positions: Partitions,
        *,
        until: Partitions | None = None,
        epochs: Partitions | None = None,
        topic_ids: Mapping[str, UUID] | None = None,
        first_bytes: int | None = None,
        timeout_ms: float | None = None,
    ) -> Reader:
        """Return a reader of partitions.

        Args:
            positions: the first offset of each partition, or ``At.EARLIEST`` or ``At.LATEST``.
            until: the offsets at which reading ends, exclusive; the same values are accepted.
            epochs: the leader epochs of the last records before ``positions``; see ``Reader``.
            topic_ids: the ids that the topics must have; see ``Reader``.
            first_bytes: the size limit of the first response; see ``Reader``.
            timeout_ms: the time for finding the earliest and latest offsets.

        Raises:
            ValueError: an offset is negative and not in ``At``.
        """
        deadline = self.cluster.deadline("listing offsets", timeout_ms)
        begin = self._resolve(_partitions(positions), deadline)
        end = None if until is None else self._resolve(_partitions(until), deadline)
        known = None if epochs is None else _partitions(epochs)
        return Reader(
            self.cluster,
            begin,
            until=end,
            epochs=known,
            topic_ids=topic_ids,
            first_bytes=first_bytes,
        )

    def records(
        self,
        topic: str,
        *,
        begin: int = At.EARLIEST,
        end: int | None = At.LATEST,
        timeout_ms: float | None = None,
    ) -> Iterator[tuple[TopicPartition, Record]]:
        """Yield the records that a topic has now, in order within each partition.

        Args:
            begin: the first offset in each partition, or ``At.EARLIEST`` or ``At.LATEST``.
            end: the offset at which reading ends, exclusive; None waits for new records forever.
        """
        partitions = self.partitions(topic, timeout_ms=timeout_ms)
        until = None if end is None else dict.fromkeys(partitions, end)
        reader = self.fetch(dict.fromkeys(partitions, begin), until=until, timeout_ms=timeout_ms)
        return reader.records()

    def _resolve(
        self, wanted: dict[TopicPartition, int], deadline: Any
    ) -> dict[TopicPartition, int]:
        places = {at: offset for at, offset in wanted.items() if offset < 0}
        if not places:
            return wanted
        for at, offset in places.items():
            if offset < min(At):
                raise ValueError(f"{at}: offset {offset} is negative")
        found = list_offsets(
            self.cluster, places, deadline, read_committed=self.settings.read_committed
        )
        return {at: found[at].offset if at in found else offset for at, offset in wanted.items()}


def _partitions(wanted: Partitions) -> dict[TopicPartition, int]:
    return {TopicPartition(*at): int(value) for at, value in wanted.items()}
