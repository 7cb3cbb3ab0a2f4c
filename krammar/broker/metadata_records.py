"""Records of the cluster metadata log: their versions, and what this broker writes about itself and its features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING
from uuid import UUID

from kafka_wire import RegisterBrokerRecord, SecurityProtocol, VotersRecord

from krammar.logfiles.metadata_frame import FRAME_VERSION, TYPES
from krammar.wire.message import Codec
from krammar.wire.primitives import encode_uvarint

if TYPE_CHECKING:
    from krammar.broker.config import Listener

_NUMBERS = {name: number for number, name in TYPES.items()}

# The levels of `metadata.version` at which record versions change.
LEVEL_3_4_IV0 = 8
LEVEL_3_7_IV2 = 17
LEVEL_4_0_IV1 = 23
LEVEL_4_0_IV3 = 25
LEVEL_4_3_IV0 = 30
LEVEL_4_4_IV2 = 33
# The level of Kafka 3.3, the first version with KRaft for production.
OLDEST_LEVEL = 7

METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"
GROUP_VERSION = "group.version"
TRANSACTION_VERSION = "transaction.version"
# A new folder's features: the metadata.version of Kafka 4.0, so that every Kafka 4 can read it.
NEW_FEATURES = {METADATA_VERSION: LEVEL_4_0_IV3, GROUP_VERSION: 1, TRANSACTION_VERSION: 2}
# The lowest and the highest supported level of each feature.
SUPPORTED_FEATURES = {
    GROUP_VERSION: (0, 1),
    KRAFT_VERSION: (0, 1),
    METADATA_VERSION: (OLDEST_LEVEL, LEVEL_4_4_IV2),
    TRANSACTION_VERSION: (0, 2),
}
# Those of Kafka 4.4: a log can have levels of features that this broker does not act on.
KAFKA_FEATURES = SUPPORTED_FEATURES | {
    "eligible.leader.replicas.version": (0, 1),
    "share.version": (0, 2),
    "streams.version": (0, 1),
}

# (since level, version), the newest first. Other records are written at version 0.
_VERSIONS: dict[str, tuple[tuple[int, int], ...]] = {
    "RegisterBrokerRecord": ((LEVEL_4_3_IV0, 4), (LEVEL_3_7_IV2, 3), (LEVEL_3_4_IV0, 2), (0, 1)),
    "PartitionRecord": ((LEVEL_4_0_IV1, 2), (LEVEL_3_7_IV2, 1)),
    "PartitionChangeRecord": ((LEVEL_4_0_IV1, 2), (LEVEL_3_7_IV2, 1)),
    "BrokerRegistrationChangeRecord": ((LEVEL_4_3_IV0, 3), (LEVEL_3_7_IV2, 2), (0, 1)),
}


def encode_frame(record: Codec, level: int) -> bytes:
    """Encode a record for a cluster with this ``metadata.version``. Raises EncodeError."""
    header, version = _header(type(record).__name__, level)
    return header + record.encode(version)


@cache
def _header(name: str, level: int) -> tuple[bytes, int]:
    """Return the header of a frame, and the version of the record in it."""
    versions = _VERSIONS.get(name, ())
    version = next((version for since, version in versions if level >= since), 0)
    numbers = (FRAME_VERSION, _NUMBERS[name], version)
    return b"".join(map(encode_uvarint, numbers)), version


def feature_problem(
    name: str, level: int, features: Mapping[str, tuple[int, int]], who: str
) -> str | None:
    """Return why a cluster cannot have a level of a feature; None for a valid one.

    Args:
        features: the lowest and the highest level of each feature that ``who`` supports
    """
    if level < 0:
        return "A feature version cannot be less than 0."
    if name not in features:
        return f"{who} does not support this feature."
    low, high = features[name]
    return None if low <= level <= high else f"{who} only supports versions {low}-{high}"


def supported_features() -> list[RegisterBrokerRecord.BrokerFeature]:
    """Return the supported features for a broker's registration."""
    return [
        RegisterBrokerRecord.BrokerFeature(
            name=name, min_supported_version=low, max_supported_version=high
        )
        for name, (low, high) in SUPPORTED_FEATURES.items()
    ]


def end_points_of(
    listeners: Iterable[tuple[Listener, str, int]],
) -> list[RegisterBrokerRecord.BrokerEndpoint]:
    """Return listeners, each with its advertised host and port, for a broker's registration."""
    return [
        RegisterBrokerRecord.BrokerEndpoint(
            name=listener.name,
            host=host,
            port=port,
            security_protocol=SecurityProtocol[listener.protocol],
        )
        for listener, host, port in listeners
    ]


def only_voter(node_id: int, directory_id: UUID) -> VotersRecord:
    """Return a node as the only voter, at the default address of Kafka's controller."""
    voter = VotersRecord.Voter(
        voter_id=node_id,
        voter_directory_id=directory_id,
        k_raft_version_feature=VotersRecord.KRaftVersionFeature(
            min_supported_version=0, max_supported_version=1
        ),
        endpoints=[VotersRecord.Endpoint(name="CONTROLLER", host="localhost", port=9093)],
    )
    return VotersRecord(voters=[voter])
