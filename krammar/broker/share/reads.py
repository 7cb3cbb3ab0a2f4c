"""The numbers of share groups that the metrics read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from krammar.broker.cluster import ClusterMetadata
from krammar.broker.errors import ApiError
from krammar.broker.log.manager import LogManager
from krammar.broker.share.partitions import SharePartitions
from krammar.broker.share.records import UNKNOWN, SharePartitionKey
from krammar.broker.share.sessions import ShareSessions
from krammar.broker.share.state import ShareStates
from krammar.util.prometheus import Read, Values

_GROUPS = "kafka_server_sharegroupmetrics"
_PARTITIONS = "kafka_server_sharepartitionmetrics"
_SESSIONS = "kafka_server_sharesessioncache"


@dataclass(eq=False)
class ShareReads:
    """Reads the numbers of the share groups of a broker.

    Attributes:
        nodes: returns the share partitions and sessions of each node
    """

    nodes: Callable[[], Iterable[tuple[SharePartitions, ShareSessions]]]
    states: ShareStates
    cluster: ClusterMetadata
    logs: LogManager

    def reads(self) -> dict[str, Read]:
        """Return the functions by the names of the metrics."""
        return {
            f"{_GROUPS}_recordacknowledgements_total": lambda: {
                (kind,): number for kind, number in self._acknowledged().items()
            },
            f"{_GROUPS}_deadletterqueuerecordcount_total": lambda: self._by_group("dead_letters"),
            f"{_GROUPS}_deadletterqueuefailedproducerequests_total": lambda: self._by_group(
                "failed_dead_letters"
            ),
            f"{_PARTITIONS}_acquisitionlocktimeout_total": self._expired,
            f"{_PARTITIONS}_inflightmessagecount": self._in_flight,
            f"{_SESSIONS}_sharesessionscount": lambda: sum(
                len(sessions) for _, sessions in self.nodes()
            ),
            f"{_SESSIONS}_sharepartitionscount": lambda: sum(
                sessions.partitions for _, sessions in self.nodes()
            ),
            "krammar_sharegroup_start_offset": lambda: {
                key: start for key, start, _ in self._positions()
            },
            "krammar_sharegroup_lag": lambda: {key: lag for key, _, lag in self._positions()},
        }

    def _acknowledged(self) -> Counter[str]:
        return sum((each.counts.acknowledged for each, _ in self.nodes()), Counter())

    def _by_group(self, name: str) -> dict[Values, float]:
        each = (getattr(partitions.counts, name) for partitions, _ in self.nodes())
        return {(group,): number for group, number in sum(each, Counter()).items()}

    def _expired(self) -> dict[Values, float]:
        found: dict[Values, float] = {}
        for partitions, _ in self.nodes():
            for key, number in partitions.counts.expired.items():
                if (labels := self._labels(key)) is not None:
                    found[labels] = found.get(labels, 0) + number
        return found

    def _in_flight(self) -> dict[Values, float]:
        return {
            labels: led.states.in_flight
            for partitions, _ in self.nodes()
            for led in partitions
            if led.is_current and (labels := self._labels(led.key)) is not None
        }

    def _positions(self) -> Iterator[tuple[Values, int, int]]:
        """Yield labels, start offset and lag of the share partitions that members have begun to read."""
        for key in self.states.all_keys():
            labels = self._labels(key)
            if labels is None:
                continue
            try:
                stored = self.states.read_summary(*key)
            except ApiError:  # requests about the state report it
                continue
            log = self.logs.get(labels[1], key[2])
            if stored is None or log is None or stored.state.start_offset == UNKNOWN:
                continue
            done = max(0, stored.state.delivery_complete_count)
            start = stored.state.start_offset
            yield labels, start, max(0, log.end_offset - start - done)

    def _labels(self, key: SharePartitionKey) -> Values | None:
        """Return group, topic and partition; None if the topic was deleted."""
        topic = self.cluster.topics_by_id.get(key[1])
        return None if topic is None else (key[0], topic.name, str(key[2]))
