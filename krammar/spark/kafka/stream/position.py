"""Where a stream is: the offsets that a micro-batch ends with, and the ids of their topics, as checkpoints store them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from krammar.client import TopicPartition
from krammar.client.metadata import NO_ID
from krammar.logfiles.uuids import format_uuid, parse_uuid
from krammar.spark.errors import SparkSourceError
from krammar.spark.offsets import of_json, offsets_to_json

Offsets = dict[TopicPartition, int]
Json = dict[str, dict[str, int]]

# Between a topic and its id. Names of topics cannot contain it.
_SEPARATOR = ":"


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """Offsets, and the ids of the topics that they belong to.

    In JSON, the offsets are those of Kafka's connector, ``{"orders": {"0": 23}}``. A topic's id follows as a name
    without partitions, ``"orders:RHCP3VbQSSmfjI1mZdUCwQ": {}``, which the connector skips. Topics of brokers
    without ids have none, and so have topics in a checkpoint of the connector.
    """

    offsets: Offsets
    ids: Mapping[str, UUID] = field(default_factory=dict)

    def to_json(self) -> Json:
        """Return the position as Spark stores it."""
        found = offsets_to_json(self.offsets)
        for topic, topic_id in sorted(self.ids.items()):
            found[f"{topic}{_SEPARATOR}{format_uuid(topic_id)}"] = {}
        return found

    @classmethod
    def of_json(cls, found: Any) -> StreamPosition:
        """Read a position that Spark passes.

        Raises:
            SparkSourceError: it is of another source, which has written the checkpoint.
        """
        try:
            offsets = {TopicPartition(*at): offset for at, offset in of_json(found).items()}
            named = [name.split(_SEPARATOR) for name in found if _SEPARATOR in name]
            ids = {topic: parse_uuid(text) for topic, text in named}
        except (AttributeError, TypeError, ValueError):
            offsets = None
        if offsets is None or not all(type(offset) is int for offset in offsets.values()):
            text = json.dumps(found)
            raise SparkSourceError(
                f"the checkpoint has the offset {text[:200]}, but offsets of source=kafka have the form "
                '{"topic": {"partition": number}}: another source has written it; use another checkpointLocation'
            )
        return cls(offsets, ids)

    def is_other(self, topic: str, topic_id: UUID) -> bool:
        """Return whether a topic certainly differs from the one that the offsets belong to."""
        known = self.ids.get(topic, NO_ID)
        return known != NO_ID and topic_id not in (known, NO_ID)

    def replaced(self, end: StreamPosition) -> set[TopicPartition]:
        """Return the partitions whose topics have another id in ``end``, where they begin again."""
        return {
            at
            for at, offset in self.offsets.items()
            if offset > 0
            and at in end.offsets
            and self.is_other(at.topic, end.ids.get(at.topic, NO_ID))
        }

    def extends(self, earlier: StreamPosition) -> bool:
        """Return whether an ``earlier`` position differs in more than in ids that it does not have."""
        return self.offsets != earlier.offsets or any(
            earlier.is_other(topic, topic_id) for topic, topic_id in self.ids.items()
        )
