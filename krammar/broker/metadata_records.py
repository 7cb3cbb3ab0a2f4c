"""Records of the cluster metadata log: their types, their frames and the versions that are written.

A record's value is a frame: frame version, type and version as unsigned varints, and behind them the
message (KIP-631).
"""

from __future__ import annotations

from typing import Any

import kafka_wire

from krammar.wire.errors import DecodeError, UnsupportedVersionError
from krammar.wire.message import Codec
from krammar.wire.primitives import encode_uvarint

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
_NUMBERS = {name: number for number, name in TYPES.items()}

# Levels of `metadata.version` at which record versions change.
LEVEL_3_4_IV0 = 8
LEVEL_3_7_IV2 = 17
LEVEL_4_0_IV1 = 23
LEVEL_4_0_IV3 = 25
LEVEL_4_3_IV0 = 30
LEVEL_4_4_IV2 = 33

# (since level, version), the newest first; what is not here is written at version 0.
_VERSIONS: dict[str, tuple[tuple[int, int], ...]] = {
    "RegisterBrokerRecord": ((LEVEL_4_3_IV0, 4), (LEVEL_3_7_IV2, 3), (LEVEL_3_4_IV0, 2), (0, 1)),
    "PartitionRecord": ((LEVEL_4_0_IV1, 2), (LEVEL_3_7_IV2, 1)),
    "PartitionChangeRecord": ((LEVEL_4_0_IV1, 2), (LEVEL_3_7_IV2, 1)),
    "BrokerRegistrationChangeRecord": ((LEVEL_4_3_IV0, 3), (LEVEL_3_7_IV2, 2), (0, 1)),
}


def record_version(name: str, level: int) -> int:
    """The version at which clusters of this ``metadata.version`` write a record."""
    for since, version in _VERSIONS.get(name, ()):
        if level >= since:
            return version
    return 0


def encode_frame(record: Codec, level: int) -> bytes:
    """The record's value in a cluster of this ``metadata.version``. Raises EncodeError."""
    name = type(record).__name__
    version = record_version(name, level)
    header = (encode_uvarint(number) for number in (FRAME_VERSION, _NUMBERS[name], version))
    return b"".join((*header, record.encode(version)))


def decode_frame(value: bytes) -> Codec | int:
    """The record, or its type if that is not known. Raises DecodeError."""
    frame_version, pos = _uvarint(value, 0)
    if frame_version != FRAME_VERSION:
        raise DecodeError(f"frame version {frame_version}, only {FRAME_VERSION} is known")
    number, pos = _uvarint(value, pos)
    version, pos = _uvarint(value, pos)
    name = TYPES.get(number)
    if name is None:
        return number
    record_class: Any = getattr(kafka_wire, name)
    try:
        record: Codec = record_class.decode(value[pos:], version)
    except UnsupportedVersionError as error:
        raise DecodeError(f"{error}; a newer Kafka has written it") from None
    return record


def _uvarint(data: bytes, pos: int) -> tuple[int, int]:
    number = shift = 0
    for byte in data[pos : pos + 5]:
        pos += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, pos
        shift += 7
    raise DecodeError("the record's frame is cut off or no frame at all")
