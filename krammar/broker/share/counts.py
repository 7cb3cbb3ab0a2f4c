"""What happens to the records of share groups, counted for the metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from kafka_wire import ShareAcknowledgeType

from krammar.broker.share.partition import Acknowledgement
from krammar.broker.share.records import SharePartitionKey


@dataclass(slots=True, eq=False)
class ShareCounts:
    """Counts of a node.

    Attributes:
        acknowledged: records by the name of the type
        expired: records whose time with a member was over, by share partition
        dead_letters: records that were written to dead-letter topics, by group
        failed_dead_letters: runs of records for which that failed, by group
    """

    acknowledged: Counter[str] = field(default_factory=Counter)
    expired: Counter[SharePartitionKey] = field(default_factory=Counter)
    dead_letters: Counter[str] = field(default_factory=Counter)
    failed_dead_letters: Counter[str] = field(default_factory=Counter)

    def acknowledge(self, acknowledgements: Iterable[Acknowledgement]) -> None:
        """Count records that a member has acknowledged."""
        for each in acknowledgements:
            repeated = each.last - each.first + 1 if len(each.types) == 1 else 1
            for kind, number in Counter(each.types).items():
                self.acknowledged[ShareAcknowledgeType(kind).name] += number * repeated
