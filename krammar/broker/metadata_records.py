"""Records of the cluster metadata log: what this broker writes, and checks of what it reads.

The log can come from another machine, another version, or a stranger: docs/security.md. A record
that no request could have written ends the start. A setting that is invalid in this version is
ignored instead, because older versions allow more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any
from uuid import UUID

import kafka_wire as kw
from kafka_wire import RegisterBrokerRecord, SecurityProtocol, VotersRecord

from krammar.broker.config.definitions import (
    BROKER_CONFIGS,
    CLIENT_METRICS_CONFIGS,
    GROUP_CONFIGS,
    TOPIC_CONFIGS,
    ConfigDef,
    ConfigError,
)
from krammar.broker.errors import invalid_request
from krammar.broker.security.credentials import check_iterations, mechanism_of
from krammar.broker.topic_checks import check_new_topic, check_replicas
from krammar.logfiles.metadata_frame import FRAME_VERSION, TYPES
from krammar.logfiles.names import MAX_OFFSET, epoch_problem, partition_problem
from krammar.wire.message import Codec
from krammar.wire.primitives import NULL_UUID, encode_uvarint

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
SHARE_VERSION = "share.version"
TRANSACTION_VERSION = "transaction.version"
# A new folder's features: the metadata.version of Kafka 4.0, so that every Kafka 4 can read it.
NEW_FEATURES = {METADATA_VERSION: LEVEL_4_0_IV3, GROUP_VERSION: 1, TRANSACTION_VERSION: 2}
# The lowest and the highest supported level of each feature.
SUPPORTED_FEATURES = {
    GROUP_VERSION: (0, 1),
    KRAFT_VERSION: (0, 1),
    METADATA_VERSION: (OLDEST_LEVEL, LEVEL_4_4_IV2),
    SHARE_VERSION: (0, 2),
    TRANSACTION_VERSION: (0, 2),
}
_FEATURES_4_3 = {**SUPPORTED_FEATURES, SHARE_VERSION: (0, 1)}
_FEATURES_4_0 = {name: levels for name, levels in _FEATURES_4_3.items() if name != SHARE_VERSION}
# The same of older releases (``krammar.kafka.version``), and then the levels of a new cluster.
_OLDER: dict[str, tuple[dict[str, tuple[int, int]], dict[str, int]]] = {
    # With ZooKeeper, there are no features.
    "2.8": ({}, {METADATA_VERSION: OLDEST_LEVEL}),
    "3.9": ({KRAFT_VERSION: (0, 1), METADATA_VERSION: (1, 21)}, {METADATA_VERSION: 21}),
    "4.0": ({**_FEATURES_4_0, METADATA_VERSION: (OLDEST_LEVEL, LEVEL_4_0_IV3)}, NEW_FEATURES),
    "4.1": (
        {**_FEATURES_4_3, METADATA_VERSION: (OLDEST_LEVEL, 27)},
        {**NEW_FEATURES, METADATA_VERSION: 27},
    ),
    "4.2": (
        {**_FEATURES_4_3, METADATA_VERSION: (OLDEST_LEVEL, 29)},
        {**NEW_FEATURES, METADATA_VERSION: 29, SHARE_VERSION: 1},
    ),
    "4.3": (
        {**_FEATURES_4_3, METADATA_VERSION: (OLDEST_LEVEL, LEVEL_4_3_IV0)},
        {**NEW_FEATURES, METADATA_VERSION: LEVEL_4_3_IV0, SHARE_VERSION: 1},
    ),
}
# Those of Kafka 4.4: a log can have levels of features that this broker does not act on.
KAFKA_FEATURES = SUPPORTED_FEATURES | {
    "eligible.leader.replicas.version": (0, 1),
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


def features_of(
    release: str | None,
) -> tuple[Mapping[str, tuple[int, int]], Mapping[str, int]]:
    """Return the supported features of a release, and the levels of a new cluster; None is the newest release."""
    return (SUPPORTED_FEATURES, NEW_FEATURES) if release is None else _OLDER[release]


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


# Checks of records that are read.

# The log names nodes that other processes run.
_NODES = range(1 << 31)
_NONE = -1  # no leader, no epoch
_UNCHANGED = -2  # the leader of a PartitionChangeRecord
_SETTINGS: dict[int, dict[str, ConfigDef]] = {
    kw.ConfigResourceType.TOPIC: TOPIC_CONFIGS,
    kw.ConfigResourceType.BROKER: BROKER_CONFIGS,
    kw.ConfigResourceType.GROUP: GROUP_CONFIGS,
    kw.ConfigResourceType.CLIENT_METRICS: CLIENT_METRICS_CONFIGS,
}


def check_record(record: Codec) -> None:
    """Raise ApiError if a record has a value that no request could have written."""
    check = _CHECKS.get(type(record).__name__)
    if check is not None:
        check(record)


def setting_problem(record: kw.ConfigRecord) -> str | None:
    """Return why a setting has no effect in this version; None if it has, or if its name is unknown."""
    definition = _SETTINGS.get(record.resource_type, {}).get(record.name)
    if definition is None or record.value is None:
        return None
    try:
        definition.parse(record.value)
    except ConfigError as error:
        return error.reason
    return None


def _check_topic(record: kw.TopicRecord) -> None:
    check_new_topic(record.name)
    if record.topic_id == NULL_UUID:
        raise invalid_request(f"topic {record.name} has the null UUID as its id")


def _check_partition(record: kw.PartitionRecord) -> None:
    number = record.partition_id
    _refuse(partition_problem(number))
    check_replicas([record.replicas], _NODES)
    _check_leader(number, record.leader, _NONE)
    for epoch in (record.leader_epoch, record.partition_epoch):
        if epoch != _NONE:
            _refuse(epoch_problem(epoch), f"partition {number}: ")
    directories = record.directories
    if directories and len(directories) != len(record.replicas):
        raise invalid_request(
            f"partition {number} has {len(record.replicas)} replicas, but {len(directories)} directories"
        )
    _check_nodes(number, record)


def _check_partition_change(record: kw.PartitionChangeRecord) -> None:
    number = record.partition_id
    _refuse(partition_problem(number))
    if record.replicas is not None:
        check_replicas([record.replicas], _NODES)
    _check_leader(number, record.leader, _UNCHANGED)
    _check_nodes(number, record)


def _check_leader(partition: int, leader: int, least: int) -> None:
    if leader < least:
        raise invalid_request(f"partition {partition}: {leader} is not the id of a leader")


def _check_nodes(partition: int, record: Any) -> None:
    """Check lists of nodes. A log has a record for each of many thousand partitions."""
    for nodes in (
        record.isr,
        record.adding_replicas,
        record.removing_replicas,
        record.eligible_leader_replicas,
        record.last_known_elr,
    ):
        if nodes and min(nodes) < 0:
            raise invalid_request(f"partition {partition}: {min(nodes)} is not the id of a node")


def _check_feature(record: kw.FeatureLevelRecord) -> None:
    problem = feature_problem(record.name, record.feature_level, KAFKA_FEATURES, "this broker")
    if problem is not None:
        raise invalid_request(f"Unsupported {record.name} {record.feature_level}: {problem}")


def _check_producer_ids(record: kw.ProducerIdsRecord) -> None:
    if not 0 <= record.next_producer_id <= MAX_OFFSET:
        raise invalid_request(
            f"the next producer id, {record.next_producer_id}, is not a number from 0 to {MAX_OFFSET}"
        )


def _check_node(record: kw.RegisterBrokerRecord) -> None:
    if record.broker_id < 0:
        raise invalid_request(f"{record.broker_id} is not the id of a node")


def _check_credential(record: kw.UserScramCredentialRecord) -> None:
    hash_size = hashlib.new(mechanism_of(record.name, record.mechanism).hash).digest_size
    for name in ("stored_key", "server_key"):
        size = len(getattr(record, name))
        if size != hash_size:
            raise invalid_request(
                f"{name} of user {record.name!r} has {size} bytes, not {hash_size}"
            )
    check_iterations(record.iterations)


def _refuse(problem: str | None, prefix: str = "") -> None:
    if problem is not None:
        raise invalid_request(prefix + problem)


_CHECKS: dict[str, Callable[[Any], None]] = {
    "TopicRecord": _check_topic,
    "PartitionRecord": _check_partition,
    "PartitionChangeRecord": _check_partition_change,
    "FeatureLevelRecord": _check_feature,
    "ProducerIdsRecord": _check_producer_ids,
    "RegisterBrokerRecord": _check_node,
    "UserScramCredentialRecord": _check_credential,
}
