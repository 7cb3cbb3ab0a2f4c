"""The cluster metadata in ``__cluster_metadata-0``: topics, settings, credentials, features.

This broker is the only controller of its cluster. A change takes effect after it was written to the
log, as one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import kafka_wire as kw

from krammar.broker.errors import ApiError, BrokerError
from krammar.broker.meta_properties import identify, random_uuid
from krammar.broker.metadata_files import Placed, bootstrap_records
from krammar.broker.metadata_image import (
    INTERNAL_TOPICS,
    OFFSETS_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTIONS_TOPIC,
    Image,
    Partition,
    Topic,
    config_records,
)
from krammar.broker.metadata_log import MetadataLog
from krammar.broker.metadata_records import (
    KRAFT_VERSION,
    LEVEL_3_7_IV2,
    METADATA_VERSION,
    check_record,
    encode_frame,
    end_points_of,
    features_of,
    only_voter,
    setting_problem,
    supported_features,
)
from krammar.logfiles.names import METADATA_TOPIC, partition_folder
from krammar.util.logs import FewWarnings
from krammar.util.turns import Steps, finish
from krammar.wire.batches import ControlRecordType
from krammar.wire.message import Codec

if TYPE_CHECKING:
    from krammar.broker.config import BrokerConfig, Listener

__all__ = [
    "INTERNAL_TOPICS",
    "OFFSETS_TOPIC",
    "SHARE_STATE_TOPIC",
    "TRANSACTIONS_TOPIC",
    "ClusterMetadata",
    "Partition",
    "Topic",
]

# A record, and its frame in the log.
Encoded = tuple[Codec, bytes]

FOLDER = partition_folder(METADATA_TOPIC, 0)
UNASSIGNED_DIRECTORY = UUID(int=1)
# On close, a snapshot replaces a large log with more than this many records per record of it.
GARBAGE_FACTOR = 4


class ClusterMetadata(Image):
    """The state of the cluster.

    Attributes:
        cluster_id: in Kafka's text form
        node_id: the controller
        running: the ids of this process's nodes that the cluster sees
        directory_ids: the ids of the log directories, in the order of ``log.dirs``
        log: the files
        snapshot_bytes: a snapshot replaces a larger log; Kafka's default of
            `metadata.log.max.record.bytes.between.snapshots`
        garbage_bytes: the size of a large log
    """

    snapshot_bytes = 20 << 20
    garbage_bytes = 1 << 20

    def __init__(
        self,
        config: BrokerConfig,
        *,
        node_ids: Sequence[int] = (),
        now_ms: Callable[[], int],
        warn: Callable[[str], None],
    ) -> None:
        """Read the folder ``__cluster_metadata-0``; create it if it is missing.

        Log directories without ``meta.properties`` get one. ``node_ids`` are the nodes of this
        process, if there are several; the first one is the controller.

        Raises:
            BrokerError: a file cannot be read or written, or belongs to another cluster.
        """
        node_ids = node_ids or [config.node_id]
        super().__init__(*node_ids)
        self.node_id = node_ids[0]
        self.running = set(node_ids)
        # Frozen copies write through it.
        self._original = self
        folder, fsync = config.metadata_log_dir, config.fsync != "off"
        self.log = log = MetadataLog(folder / FOLDER, self.node_id, fsync, now_ms, warn)
        self.cluster_id, ids = identify(
            [*config.log_dirs, folder], self.node_id, config.cluster_id, warn, durable=fsync
        )
        self._new_features = features_of(config.kafka_version)[1]
        self.directory_ids = [ids[directory] for directory in config.log_dirs]
        self._load(log.read())
        if log.end_offset == 0:
            self._format()
        quorum = log.kraft.get(ControlRecordType.KRAFT_VERSION)
        if quorum is not None and quorum.k_raft_version > 0:
            self.features[KRAFT_VERSION] = quorum.k_raft_version

    def _load(self, records: Iterable[Placed]) -> None:
        """Check and apply records of the log. Raises BrokerError.

        Settings that are invalid in this version have no effect, with a warning.
        """
        ignored: dict[tuple[int, str, str], str] = {}
        for path, offset, record in records:
            try:
                check_record(record)
                self.apply(record)
            except ApiError as error:
                raise _invalid(path, offset, record, error) from None
            if isinstance(record, kw.ConfigRecord):
                key = record.resource_type, record.resource_name, record.name
                problem = setting_problem(record)
                ignored.pop(key, None)
                if problem is not None:
                    ignored[key] = (
                        f"{path}, offset {offset}: {record.name}={record.value!r}: {problem}"
                    )
        for topic in self.topics.values():
            missing = next(
                (n for n in range(len(topic.partitions)) if n not in topic.partitions), None
            )
            if missing is not None:
                raise BrokerError(
                    f"{self.log.directory}: topic {topic.name} has {len(topic.partitions)} partitions up to number"
                    f" {max(topic.partitions)}, but not partition {missing}; restore the folder from a copy"
                )
        warn = FewWarnings(self.log.warn)
        for text in ignored.values():
            warn(f"{text}; the setting has no effect")
        warn.end(self.log.directory)

    def close(self) -> None:
        """Close the log, after a snapshot if most of its records are outdated."""
        log = self.log
        if log.size >= self.garbage_bytes and log.records > GARBAGE_FACTOR * len([*self.records()]):
            self._snapshot()
        log.close()

    @property
    def last_offset(self) -> int:
        """The offset of the newest record in the log; every change increases it."""
        return self.log.end_offset - 1

    @property
    def controller_listeners(self) -> list[tuple[str, str, int]]:
        """Name, host and port of the controller's listeners, as in the log. This broker does not open them."""
        quorum = self.log.kraft.get(ControlRecordType.KRAFT_VOTERS, kw.VotersRecord())
        return [
            (each.name, each.host, each.port) for one in quorum.voters for each in one.endpoints
        ]

    # Changes. All of these raise StorageError, and change nothing, if the log cannot be written.

    def append(self, records: Sequence[Codec]) -> None:
        """Write records as one batch, then apply them."""
        self._append(finish(self._encoding(records)))

    def _encoding(self, records: Iterable[Codec]) -> Steps[list[Encoded]]:
        """Encode records in steps, at the versions that belong to the ``metadata.version``."""
        encoded = []
        level = self._original.level
        for record in records:
            if isinstance(record, kw.FeatureLevelRecord) and record.name == METADATA_VERSION:
                level = record.feature_level
            encoded.append((record, encode_frame(record, level)))
            yield None
        return encoded

    def _append(self, encoded: Sequence[Encoded]) -> None:
        if encoded:
            self._original._lead()
            self._original._write(encoded)

    def creating_topic(
        self,
        name: str,
        partitions: int,
        configs: Mapping[str, str] | None = None,
        *,
        topic_id: UUID | None = None,
        replicas: Sequence[Sequence[int]] | None = None,
    ) -> Steps[Topic]:
        """Add a topic, in steps before it is visible.

        Without ``replicas``, each partition has one, on the first node. Raises
        ApiError(TOPIC_ALREADY_EXISTS).
        """
        if topic_id is None:
            topic_id = random_uuid()
        first = [
            kw.TopicRecord(name=name, topic_id=topic_id),
            *config_records(kw.ConfigResourceType.TOPIC, name, configs or {}),
        ]
        new = self._new_partitions(topic_id, range(partitions), replicas)
        encoded = yield from self._encoding(chain(first, new))
        if name in self.topics:
            raise ApiError(kw.ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        self._append(encoded)
        return self.topics_by_id[topic_id]

    def delete_topic(self, topic: Topic) -> None:
        """Remove a topic and its settings."""
        self.append([kw.RemoveTopicRecord(topic_id=topic.topic_id)])

    def adding_partitions(
        self, topic: Topic, count: int, replicas: Sequence[Sequence[int]] | None = None
    ) -> Steps[range]:
        """Increase the number of partitions of a topic to ``count``, in steps before they are visible.

        ``replicas`` are those of the new ones. Returns the new partitions. Raises
        ApiError(UNKNOWN_TOPIC_OR_PARTITION) or ApiError(INVALID_PARTITIONS) if the topic has
        changed in the meantime.
        """
        new = range(len(topic.partitions), count)
        encoded = yield from self._encoding(self._new_partitions(topic.topic_id, new, replicas))
        if topic.topic_id not in self.topics_by_id:
            raise ApiError(kw.ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic does not exist.")
        if len(topic.partitions) != new.start:
            raise ApiError(
                kw.ErrorCode.INVALID_PARTITIONS, "Another request has added partitions meanwhile."
            )
        self._append(encoded)
        return new

    def set_configs(self, resource_type: int, name: str, changes: Mapping[str, str | None]) -> None:
        """Set dynamic settings of a resource; None removes a setting."""
        self.append(list(config_records(resource_type, name, changes)))

    def allocate_producer_ids(self, count: int) -> int:
        """Reserve ``count`` producer ids permanently and return the first one."""
        first = self.next_producer_id
        own = self.brokers.get(self.node_id)
        record = kw.ProducerIdsRecord(
            broker_id=self.node_id,
            broker_epoch=-1 if own is None else own.broker_epoch,
            next_producer_id=first + count,
        )
        self.append([record])
        return first

    def register(
        self,
        listeners: Iterable[tuple[Listener, str, int]],
        *,
        node_id: int | None = None,
        rack: str | None = None,
    ) -> None:
        """Write the registration of a node, by default of the first one, unless the log already has the same one.

        Args:
            listeners: each listener with its advertised host and port
        """
        end_points = end_points_of(listeners)
        if node_id is None:
            node_id = self.node_id
        self.running.add(node_id)
        known = self.brokers.get(node_id)
        same = (end_points, self.directory_ids, rack, False)
        if known and (known.end_points, known.log_dirs, known.rack, known.fenced) == same:
            return
        self._lead()
        record = kw.RegisterBrokerRecord(
            broker_id=node_id,
            incarnation_id=random_uuid(),
            broker_epoch=self.log.end_offset,
            end_points=end_points,
            features=supported_features(),
            rack=rack,
            fenced=False,
            log_dirs=self.directory_ids if self.level >= LEVEL_3_7_IV2 else [],
        )
        self._write(finish(self._encoding([record])))

    def add_node(self, node_id: int) -> None:
        """Let partitions have leaders and replicas on another node, which is not running yet."""
        self.node_ids = (*self.node_ids, node_id)

    def unregister(self, node_id: int) -> None:
        """Write that a node is no part of the cluster any more."""
        self.running.discard(node_id)
        epoch = self.brokers[node_id].broker_epoch
        self.append([kw.UnregisterBrokerRecord(broker_id=node_id, broker_epoch=epoch)])

    def frozen(self) -> ClusterMetadata:
        """Return a copy whose topics, partitions and running nodes do not change."""
        other = copy(self)
        other.running = set(self.running)
        other.topics = {
            name: replace(topic, partitions=dict(topic.partitions))
            for name, topic in self.topics.items()
        }
        other.topics_by_id = {topic.topic_id: topic for topic in other.topics.values()}
        return other

    def fence(self, node_id: int) -> None:
        """Record that the cluster does not see a node any more."""
        self.running.discard(node_id)
        epoch = self.brokers[node_id].broker_epoch
        record = kw.BrokerRegistrationChangeRecord(broker_id=node_id, broker_epoch=epoch, fenced=1)
        self.append([record])

    def _new_partitions(
        self, topic_id: UUID, indexes: Iterable[int], replicas: Sequence[Sequence[int]] | None
    ) -> Iterator[Codec]:
        directories = self.directory_ids if len(self.directory_ids) == 1 else [UNASSIGNED_DIRECTORY]
        if self.level < LEVEL_3_7_IV2:
            directories = []
        for index, own in zip(indexes, replicas or repeat([self.node_id]), strict=False):
            running = [node for node in own if node in self.running]
            yield kw.PartitionRecord(
                partition_id=index,
                topic_id=topic_id,
                replicas=list(own),
                isr=running or list(own[:1]),
                leader=running[0] if running else -1,
                leader_epoch=0,
                partition_epoch=0,
                directories=directories * len(own),
            )

    # The log.

    def _format(self) -> None:
        """Write the first records of a log: those of Kafka's format command, or the same by default."""
        log = self.log
        placed = bootstrap_records(log.directory)
        for path, offset, record in placed:
            try:
                check_record(record)
            except ApiError as error:
                raise _invalid(path, offset, record, error) from None
        records = [record for _, _, record in placed]
        if not records:
            records = [
                kw.FeatureLevelRecord(name=name, feature_level=level)
                for name, level in self._new_features.items()
            ]
            log.kraft = log.kraft or {
                ControlRecordType.KRAFT_VERSION: kw.KRaftVersionRecord(k_raft_version=1),
                ControlRecordType.KRAFT_VOTERS: only_voter(self.node_id, self.directory_ids[0]),
            }
        begin = kw.BeginTransactionRecord(name="Bootstrap records")
        self.append([begin, *records, kw.EndTransactionRecord()])

    def _lead(self) -> None:
        """Begin a leader epoch before the first record that this process writes."""
        self.log.lead()
        if self.transaction is not None:
            abort = kw.AbortTransactionRecord(reason="the writer is gone")
            self._write(finish(self._encoding([abort])))

    def _write(self, encoded: Sequence[Encoded]) -> None:
        self.log.append([frame for _, frame in encoded])
        for record, _ in encoded:
            self.apply(record)
        if self.log.size > self.snapshot_bytes:
            self._snapshot()

    def _snapshot(self) -> None:
        """Write a snapshot and start a new log; if that fails, continue with the old log."""
        if self.log.unknown:
            return  # a snapshot would lose the records of unknown types
        try:
            self.log.snapshot(self.records(), self.level)
        except OSError as error:
            self.log.warn(
                f"{self.log.directory}: cannot write a snapshot: {error.strerror}; the log continues without"
            )
            self.snapshot_bytes = self.log.size * 2


def _invalid(path: Path, offset: int, record: Codec, error: ApiError) -> BrokerError:
    return BrokerError(
        f"{path}: the {type(record).__name__} at offset {offset} is invalid: {error.message};"
        " restore the folder from a copy, or open it with the software that wrote it"
    )
