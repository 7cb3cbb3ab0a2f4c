"""Dead letters (KIP-1191): records that a share group rejects, or gets too often, go to another topic.

A group has a dead-letter topic by its setting `errors.deadletterqueue.topic.name`, from level 2 of the feature
`share.version` on. For each such record, the topic gets a record whose headers say where it was and why. Key and
value are copied if `errors.deadletterqueue.copy.record.enable` is true, without the headers of the original.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from kafka_wire import ConfigResourceType, ErrorCode

from krammar.broker.cluster import ClusterMetadata
from krammar.broker.config import BrokerConfig
from krammar.broker.errors import ApiError
from krammar.broker.log.log import PartitionLog
from krammar.broker.log.manager import LogManager
from krammar.broker.metadata_image import Topic
from krammar.broker.metadata_records import SHARE_VERSION
from krammar.broker.share.records import SharePartitionKey
from krammar.broker.timers import Timers
from krammar.broker.topic_checks import colliding
from krammar.broker.topics import Topics
from krammar.logfiles.names import topic_problem
from krammar.util.turns import Steps
from krammar.wire.batches import Record, encode_batch, read_batches
from krammar.wire.errors import DecodeError

# The level of share.version from which on groups have dead letters.
DEAD_LETTERS = 2

_TOPIC_NAME = "errors.deadletterqueue.topic.name"
_COPY = "errors.deadletterqueue.copy.record.enable"
_ENABLED = "errors.deadletterqueue.group.enable"
_CREATE = "errors.deadletterqueue.auto.create.topics.enable"

# More of a record than its key, value and headers, and of a batch than its records; both in bytes.
_RECORD_OVERHEAD, _BATCH_OVERHEAD = 64, 128


@dataclass(frozen=True, slots=True)
class DeadRecords:
    """Consecutive records with which a share group is done without success.

    Attributes:
        deliveries: how often members got them
        rejected: whether a member has rejected them; otherwise they were delivered too often
    """

    first: int
    last: int
    deliveries: int
    rejected: bool

    @property
    def why(self) -> str:
        """The reason in Kafka's words."""
        if self.rejected:
            return "Offset rejected by client."
        return "Offset delivery count exceeded the threshold."


@dataclass(eq=False)
class DeadLetters:
    """Writes the records of dead-letter topics.

    Attributes:
        most_read: bytes of the original records that are read at once; a compressed batch whose content is larger is
            not copied
        most_written: bytes of a batch
    """

    most_read: ClassVar[int] = 1 << 20
    most_written: ClassVar[int] = 1 << 18

    config: BrokerConfig
    timers: Timers
    cluster: ClusterMetadata
    logs: LogManager
    topics: Topics

    def wants(self, group: str) -> str:
        """Return the topic that the setting of a group names; empty if there is none."""
        return self._setting(group, _TOPIC_NAME) or ""

    def topic_of(self, group: str) -> str:
        """Return the name of a group's dead-letter topic; empty if the group has none."""
        if self.cluster.features.get(SHARE_VERSION, 0) < DEAD_LETTERS:
            return ""
        return self.wants(group)

    def _setting(self, group: str, name: str) -> str | None:
        return self._configs(ConfigResourceType.GROUP, group).get(name)

    def _configs(self, kind: int, name: str) -> Mapping[str, str]:
        return self.cluster.configs.get((kind, name), {})

    def writing(self, key: SharePartitionKey, dead: DeadRecords) -> Steps[int]:
        """Write the dead letters of records, in steps, and return their number. Offsets without a record have one, too.

        Raises ApiError. Then some records may have been written.
        """
        group, topic_id, number = key
        topic = yield from self._topic(group)
        index = number % len(topic.partitions)
        target = self.logs.get(topic.name, index)
        original = self.cluster.topics_by_id.get(topic_id)
        source = None if original is None else self.logs.get(original.name, number)
        if target is None or source is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted")
        copies = self._setting(group, _COPY) == "true"
        position = max(dead.first, source.log_start_offset)
        last = min(dead.last, source.end_offset - 1)
        written = max(0, last - position + 1)
        most = min(target.config.max_message_bytes, self.most_written)
        while position <= last:
            found, end = self._originals(source, position, last) if copies else ({}, last)
            letters: list[Record] = []
            size = _BATCH_OVERHEAD
            for offset in range(position, end + 1):
                letter = self._letter(source, group, dead, offset, found.get(offset))
                own = _size(letter)
                if letters and size + own > most:
                    self._append(target, topic, index, letters)
                    yield None
                    letters, size = [], _BATCH_OVERHEAD
                letters.append(letter)
                size += own
            self._append(target, topic, index, letters)
            yield None
            position = end + 1
        return written

    def _append(self, log: PartitionLog, topic: Topic, index: int, letters: list[Record]) -> None:
        epoch = topic.partitions[index].leader_epoch
        log.append(encode_batch(letters), leader_epoch=epoch)

    def _letter(
        self,
        source: PartitionLog,
        group: str,
        dead: DeadRecords,
        offset: int,
        original: Record | None,
    ) -> Record:
        headers = {
            "topic": source.topic,
            "partition": str(source.partition),
            "offset": str(offset),
            "group": group,
            "delivery.count": str(dead.deliveries),
            "message": dead.why,
        }
        key, value = (None, None) if original is None else (original.key, original.value)
        return Record(
            timestamp=self.timers.now_ms(),
            key=key,
            value=value,
            headers=[(f"__dlq.errors.{name}", text.encode()) for name, text in headers.items()],
        )

    def _originals(
        self, source: PartitionLog, position: int, last: int
    ) -> tuple[dict[int, Record], int]:
        """Read records by offset, and return the offset up to which they were read. Those that cannot be read are missing."""
        found: dict[int, Record] = {}
        end = position - 1
        try:
            data = source.reader.read(position, self.most_read, source.end_offset)
            for batch in read_batches(data, max_uncompressed=self.most_read):
                end = batch.last_offset
                if not batch.is_control:
                    found.update(
                        (each.offset, each) for each in batch if position <= each.offset <= last
                    )
                if end >= last:
                    break
        except (ApiError, DecodeError, OSError):
            end = max(end, position)
        return found, last if end < position else min(end, last)

    # The topic.

    def _topic(self, group: str) -> Steps[Topic]:
        """Return a group's dead-letter topic, and create it if that is enabled. Raises ApiError."""
        name = self.topic_of(group)
        if not name:
            raise _not_possible(f"the group has none ({_TOPIC_NAME})")
        if name.startswith("__"):
            raise _not_possible("names of dead-letter topics cannot begin with __")
        topic = self.cluster.topics.get(name)
        if (
            topic is not None
            and self._configs(ConfigResourceType.TOPIC, name).get(_ENABLED) != "true"
        ):
            raise _not_possible(f"it is not enabled for dead letters (set {_ENABLED}=true for it)")
        if topic is None and not self.config.errors_deadletterqueue_auto_create_topics_enable:
            raise _not_possible(f"it does not exist (create it, or set {_CREATE}=true)")
        prefix = self.config.errors_deadletterqueue_topic_name_prefix
        if prefix and not name.startswith(prefix):
            raise _not_possible(
                f"its name does not begin with {prefix!r} (errors.deadletterqueue.topic.name.prefix)"
            )
        if topic is not None:
            return topic
        if problem := topic_problem(name):
            raise _not_possible(problem)
        if other := colliding(name, self.cluster.topics):
            raise _not_possible(f"its name collides with {other}")
        configs = {_ENABLED: "true", "message.timestamp.type": "CreateTime"}
        try:
            return (yield from self.topics.creating(name, self.config.num_partitions, configs))
        except ApiError as error:
            found = self.cluster.topics.get(name)
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS or found is None:
                raise
            return found


def _size(record: Record) -> int:
    """Return about how many bytes a record has in a batch; never too few."""
    size = _RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"")
    return size + sum(len(name) + len(value or b"") + 10 for name, value in record.headers)


def _not_possible(why: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_CONFIG, why)
