"""The request of a reader, and the limits for its response."""

from __future__ import annotations

from collections.abc import Iterable

from kafka_wire import FetchRequest, IsolationLevel

from krammar.client.cluster import Cluster
from krammar.client.offsets import group_topics
from krammar.client.positions import ReadPosition
from krammar.client.settings import Settings


class FetchLimits:
    """The most bytes of a response, and of a partition in it.

    Args:
        first_bytes: the limit of the first response; each later one may be four times as large. None: only the
            settings limit responses.
    """

    def __init__(self, settings: Settings, first_bytes: int | None) -> None:
        self._settings = settings
        self._grows = first_bytes is not None
        self._set(settings.max_partition_fetch_bytes if first_bytes is None else first_bytes)

    def grow(self) -> None:
        """Allow a larger response."""
        if self._grows:
            self._set(4 * self.partition)

    def _set(self, size: int) -> None:
        self.partition = min(self._settings.max_partition_fetch_bytes, size)
        self.response = self._settings.fetch_max_bytes
        if self._grows:
            self.response = min(self.response, self.partition)


def fetch_request(
    cluster: Cluster, positions: Iterable[ReadPosition], limits: FetchLimits
) -> FetchRequest:
    """Return the request for some partitions of one broker."""
    settings, topics = cluster.settings, cluster.metadata.topics
    by_name = {p.at: p for p in positions}
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=settings.fetch_max_wait_ms,
        min_bytes=settings.fetch_min_bytes,
        max_bytes=limits.response,
        isolation_level=(
            IsolationLevel.READ_COMMITTED
            if settings.read_committed
            else IsolationLevel.READ_UNCOMMITTED
        ),
        session_id=0,
        session_epoch=-1,
        topics=[
            FetchRequest.FetchTopic(
                topic=name,
                topic_id=topics[name].topic_id,
                partitions=[
                    FetchRequest.FetchPartition(
                        partition=at.partition,
                        current_leader_epoch=cluster.partition(at).leader_epoch,
                        fetch_offset=by_name[at].offset,
                        partition_max_bytes=limits.partition,
                    )
                    for at in partitions
                ],
            )
            for name, partitions in group_topics(by_name).items()
        ],
        rack_id=settings.client_rack,
    )
