"""Checks the records of a metadata log before they take effect, with the code that checks requests.

The log can come from another machine, another version, or a stranger: docs/security.md. A record that no request could have
written ends the start. A setting that is invalid in this version is ignored instead, because older versions allow more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import kafka_wire as kw

from krammar.broker.config.definitions import (
    BROKER_CONFIGS,
    GROUP_CONFIGS,
    TOPIC_CONFIGS,
    ConfigDef,
    ConfigError,
)
from krammar.broker.errors import invalid_request
from krammar.broker.metadata_records import KAFKA_FEATURES, feature_problem
from krammar.broker.security.credentials import check_iterations, mechanism_of
from krammar.broker.topic_checks import check_new_topic, check_replicas
from krammar.logfiles.names import MAX_OFFSET, epoch_problem, partition_problem
from krammar.wire.message import Codec
from krammar.wire.primitives import NULL_UUID

# The log names nodes that other processes run.
_NODES = range(1 << 31)
_NONE = -1  # no leader, no epoch
_UNCHANGED = -2  # the leader of a PartitionChangeRecord
_SETTINGS: dict[int, dict[str, ConfigDef]] = {
    kw.ConfigResourceType.TOPIC: TOPIC_CONFIGS,
    kw.ConfigResourceType.BROKER: BROKER_CONFIGS,
    kw.ConfigResourceType.GROUP: GROUP_CONFIGS,
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


def _topic(record: kw.TopicRecord) -> None:
    check_new_topic(record.name)
    if record.topic_id == NULL_UUID:
        raise invalid_request(f"topic {record.name} has the null UUID as its id")


def _partition(record: kw.PartitionRecord) -> None:
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


def _partition_change(record: kw.PartitionChangeRecord) -> None:
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


def _feature(record: kw.FeatureLevelRecord) -> None:
    problem = feature_problem(record.name, record.feature_level, KAFKA_FEATURES, "this broker")
    if problem is not None:
        raise invalid_request(f"Unsupported {record.name} {record.feature_level}: {problem}")


def _producer_ids(record: kw.ProducerIdsRecord) -> None:
    if not 0 <= record.next_producer_id <= MAX_OFFSET:
        raise invalid_request(
            f"the next producer id, {record.next_producer_id}, is not a number from 0 to {MAX_OFFSET}"
        )


def _node(record: kw.RegisterBrokerRecord) -> None:
    if record.broker_id < 0:
        raise invalid_request(f"{record.broker_id} is not the id of a node")


def _credential(record: kw.UserScramCredentialRecord) -> None:
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
    "TopicRecord": _topic,
    "PartitionRecord": _partition,
    "PartitionChangeRecord": _partition_change,
    "FeatureLevelRecord": _feature,
    "ProducerIdsRecord": _producer_ids,
    "RegisterBrokerRecord": _node,
    "UserScramCredentialRecord": _credential,
}
