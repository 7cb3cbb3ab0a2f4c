"""The client: one object with all that tools and executors need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from krammar.client.cluster import Cluster
from krammar.client.fetch import Reader
from krammar.client.metadata import Node, Topic, TopicPartition
from krammar.client.offsets import At, OffsetAt, list_offsets
from krammar.client.settings import Settings
from krammar.wire.record_format import Record

if TYPE_CHECKING:
    from krammar.client.admin import Admin
    from krammar.client.groups import Groups
    from krammar.client.produce import Producer

# A pair will do where a partition is asked for.
Partitions = Mapping[TopicPartition, int] | Mapping[tuple[str, int], int]


class Client:
    """A blocking client of a cluster.

    ```python
    with Client("localhost:9092") as client:
        for at, record in client.records("orders"):
            print(at, record.offset, record.value)
    ```

    ``servers`` is ``bootstrap.servers``; settings go by Kafka's names in a mapping, or as keywords with
    underscores: ``Client("a:9092", isolation_level="read_committed")``. Nothing is connected before it is
    needed. Not for several threads at once; a process or thread makes its own of the same ``Settings``,
    which can be pickled. ``admin`` makes and changes topics, ``groups`` knows how far groups have read.

    Every operation takes ``timeout_ms``, ``default.api.timeout.ms`` unless given, and ends with DeadlineError
    (UnreachableError where no server can be reached) when that has passed. All raise ClientError.
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

    # Loaded when they are used: Spark starts processes that only read, and these take a third of the
    # time in which the client is imported.

    @cached_property
    def admin(self) -> Admin:
        """Topics and their settings: making, changing, describing."""
        from krammar.client.admin import Admin

        return Admin(self.cluster)

    @cached_property
    def groups(self) -> Groups:
        """How far groups have read."""
        from krammar.client.groups import Groups

        return Groups(self.cluster)

    def close(self) -> None:
        """Close all connections. What producers have not sent is lost unless they are closed before."""
        self.cluster.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # What there is.

    def topics(
        self, names: Iterable[str] | None = None, *, timeout_ms: float | None = None
    ) -> dict[str, Topic]:
        """Topics by name, all of them unless some are named. Raises UnknownTopicOrPartition at once for
        one that is not there, TopicAuthorizationFailed, …"""
        deadline = self.cluster.deadline("listing topics", timeout_ms)
        wanted = None if names is None else list(names)
        found = self.cluster.refresh(wanted, deadline, auto_create=False)
        for topic in found:
            if topic.error is not None and wanted is not None:
                raise topic.error
        return {topic.name: topic for topic in found if topic.error is None}

    def partitions(self, topic: str, *, timeout_ms: float | None = None) -> list[TopicPartition]:
        """The partitions of a topic, in order. Raises as ``topics`` does."""
        found = self.topics([topic], timeout_ms=timeout_ms)[topic]
        return [TopicPartition(topic, index) for index in sorted(found.partitions)]

    def nodes(self, *, timeout_ms: float | None = None) -> dict[int, Node]:
        """The brokers by id."""
        self.cluster.refresh([], self.cluster.deadline("listing brokers", timeout_ms))
        return dict(self.cluster.metadata.nodes)

    # Writing.

    def producer(self, settings: Mapping[str, Any] | None = None, /, **more: Any) -> Producer:
        """A producer, with these settings beside the client's; it has connections of its own."""
        from krammar.client.produce import Producer

        return Producer(
            self.settings.with_(settings, **more) if settings or more else self.settings
        )

    # Reading.

    def list_offsets(
        self,
        wanted: Partitions,
        *,
        isolation_level: str | None = None,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, OffsetAt]:
        """For each partition the offset at a place (``At.EARLIEST``, ``At.LATEST``, ``At.MAX_TIMESTAMP``) or of
        the first record with a timestamp of that many milliseconds since 1970 or later.

        With ``read_committed`` the latest is the last stable offset.
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
        timeout_ms: float | None = None,
    ) -> Reader:
        """A reader of the partitions from these offsets on, up to but without ``until``. Both may be
        ``At.EARLIEST`` and ``At.LATEST`` too; ``timeout_ms`` is for finding out what these are.
        """
        deadline = self.cluster.deadline("listing offsets", timeout_ms)
        begin = self._resolve(_partitions(positions), deadline)
        end = None if until is None else self._resolve(_partitions(until), deadline)
        known = None if epochs is None else _partitions(epochs)
        return Reader(self.cluster, begin, until=end, epochs=known)

    def records(
        self,
        topic: str,
        *,
        begin: int = At.EARLIEST,
        end: int | None = At.LATEST,
        timeout_ms: float | None = None,
    ) -> Iterator[tuple[TopicPartition, Record]]:
        """All records of a topic as it is now, in order within each partition. With ``end=None`` it goes on
        with those that are still to come."""
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
        found = list_offsets(
            self.cluster, places, deadline, read_committed=self.settings.read_committed
        )
        return {at: found[at].offset if at in found else offset for at, offset in wanted.items()}


def _partitions(wanted: Partitions) -> dict[TopicPartition, int]:
    return {TopicPartition(*at): int(value) for at, value in wanted.items()}
