"""Decodes the records of Kafka's internal topics.

The key of a record begins with the number of its kind, in a field that is named version. In the cluster metadata
log, values are frames instead.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import kafka_wire

from krammar.logfiles.metadata_frame import decode_frame
from krammar.logfiles.names import METADATA_TOPIC
from krammar.wire.errors import DecodeError
from krammar.wire.message import Codec

# The kinds of records by topic. Their classes are these names with the suffixes Key and Value.
KINDS: dict[str, tuple[str, ...]] = {
    "__consumer_offsets": (
        "LegacyOffsetCommit",
        "OffsetCommit",
        "GroupMetadata",
        "ConsumerGroupMetadata",
        "ConsumerGroupPartitionMetadata",
        "ConsumerGroupMemberMetadata",
        "ConsumerGroupTargetAssignmentMetadata",
        "ConsumerGroupTargetAssignmentMember",
        "ConsumerGroupCurrentMemberAssignment",
        "ShareGroupPartitionMetadata",
        "ShareGroupMemberMetadata",
        "ShareGroupMetadata",
        "ShareGroupTargetAssignmentMetadata",
        "ShareGroupTargetAssignmentMember",
        "ShareGroupCurrentMemberAssignment",
        "ShareGroupStatePartitionMetadata",
        "ConsumerGroupRegularExpression",
        "StreamsGroupMetadata",
        "StreamsGroupPartitionMetadata",
        "StreamsGroupMemberMetadata",
        "StreamsGroupTargetAssignmentMetadata",
        "StreamsGroupTargetAssignmentMember",
        "StreamsGroupCurrentMemberAssignment",
        "StreamsGroupTopology",
    ),
    "__transaction_state": ("TransactionLog",),
    "__share_group_state": ("ShareSnapshot", "ShareUpdate"),
}


class Decoded(NamedTuple):
    """A decoded record.

    ``kind`` is the common part of the names of its classes. ``value`` is None for a tombstone, and ``key`` in the
    cluster metadata log.
    """

    kind: str
    key: Codec | None
    value: Codec | None


def decode_record(topic: str, key: bytes | None, value: bytes | None) -> Decoded | None:
    """Decode a record. None if the topic or the kind is unknown. Raises WireError."""
    if topic == METADATA_TOPIC:
        message = decode_frame(value or b"")
        return None if isinstance(message, int) else Decoded(type(message).__name__, None, message)
    kinds = KINDS.get(topic)
    if kinds is None:
        return None
    if key is None or len(key) < 2:
        raise DecodeError("the key is too short to contain a kind", path="key")
    number = int.from_bytes(key[:2], "big", signed=True)
    if not 0 <= number < len(kinds) or not hasattr(kafka_wire, kinds[number] + "Key"):
        return None
    kind = kinds[number]
    key_class: Any = getattr(kafka_wire, kind + "Key")
    if kind.endswith("OffsetCommit") and value is not None:
        # Kafka has written old and new values with both keys.
        kind = "LegacyOffsetCommit" if value[:2] == b"\0\0" else "OffsetCommit"
    value_class: Any = getattr(kafka_wire, kind + "Value")
    decoded = None if value is None else value_class.decode(value)
    return Decoded(kind, key_class.decode(key), decoded)
