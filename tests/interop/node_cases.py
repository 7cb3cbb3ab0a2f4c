"""Requests to one node about its log folders, features, quorum and registration, and for what is turned off."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kafka_wire import (
    AlterReplicaLogDirsRequest,
    ApiVersionsRequest,
    CreateAclsRequest,
    CreateDelegationTokenRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeDelegationTokenRequest,
    DescribeQuorumRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)

from krammar.wire.reflection import fields

QUORUM = "__cluster_metadata"


def at_version(value: Any, version: int) -> Any:
    """Return a request without the values of fields that a version lacks."""
    if isinstance(value, list):
        return [at_version(each, version) for each in value]
    if not hasattr(value, "_fields"):
        return value
    present = [info.name for info in fields(type(value)) if version in info.versions]
    return type(value)(**{name: at_version(getattr(value, name), version) for name in present})


def move(*moves: tuple[str, str, list[int]]) -> AlterReplicaLogDirsRequest:
    return AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDirsRequest.AlterReplicaLogDir(
                path=path,
                topics=[
                    AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(
                        name=name, partitions=partitions
                    )
                ],
            )
            for path, name, partitions in moves
        ]
    )


def feature(name: str, level: int, kind: int = 1) -> UpdateFeaturesRequest.FeatureUpdateKey:
    """Build the change of one feature."""
    return UpdateFeaturesRequest.FeatureUpdateKey(
        feature=name, max_version_level=level, upgrade_type=kind, allow_downgrade=kind == 2
    )


def update(*updates: UpdateFeaturesRequest.FeatureUpdateKey, dry: bool = True) -> Any:
    """Build an UpdateFeatures request."""
    return UpdateFeaturesRequest(timeout_ms=1000, feature_updates=updates, validate_only=dry)


def quorum(*topics: tuple[str, list[int]]) -> DescribeQuorumRequest:
    return DescribeQuorumRequest(
        topics=[
            DescribeQuorumRequest.TopicData(
                topic_name=name,
                partitions=[DescribeQuorumRequest.PartitionData(partition_index=i) for i in parts],
            )
            for name, parts in topics
        ]
    )


# Each case sends its requests in all versions that Kafka has; it gets the broker's log folder.
CASES: dict[str, Callable[[Path], list[Any]]] = {
    "move to where it is": lambda folder: [move((str(folder), "t", [0]))],
    "move to an unknown folder": lambda folder: [move(("/nowhere", "t", [0, 1]))],
    "move to a relative folder": lambda folder: [move(("relative", "t", [0]))],
    "move an unknown partition": lambda folder: [
        move((str(folder), "t", [9])),
        move((str(folder), "unknown", [0])),
        move(("/nowhere", "unknown", [0])),
    ],
    "move nothing": lambda folder: [move()],
    "the quorum": lambda folder: [quorum((QUORUM, [0]))],
    "another quorum": lambda folder: [
        quorum((QUORUM, [1])),
        quorum((QUORUM, [0, 1])),
        quorum(("t", [0])),
        quorum((QUORUM, [0]), ("t", [0])),
        quorum(),
    ],
    "update no feature": lambda folder: [update()],
    "update an unknown feature": lambda folder: [update(feature("speed", 1))],
    "update a feature to its level": lambda folder: [
        update(feature("transaction.version", 2)),
    ],
    "update a feature beyond its levels": lambda folder: [
        update(feature("transaction.version", 99)),
        update(feature("transaction.version", -1)),
        update(feature("metadata.version", 99)),
        update(feature("metadata.version", 0)),
        update(feature("metadata.version", 1)),
    ],
    "lower a feature without asking for it": lambda folder: [
        update(feature("transaction.version", 1)),
    ],
    "lower a feature": lambda folder: [
        update(feature("kraft.version", 0, 2)),
        update(feature("transaction.version", 0, 2)),
        update(feature("transaction.version", 1, 3)),
    ],
    "update a feature in an unknown way": lambda folder: [
        update(feature("transaction.version", 2, 9))
    ],
    "update a feature twice": lambda folder: [
        update(feature("transaction.version", 2), feature("transaction.version", 2)),
        update(feature("transaction.version", 2), feature("speed", 1)),
    ],
    "lower by an upgrade's kind": lambda folder: [update(feature("transaction.version", 2, 2))],
    "unregister an unknown broker": lambda folder: [UnregisterBrokerRequest(broker_id=99)],
    "ACLs": lambda folder: [
        DescribeAclsRequest(
            resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1
        ),
        CreateAclsRequest(
            creations=[
                CreateAclsRequest.AclCreation(
                    resource_type=2,
                    resource_name="t",
                    principal="User:a",
                    host="*",
                    operation=3,
                    permission_type=3,
                )
            ]
            * 2
        ),
        DeleteAclsRequest(
            filters=[
                DeleteAclsRequest.DeleteAclsFilter(
                    resource_type_filter=2,
                    pattern_type_filter=3,
                    operation=1,
                    permission_type=1,
                )
            ]
            * 2
        ),
    ],
    "delegation tokens": lambda folder: [
        CreateDelegationTokenRequest(max_lifetime_ms=1000),
        RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=1000),
        ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=1000),
        DescribeDelegationTokenRequest(owners=None),
    ],
    "ApiVersions": lambda folder: [
        ApiVersionsRequest(client_software_name="test", client_software_version="1")
    ],
}
