"""The state of a cluster that results from the records of its metadata log (KIP-631)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from kafka_wire import ConfigResourceType, PartitionRecord

from krammar.wire.message import Codec

METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"
# The level of Kafka 3.3, the first version with KRaft for production.
OLDEST_LEVEL = 7
OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, "__share_group_state"})


@dataclass(slots=True)
class Partition:
    """A partition as the nodes of this process serve it: other nodes of the metadata log are left out.

    ``leader``              -1 for none
    ``adding``, ``removing``  replicas that a reassignment in progress adds and removes (KIP-455)
    """

    index: int
    replicas: list[int]
    isr: list[int]
    leader: int
    leader_epoch: int
    partition_epoch: int
    directories: list[UUID]
    adding: list[int]
    removing: list[int]

    @property
    def moving(self) -> bool:
        """Whether a reassignment is in progress."""
        return bool(self.adding or self.removing)


@dataclass(slots=True, eq=False)
class Topic:
    """A topic, with its partitions by index."""

    name: str
    topic_id: UUID
    partitions: dict[int, Partition] = field(default_factory=dict)

    @property
    def internal(self) -> bool:
        """Whether it is one of Kafka's internal topics."""
        return self.name in INTERNAL_TOPICS


class Image:
    """The current state, as the nodes with the given ids serve it.

    ``features``        the levels above 0, by name
    ``configs``         by resource type and name, then by key
    ``scram``           credentials by mechanism and user
    ``brokers``         registrations by broker id, including later changes
    ``removed_topics``  the ids of deleted topics, as far as the log still has them
    ``ignored``         the names of records without an effect on this state
    """

    def __init__(self, *node_ids: int) -> None:
        self.node_ids = node_ids
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[UUID, Topic] = {}
        self.removed_topics: set[UUID] = set()
        self.features: dict[str, int] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.scram: dict[tuple[int, str], Any] = {}
        self.brokers: dict[int, Any] = {}
        self.next_producer_id = 0
        self.ignored: set[str] = set()
        self._producer_ids: Any = None
        self._partitions: dict[tuple[UUID, int], PartitionRecord] = {}
        # Records that this broker does not use but preserves in snapshots, by type and key fields.
        self._preserved: dict[tuple[Any, ...], Codec] = {}

    @property
    def level(self) -> int:
        """The ``metadata.version``, which determines the versions of records."""
        return self.features.get(METADATA_VERSION, OLDEST_LEVEL)

    def apply(self, record: Codec) -> None:
        """Apply one record. A record that refers to something unknown, such as a topic, has no effect."""
        change = _CHANGES.get(type(record).__name__)
        if change is None:
            self.ignored.add(type(record).__name__)
        else:
            change(self, record)

    def records(self) -> Iterator[Codec]:
        """Yield the records of a snapshot, which result in this state."""
        from kafka_wire import ConfigRecord, FeatureLevelRecord, TopicRecord

        names = sorted(self.features, key=lambda name: (name != METADATA_VERSION, name))
        for name in names:
            if name != KRAFT_VERSION:
                yield FeatureLevelRecord(name=name, feature_level=self.features[name])
        yield from self.brokers.values()
        for topic in self.topics.values():
            yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
            for index in topic.partitions:
                yield self._partitions[topic.topic_id, index]
        for (kind, resource), entries in self.configs.items():
            for key, value in entries.items():
                yield ConfigRecord(
                    resource_type=kind, resource_name=resource, name=key, value=value
                )
        yield from self.scram.values()
        if self._producer_ids is not None:
            yield self._producer_ids
        yield from self._preserved.values()

    def _feature(self, record: Any) -> None:
        if record.feature_level > 0:
            self.features[record.name] = record.feature_level
        else:
            self.features.pop(record.name, None)

    def _topic(self, record: Any) -> None:
        old = self.topics.get(record.name)
        if old is not None:
            self._forget(old)
        topic = Topic(record.name, record.topic_id)
        self.topics[topic.name] = self.topics_by_id[topic.topic_id] = topic

    def _remove_topic(self, record: Any) -> None:
        topic = self.topics_by_id.get(record.topic_id)
        if topic is not None:
            self.removed_topics.add(record.topic_id)
            self._forget(topic)
            self.configs.pop((ConfigResourceType.TOPIC, topic.name), None)

    def _forget(self, topic: Topic) -> None:
        del self.topics[topic.name], self.topics_by_id[topic.topic_id]
        for index in topic.partitions:
            del self._partitions[topic.topic_id, index]

    def _partition(self, record: Any) -> None:
        topic = self.topics_by_id.get(record.topic_id)
        if topic is not None:
            self._partitions[record.topic_id, record.partition_id] = record
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
            index=record.partition_id,
            replicas=replicas,
            isr=isr,
            leader=leader,
            leader_epoch=max(record.leader_epoch, 0),
            partition_epoch=max(record.partition_epoch, 0),
            directories=record.directories,
            adding=[node for node in record.adding_replicas if node in replicas],
            removing=[node for node in record.removing_replicas if node in replicas],
        )

    def _change_partition(self, record: Any) -> None:
        known = self._partitions.get((record.topic_id, record.partition_id))
        if known is None:
            return
        for name in (
            "isr",
            "replicas",
            "removing_replicas",
            "adding_replicas",
            "directories",
            "eligible_leader_replicas",
            "last_known_elr",
        ):
            value = getattr(record, name)
            if value is not None:
                setattr(known, name, value)
        if record.leader != -2:
            known.leader = record.leader
            known.leader_epoch += 1
        if record.leader_recovery_state != -1:
            known.leader_recovery_state = record.leader_recovery_state
        known.partition_epoch += 1
        self.topics_by_id[record.topic_id].partitions[record.partition_id] = self._served(known)

    def _clear_eligible(self, record: Any) -> None:
        topic = self.topics.get(record.topic_name)
        for (topic_id, _), known in self._partitions.items():
            if not record.topic_name or (topic is not None and topic.topic_id == topic_id):
                known.eligible_leader_replicas = known.last_known_elr = None

    def _config(self, record: Any) -> None:
        resource = (record.resource_type, record.resource_name)
        if record.value is not None:
            self.configs.setdefault(resource, {})[record.name] = record.value
            return
        entries = self.configs.get(resource)
        if entries is not None:
            entries.pop(record.name, None)
            if not entries:
                del self.configs[resource]

    def _set_scram(self, record: Any) -> None:
        self.scram[record.mechanism, record.name] = record

    def _remove_scram(self, record: Any) -> None:
        self.scram.pop((record.mechanism, record.name), None)

    def _set_producer_ids(self, record: Any) -> None:
        self._producer_ids = record
        self.next_producer_id = record.next_producer_id

    def _register_broker(self, record: Any) -> None:
        self.brokers[record.broker_id] = record

    def _unregister_broker(self, record: Any) -> None:
        self.brokers.pop(record.broker_id, None)

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

    def _quota(self, record: Any) -> None:
        entity = frozenset((part.entity_type, part.entity_name) for part in record.entity)
        self._preserve(record, entity, record.key, remove=record.remove)

    def _preserve(self, record: Codec, *key: object, remove: bool = False, name: str = "") -> None:
        whole = (name or type(record).__name__, *key)
        if remove:
            self._preserved.pop(whole, None)
        else:
            self._preserved[whole] = record


def _preserves(*fields: str, removes: str = "") -> Callable[[Image, Any], None]:
    """Return a change that preserves a record by its key fields, or drops the record named ``removes``."""

    def change(image: Image, record: Any) -> None:
        key = (getattr(record, name) for name in fields)
        image._preserve(record, *key, remove=bool(removes), name=removes)

    return change


def _nothing(image: Image, record: Any) -> None:
    pass


_CHANGES: dict[str, Callable[[Image, Any], None]] = {
    "RegisterBrokerRecord": Image._register_broker,
    "UnregisterBrokerRecord": Image._unregister_broker,
    "TopicRecord": Image._topic,
    "PartitionRecord": Image._partition,
    "ConfigRecord": Image._config,
    "PartitionChangeRecord": Image._change_partition,
    "FenceBrokerRecord": Image._fence,
    "UnfenceBrokerRecord": Image._fence,
    "RemoveTopicRecord": Image._remove_topic,
    "DelegationTokenRecord": _preserves("token_id"),
    "RemoveDelegationTokenRecord": _preserves("token_id", removes="DelegationTokenRecord"),
    "UserScramCredentialRecord": Image._set_scram,
    "RemoveUserScramCredentialRecord": Image._remove_scram,
    "FeatureLevelRecord": Image._feature,
    "ClientQuotaRecord": Image._quota,
    "ProducerIdsRecord": Image._set_producer_ids,
    "BrokerRegistrationChangeRecord": Image._change_broker,
    "AccessControlEntryRecord": _preserves("id"),
    "RemoveAccessControlEntryRecord": _preserves("id", removes="AccessControlEntryRecord"),
    "NoOpRecord": _nothing,
    "ZkMigrationStateRecord": _preserves(),
    "RegisterControllerRecord": _preserves("controller_id"),
    "UnregisterControllerRecord": _preserves("controller_id", removes="RegisterControllerRecord"),
    "ClearElrRecord": Image._clear_eligible,
}
