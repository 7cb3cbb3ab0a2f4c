"""The settings of a share group for its records, read when they are needed because they can change at any time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kafka_wire import ConfigResourceType

from krammar.broker.cluster import ClusterMetadata
from krammar.broker.config import BrokerConfig
from krammar.broker.config.definitions import BY_DURATION, duration_ms
from krammar.broker.log.log import PartitionLog
from krammar.broker.share.dead_letters import DeadLetters
from krammar.broker.share.partition import RecordLimits


@dataclass(eq=False)
class ShareSettings:
    """The settings of all share groups."""

    config: BrokerConfig
    cluster: ClusterMetadata
    letters: DeadLetters

    def _value(self, group: str, name: str) -> Any:
        overrides = self.cluster.configs.get((ConfigResourceType.GROUP, group), {})
        return self.config.groups.value(name, overrides)

    def limits(self, group: str) -> RecordLimits:
        return RecordLimits(
            deliveries=self._value(group, "share.delivery.count.limit"),
            locks=self._value(group, "share.partition.max.record.locks"),
            lock_ms=self._value(group, "share.record.lock.duration.ms"),
            renews=self._value(group, "share.renew.acknowledge.enable"),
            dead_letters=bool(self.letters.topic_of(group)),
        )

    def reads_committed(self, group: str) -> bool:
        """Return whether the group waits for the end of transactions, and skips aborted ones."""
        return bool(self._value(group, "share.isolation.level") == "read_committed")

    def first_offset(self, group: str, log: PartitionLog, now: int) -> int:
        """Return where the group begins in a partition. Raises ApiError.

        Args:
            now: milliseconds since 1970
        """
        reset = self._value(group, "share.auto.offset.reset")
        if reset == "earliest":
            return log.log_start_offset
        if reset.startswith(BY_DURATION):
            age = duration_ms(reset.removeprefix(BY_DURATION))
            found = log.reader.offset_for_timestamp(max(0, now - age))
            if found is not None:
                return found[1]
        return log.end_offset
