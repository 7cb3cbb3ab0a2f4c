"""The frame of a record of the cluster metadata log, ``__cluster_metadata``.

The value of a record is a frame: frame version, type and version as unsigned varints, then the message (KIP-631).
"""

from __future__ import annotations

from typing import Any

import kafka_wire

from krammar.wire.errors import DecodeError, UnsupportedVersionError
from krammar.wire.message import Codec
from krammar.wire.primitives import Malformed, uvarint

FRAME_VERSION = 1

TYPES: dict[int, str] = {
    0: "RegisterBrokerRecord",
    1: "UnregisterBrokerRecord",
    2: "TopicRecord",
    3: "PartitionRecord",
    4: "ConfigRecord",
    5: "PartitionChangeRecord",
    7: "FenceBrokerRecord",
    8: "UnfenceBrokerRecord",
    9: "RemoveTopicRecord",
    10: "DelegationTokenRecord",
    11: "UserScramCredentialRecord",
    12: "FeatureLevelRecord",
    14: "ClientQuotaRecord",
    15: "ProducerIdsRecord",
    17: "BrokerRegistrationChangeRecord",
    18: "AccessControlEntryRecord",
    19: "RemoveAccessControlEntryRecord",
    20: "NoOpRecord",
    21: "ZkMigrationStateRecord",
    22: "RemoveUserScramCredentialRecord",
    23: "BeginTransactionRecord",
    24: "EndTransactionRecord",
    25: "AbortTransactionRecord",
    26: "RemoveDelegationTokenRecord",
    27: "RegisterControllerRecord",
    28: "ClearElrRecord",
    29: "UnregisterControllerRecord",
}


def read_frame(value: bytes) -> tuple[int, int, int]:
    """Return the type, the version and the position of the message. Raises DecodeError."""
    try:
        frame_version, pos = uvarint(value, 1, value[0])
        if frame_version != FRAME_VERSION:
            raise DecodeError(
                f"frame version {frame_version} is unknown (only {FRAME_VERSION} is known)"
            )
        number, pos = uvarint(value, pos + 1, value[pos])
        version, pos = uvarint(value, pos + 1, value[pos])
    except (IndexError, Malformed):
        raise DecodeError("the frame of the record is truncated or invalid") from None
    return number, version, pos


def decode_frame(value: bytes) -> Codec | int:
    """Decode a frame. Returns the message, or the type if it is unknown. Raises DecodeError."""
    number, version, pos = read_frame(value)
    name = TYPES.get(number)
    if name is None:
        return number
    record_class: Any = getattr(kafka_wire, name)
    try:
        record: Codec = record_class.decode(value[pos:], version)
    except UnsupportedVersionError as error:
        raise DecodeError(f"{error}; a newer version of Kafka has written the record") from None
    return record
