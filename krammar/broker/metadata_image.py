"""The state of a cluster that results from the records of its metadata log (KIP-631)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kafka_wire import ConfigRecord, ConfigResourceType, ErrorCode, PartitionRecord

from krammar.broker.errors import ApiError
from krammar.broker.metadata_records import (
    KRAFT_VERSION,
    METADATA_VERSION,
    OLDEST_LEVEL,
    SHARE_VERSION,
)
from krammar.wire.message import Codec

if TYPE_CHECKING:
    from kafka_wire import (
        AccessControlEntryRecord,
        ClientQuotaRecord,
        UserScramCredentialRecord,
    )

    from krammar.broker.quotas.entities import QuotaKey

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
SHARE_STATE_TOPIC = "__share_group_state"
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC})


@dataclass(slots=True)
class Partition:
    """A partition as the nodes of this process serve it: other nodes of the metadata log are left out.

    Attributes:
        record: the partition in the metadata log, with all nodes
        leader: -1 for none
        adding_replicas, removing_replicas: of a reassignment in progress (KIP-455)
    """

    record: PartitionRecord
    index: int
    replicas: list[int]
    isr: list[int]
    leader: int
    leader_epoch: int
    partition_epoch: int
    directories: list[UUID]
    adding_replicas: list[int]
    removing_replicas: list[int]

    @property
    def moving(self) -> bool:
        """Whether a reassignment is in progress."""
        return bool(self.adding_replicas or self.removing_replicas)


@dataclass(slots=True, eq=False)
class Topic:
    """A topic, with its partitions by index.

    Attributes:
        internal: whether it is one of Kafka's internal topics
    """

    name: str
    topic_id: UUID
    partitions: dict[int, Partition] = field(default_factory=dict)
    internal: bool = field(init=False)

    def __post_init__(self) -> None:
        self.internal = self.name in INTERNAL_TOPICS


def config_records(
    resource_type: int, resource: str, entries: Mapping[str, str | None]
) -> Iterator[Codec]:
    """Yield the records of dynamic settings of a resource. None removes a setting."""
    for name, value in entries.items():
        yield ConfigRecord(
            resource_type=resource_type, resource_name=resource, name=name, value=value
        )


class Image:
    """The current state, as the nodes with the given ids serve it.

    Attributes:
        topics: by name; ``topics_by_id`` by id; without ``__cluster_metadata``
        removed_topics: the ids of deleted topics, as far as the log still has them
        features: the levels above 0, by name; also the level 0 of share.version
        configs: dynamic settings by (resource type, resource name), then by key
        brokers: registrations by broker id, including later changes
        scram: credentials by (mechanism, user)
        acls: by the id of their records
        quotas: by entity and key
        watchers: functions by type of record, for ACLs, quotas and others that have keys: each gets
            every record of its type that is added (True) or removed (False)
        transaction: the records of the metadata transaction in progress (KIP-868), or None
    """

    def __init__(self, *node_ids: int) -> None:
        self.node_ids = node_ids
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[UUID, Topic] = {}
        self.removed_topics: set[UUID] = set()
        self.features: dict[str, int] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        # The records of ``_KEYS``, by type and key.
        self._by_key: dict[str, dict[Any, Any]] = {name: {} for name in _KEYS}
        self.brokers = self._by_key["RegisterBrokerRecord"]
        self.scram: dict[tuple[int, str], UserScramCredentialRecord] = self._by_key[
            "UserScramCredentialRecord"
        ]
        self.acls: dict[UUID, AccessControlEntryRecord] = self._by_key["AccessControlEntryRecord"]
        self.quotas: dict[QuotaKey, ClientQuotaRecord] = self._by_key["ClientQuotaRecord"]
        self.watchers: dict[str, Callable[[Any, bool], None]] = {}
        self.transaction: list[Codec] | None = None

    @property
    def level(self) -> int:
        """The ``metadata.version``, which determines the versions of records."""
        return self.features.get(METADATA_VERSION, OLDEST_LEVEL)

    @property
    def next_producer_id(self) -> int:
        """The first producer id that belongs to no block yet."""
        newest = self._by_key["ProducerIdsRecord"].get(None)
        return int(newest.next_producer_id) if newest is not None else 0

    def apply(self, record: Codec) -> None:
        """Apply one record. A record that refers to something unknown, such as a topic, has no effect."""
        name = type(record).__name__
        kept = _REMOVED.get(name, name)
        if name in _TRANSACTION:
            records = self.transaction or []
            self.transaction = [] if name == "BeginTransactionRecord" else None
            if name == "EndTransactionRecord":
                for each in records:
                    self.apply(each)
        elif self.transaction is not None:
            self.transaction.append(record)
        elif kept not in _KEYS:
            _CHANGES[name](self, record)
        else:
            removes = kept != name or getattr(record, "remove", False)
            key, by_key = _KEYS[kept](record), self._by_key[kept]
            old = by_key.pop(key, None)
            if not removes:
                by_key[key] = record
            if (watch := self.watchers.get(kept)) is not None:
                if old is not None:
                    watch(old, False)
                if not removes:
                    watch(record, True)

    def records(self) -> Iterator[Codec]:
        """Yield the records of a snapshot, which result in this state."""
        from kafka_wire import FeatureLevelRecord, TopicRecord

        names = sorted(self.features, key=lambda name: (name != METADATA_VERSION, name))
        for name in names:
            if name != KRAFT_VERSION:
                yield FeatureLevelRecord(name=name, feature_level=self.features[name])
        yield from self.brokers.values()
        for topic in self.topics.values():
            yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
            for partition in topic.partitions.values():
                yield partition.record
        for (kind, resource), entries in self.configs.items():
            yield from config_records(kind, resource, entries)
        for kept in self._by_key.values():
            if kept is not self.brokers:
                yield from kept.values()

    # Changes.

    def _feature(self, record: Any) -> None:
        # Without a level, the first share group turns them on; the level 0 leaves them off.
        if record.feature_level > 0 or record.name == SHARE_VERSION:
            self.features[record.name] = record.feature_level
        else:
            self.features.pop(record.name, None)

    def _topic(self, record: Any) -> None:
        other = self.topics.get(record.name) or self.topics_by_id.get(record.topic_id)
        if other is not None:
            raise ApiError(
                ErrorCode.TOPIC_ALREADY_EXISTS,
                f"topic {record.name} with id {record.topic_id} already exists, as {other.name} with id"
                f" {other.topic_id}",
            )
        topic = Topic(record.name, record.topic_id)
        self.topics[topic.name] = self.topics_by_id[topic.topic_id] = topic
        self.removed_topics.discard(topic.topic_id)

    def _remove_topic(self, record: Any) -> None:
        topic = self.topics_by_id.pop(record.topic_id, None)
        if topic is not None:
            self.removed_topics.add(record.topic_id)
            del self.topics[topic.name]
            self.configs.pop((ConfigResourceType.TOPIC, topic.name), None)

    def _partition(self, record: Any) -> None:
        topic = self.topics_by_id.get(record.topic_id)
        if topic is not None:
            topic.partitions[record.partition_id] = self._served(record)

    def _served(self, record: PartitionRecord) -> Partition:
        own = self.node_ids
        replicas = [node for node in record.replicas if node in own]
        replicas = replicas or [own[record.partition_id % len(own)]]
        isr = [node for node in record.isr if node in replicas] or replicas
        leader = record.leader
        if leader not in replicas and (leader >= 0 or len(own) == 1):
            leader = isr[0]  # a node of another process led the partition
        return Partition(
            record=record,
            index=record.partition_id,
            replicas=replicas,
            isr=isr,
            leader=leader,
            leader_epoch=max(record.leader_epoch, 0),
            partition_epoch=max(record.partition_epoch, 0),
            directories=record.directories,
            adding_replicas=[node for node in record.adding_replicas if node in replicas],
            removing_replicas=[node for node in record.removing_replicas if node in replicas],
        )

    def _change_partition(self, record: Any) -> None:
        topic = self.topics_by_id.get(record.topic_id)
        if topic is None or record.partition_id not in topic.partitions:
            return
        known = topic.partitions[record.partition_id].record
        for name in record._fields:
            value = getattr(record, name)
            if value is not None and value != _UNCHANGED.get(name):
                setattr(known, name, value)
        if record.leader != -2:
            known.leader_epoch += 1
        known.partition_epoch += 1
        topic.partitions[record.partition_id] = self._served(known)

    def _clear_eligible(self, record: Any) -> None:
        for topic in self.topics.values():
            if record.topic_name in ("", topic.name):
                for partition in topic.partitions.values():
                    known = partition.record
                    known.eligible_leader_replicas = known.last_known_elr = None

    def _config(self, record: Any) -> None:
        resource = (record.resource_type, record.resource_name)
        entries = self.configs.setdefault(resource, {})
        if record.value is not None:
            entries[record.name] = record.value
        else:
            entries.pop(record.name, None)
        if not entries:
            del self.configs[resource]

    def _fence(self, record: Any) -> None:
        broker = self.brokers.get(record.id)
        if broker is not None:
            broker.fenced = type(record).__name__ == "FenceBrokerRecord"

    def _change_broker(self, record: Any) -> None:
        broker = self.brokers.get(record.broker_id)
        if broker is None:
            return
        if record.fenced:
            broker.fenced = record.fenced > 0
        if record.in_controlled_shutdown:
            broker.in_controlled_shutdown = record.in_controlled_shutdown > 0
        if record.log_dirs:
            broker.log_dirs = record.log_dirs
        if record.cordoned_log_dirs is not None:
            broker.cordoned_log_dirs = record.cordoned_log_dirs


def _only(record: Any) -> None:
    """Return the key of a record that replaces every earlier one of its type."""


def _quota(record: Any) -> object:
    entity = frozenset((part.entity_type, part.entity_name) for part in record.entity)
    return entity, record.key


# Records that a snapshot repeats as they are: a later one replaces the earlier one with the same
# key.
_KEYS: dict[str, Callable[[Any], object]] = {
    "RegisterBrokerRecord": attrgetter("broker_id"),
    "UserScramCredentialRecord": attrgetter("mechanism", "name"),
    "ProducerIdsRecord": _only,
    "AccessControlEntryRecord": attrgetter("id"),
    "ClientQuotaRecord": _quota,
    # The broker does not use the next ones.
    "DelegationTokenRecord": attrgetter("token_id"),
    "ZkMigrationStateRecord": _only,
    "RegisterControllerRecord": attrgetter("controller_id"),
}
# The records that remove one of them, by the same key.
_REMOVED = {
    "UnregisterBrokerRecord": "RegisterBrokerRecord",
    "RemoveUserScramCredentialRecord": "UserScramCredentialRecord",
    "RemoveDelegationTokenRecord": "DelegationTokenRecord",
    "RemoveAccessControlEntryRecord": "AccessControlEntryRecord",
    "UnregisterControllerRecord": "RegisterControllerRecord",
}
_TRANSACTION = {"BeginTransactionRecord", "EndTransactionRecord", "AbortTransactionRecord"}
_CHANGES: dict[str, Callable[[Image, Any], None]] = {
    "TopicRecord": Image._topic,
    "PartitionRecord": Image._partition,
    "ConfigRecord": Image._config,
    "PartitionChangeRecord": Image._change_partition,
    "FenceBrokerRecord": Image._fence,
    "UnfenceBrokerRecord": Image._fence,
    "RemoveTopicRecord": Image._remove_topic,
    "FeatureLevelRecord": Image._feature,
    "BrokerRegistrationChangeRecord": Image._change_broker,
    "NoOpRecord": lambda image, record: None,
    "ClearElrRecord": Image._clear_eligible,
}
# The fields of a PartitionChangeRecord that are not None if they do not change.
_UNCHANGED = {"leader": -2, "leader_recovery_state": -1}
