"""What each API asks for: operations on resources, and what a refusal looks like (KIP-11 and the KIPs of the APIs).

The APIs of ``OPEN`` need no right. All others that the table does not have, such as those between brokers, need
ClusterAction.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from kafka_wire import AclOperation, AclResourceType, ErrorCode

ALTER = AclOperation.ALTER
ALTER_CONFIGS = AclOperation.ALTER_CONFIGS
CLUSTER_ACTION = AclOperation.CLUSTER_ACTION
CREATE = AclOperation.CREATE
DELETE = AclOperation.DELETE
DESCRIBE = AclOperation.DESCRIBE
DESCRIBE_CONFIGS = AclOperation.DESCRIBE_CONFIGS
IDEMPOTENT_WRITE = AclOperation.IDEMPOTENT_WRITE
READ = AclOperation.READ
WRITE = AclOperation.WRITE

CLUSTER = AclResourceType.CLUSTER
GROUP = AclResourceType.GROUP
TOPIC = AclResourceType.TOPIC
TRANSACTIONAL_ID = AclResourceType.TRANSACTIONAL_ID


class Refusal(Enum):
    """How a response says that something is refused."""

    WHOLE = "the whole response is the error"
    EACH = "each topic, group or transactional id has the error; the others are handled"
    HIDDEN = "it is left out"


WHOLE, EACH, HIDDEN = Refusal.WHOLE, Refusal.EACH, Refusal.HIDDEN


class Ask(NamedTuple):
    """One operation that a request needs on each resource of a type that it names.

    Attributes:
        unless: an operation on the cluster that makes this one unnecessary
    """

    operation: AclOperation
    resource: AclResourceType
    refusal: Refusal
    unless: AclOperation | None = None


# The error code of a refusal, and the text beside it.
ERRORS = {
    CLUSTER: (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."),
    GROUP: (ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed."),
    TOPIC: (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."),
    TRANSACTIONAL_ID: (
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        "Transactional Id authorization failed.",
    ),
}

_ALTER_CLUSTER = (Ask(ALTER, CLUSTER, WHOLE),)
_CLUSTER_ACTION = (Ask(CLUSTER_ACTION, CLUSTER, WHOLE),)
_DESCRIBE_CLUSTER = (Ask(DESCRIBE, CLUSTER, WHOLE),)
_READ_GROUP = (Ask(READ, GROUP, WHOLE),)
_WRITE_TRANSACTION = Ask(WRITE, TRANSACTIONAL_ID, WHOLE)
# An EACH of topics leaves out topics where a request asks for all of them.
_DESCRIBE_TOPICS = (Ask(DESCRIBE, TOPIC, EACH),)

TABLE: dict[str, tuple[Ask, ...]] = {
    "AddOffsetsToTxn": (_WRITE_TRANSACTION, Ask(READ, GROUP, WHOLE)),
    "AddPartitionsToTxn": (_WRITE_TRANSACTION, Ask(WRITE, TOPIC, EACH)),
    "AlterClientQuotas": (Ask(ALTER_CONFIGS, CLUSTER, WHOLE),),
    "AlterPartitionReassignments": _ALTER_CLUSTER,
    "AlterReplicaLogDirs": _ALTER_CLUSTER,
    "AlterShareGroupOffsets": (Ask(READ, GROUP, WHOLE), Ask(READ, TOPIC, EACH)),
    "AlterUserScramCredentials": _ALTER_CLUSTER,
    "ConsumerGroupDescribe": (Ask(DESCRIBE, GROUP, EACH),),
    "ConsumerGroupHeartbeat": (Ask(READ, GROUP, WHOLE), Ask(DESCRIBE, TOPIC, WHOLE)),
    "CreateAcls": _ALTER_CLUSTER,
    "CreatePartitions": (Ask(ALTER, TOPIC, EACH),),
    "CreateTopics": (Ask(CREATE, TOPIC, EACH, unless=CREATE),),
    "DeleteAcls": _ALTER_CLUSTER,
    "DeleteGroups": (Ask(DELETE, GROUP, EACH),),
    "DeleteRecords": (Ask(DELETE, TOPIC, EACH),),
    "DeleteShareGroupOffsets": (Ask(DELETE, GROUP, WHOLE), Ask(READ, TOPIC, EACH)),
    "DeleteShareGroupState": _CLUSTER_ACTION,
    "DeleteTopics": (Ask(DELETE, TOPIC, EACH, unless=DELETE),),
    "DescribeAcls": _DESCRIBE_CLUSTER,
    "DescribeClientQuotas": (Ask(DESCRIBE_CONFIGS, CLUSTER, WHOLE),),
    "DescribeGroups": (Ask(DESCRIBE, GROUP, EACH),),
    "DescribeLogDirs": _DESCRIBE_CLUSTER,
    "DescribeProducers": (Ask(READ, TOPIC, EACH),),
    "DescribeQuorum": _DESCRIBE_CLUSTER,
    "DescribeShareGroupOffsets": (Ask(DESCRIBE, GROUP, EACH), *_DESCRIBE_TOPICS),
    "DescribeTopicPartitions": _DESCRIBE_TOPICS,
    "DescribeTransactions": (
        Ask(DESCRIBE, TRANSACTIONAL_ID, EACH),
        Ask(DESCRIBE, TOPIC, HIDDEN),
    ),
    "DescribeUserScramCredentials": _DESCRIBE_CLUSTER,
    "ElectLeaders": _ALTER_CLUSTER,
    "EndTxn": (_WRITE_TRANSACTION,),
    "Fetch": (Ask(READ, TOPIC, EACH),),
    "FindCoordinator": (Ask(DESCRIBE, GROUP, EACH), Ask(DESCRIBE, TRANSACTIONAL_ID, EACH)),
    "Heartbeat": _READ_GROUP,
    "InitProducerId": (_WRITE_TRANSACTION,),
    "InitializeShareGroupState": _CLUSTER_ACTION,
    "JoinGroup": _READ_GROUP,
    "LeaveGroup": _READ_GROUP,
    "ListConfigResources": (Ask(DESCRIBE_CONFIGS, CLUSTER, WHOLE),),
    "ListGroups": (Ask(DESCRIBE, GROUP, HIDDEN, unless=DESCRIBE),),
    "ListOffsets": _DESCRIBE_TOPICS,
    "ListPartitionReassignments": _DESCRIBE_CLUSTER,
    "ListTransactions": (Ask(DESCRIBE, TRANSACTIONAL_ID, HIDDEN),),
    "Metadata": _DESCRIBE_TOPICS,
    "OffsetCommit": (Ask(READ, GROUP, WHOLE), Ask(READ, TOPIC, EACH)),
    "OffsetDelete": (Ask(DELETE, GROUP, WHOLE), Ask(READ, TOPIC, EACH)),
    "OffsetFetch": (Ask(DESCRIBE, GROUP, EACH), *_DESCRIBE_TOPICS),
    "OffsetForLeaderEpoch": (Ask(DESCRIBE, TOPIC, EACH, unless=CLUSTER_ACTION),),
    "Produce": (_WRITE_TRANSACTION, Ask(WRITE, TOPIC, EACH)),
    "ReadShareGroupState": _CLUSTER_ACTION,
    "ReadShareGroupStateSummary": _CLUSTER_ACTION,
    "ShareAcknowledge": (Ask(READ, GROUP, WHOLE), Ask(READ, TOPIC, EACH)),
    "ShareFetch": (Ask(READ, GROUP, WHOLE), Ask(READ, TOPIC, EACH)),
    "ShareGroupDescribe": (Ask(DESCRIBE, GROUP, EACH),),
    "ShareGroupHeartbeat": (Ask(READ, GROUP, WHOLE), Ask(DESCRIBE, TOPIC, WHOLE)),
    "SyncGroup": _READ_GROUP,
    "TxnOffsetCommit": (_WRITE_TRANSACTION, Ask(READ, GROUP, WHOLE), Ask(READ, TOPIC, EACH)),
    "UnregisterBroker": _ALTER_CLUSTER,
    "UpdateFeatures": _ALTER_CLUSTER,
    "WriteShareGroupState": _CLUSTER_ACTION,
    "WriteTxnMarkers": (Ask(CLUSTER_ACTION, CLUSTER, WHOLE, unless=ALTER),),
}

# DescribeCluster's bit field of operations needs Describe on the cluster. Delegation tokens belong to their users.
OPEN = frozenset(
    {
        *("ApiVersions", "SaslHandshake", "SaslAuthenticate", "DescribeCluster"),
        *("GetTelemetrySubscriptions", "PushTelemetry"),
        *("CreateDelegationToken", "DescribeDelegationToken"),
        *("ExpireDelegationToken", "RenewDelegationToken"),
    }
)

# These name resources of several types: topics, groups, and the cluster for brokers, loggers and client metrics.
CONFIGS: dict[str, AclOperation] = {
    "AlterConfigs": ALTER_CONFIGS,
    "DescribeConfigs": DESCRIBE_CONFIGS,
    "IncrementalAlterConfigs": ALTER_CONFIGS,
}
