"""Facts about Apache Kafka's messages that its JSON schemas lack.

Where a request is sent, which schemas have a version before them on the wire, which integers are enums
(``KAFKA_ENUMS``), what fields mean, and the definition file of each message.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

from krammar.compiler.names import snake_case
from krammar.compiler.schemas import MessageSchema, SchemaField

# Where a request must be sent, from the protocol guide and the KIPs that added the requests. Other requests
# go to any broker, or to the leader of a partition.
ROUTING = {
    name: routing
    for routing, names in {
        "admin": (
            "AllocateProducerIds AlterPartition AlterPartitionReassignments "
            "AlterUserScramCredentials AssignReplicasToDirs BrokerHeartbeat BrokerRegistration "
            "ControlledShutdown ControllerRegistration CreatePartitions CreateTopics DeleteTopics "
            "ElectLeaders Envelope ListPartitionReassignments UpdateFeatures"
        ),
        "group coordinator": (
            "AlterShareGroupOffsets ConsumerGroupDescribe ConsumerGroupHeartbeat DeleteGroups "
            "DeleteShareGroupOffsets DescribeGroups DescribeShareGroupOffsets Heartbeat JoinGroup "
            "LeaveGroup OffsetCommit OffsetDelete OffsetFetch ShareGroupDescribe "
            "ShareGroupHeartbeat StreamsGroupDescribe StreamsGroupHeartbeat "
            "StreamsGroupTopologyDescriptionUpdate SyncGroup TxnOffsetCommit"
        ),
        "txn coordinator": (
            "AddOffsetsToTxn AddPartitionsToTxn DescribeTransactions EndTxn InitProducerId"
        ),
        "share coordinator": (
            "DeleteShareGroupState InitializeShareGroupState ReadShareGroupState "
            "ReadShareGroupStateSummary WriteShareGroupState"
        ),
    }.items()
    for name in names.split()
}

# The requests that Kafka's ApiKeys mark as cluster actions.
CLUSTER_ACTIONS = frozenset(
    [
        "AllocateProducerIds",
        "AlterPartition",
        "BeginQuorumEpoch",
        "BrokerHeartbeat",
        "BrokerRegistration",
        "ControlledShutdown",
        "DeleteShareGroupState",
        "DescribeQuorum",
        "EndQuorumEpoch",
        "Envelope",
        "InitializeShareGroupState",
        "LeaderAndIsr",
        "ReadShareGroupState",
        "ReadShareGroupStateSummary",
        "StopReplica",
        "UpdateFeatures",
        "UpdateMetadata",
        "Vote",
        "WriteShareGroupState",
        "WriteTxnMarkers",
    ]
)

# Schemas of type `data` that Kafka writes after an int16 version, which is not in their JSON. The last three
# accept any version: a reader ignores the bytes that it does not know.
VERSION_PREFIXED = frozenset(
    {
        "ConsumerProtocolAssignment",
        "ConsumerProtocolSubscription",
        "DefaultPrincipalData",
        "ProducerSnapshot",
        "AbortedTxn",
        "ControlRecordTypeSchema",
        "EndTxnMarker",
    }
)

# The files for related schemas of type `data`. Each other schema gets a separate file.
DATA_FILES = {
    name: file
    for file, names in {
        "consumer_protocol": "ConsumerProtocolAssignment ConsumerProtocolSubscription",
        "control_records": (
            "ControlRecordTypeSchema EndTxnMarker KRaftVersionRecord LeaderChangeMessage "
            "SnapshotFooterRecord SnapshotHeaderRecord VotersRecord"
        ),
    }.items()
    for name in names.split()
}

# The files for the records of Kafka's modules. The key is the end of a folder's name on the schema's path.
MODULE_FILES = {
    "group-coordinator": "consumer_offsets",
    "transaction-coordinator": "transaction_state",
    "share-coordinator": "share_group_state",
    "metadata": "cluster_metadata",
    "storage": "remote_log_metadata",
}

# Integers that are enums: from a pattern of `Message.Field.Field…` to the enum and its integer type. The first
# pattern that matches wins.
KAFKA_ENUMS = {
    "*ErrorCode": "ErrorCode int16",
    "*Acls*.ResourceType*": "AclResourceType int8",
    "*Acls*.*PatternType*": "AclPatternType int8",
    "*Acls*.Operation": "AclOperation int8",
    "*Acls*.PermissionType": "AclPermissionType int8",
    "AccessControlEntryRecord.ResourceType": "AclResourceType int8",
    "AccessControlEntryRecord.PatternType": "AclPatternType int8",
    "AccessControlEntryRecord.Operation": "AclOperation int8",
    "AccessControlEntryRecord.PermissionType": "AclPermissionType int8",
    "*Config*.ResourceType*": "ConfigResourceType int8",
    "*.ConfigSource": "ConfigSource int8",
    "DescribeConfigs*.Source": "ConfigSource int8",
    "*.ConfigType": "ConfigType int8",
    "*.ConfigOperation": "AlterConfigOp int8",
    "*.Mechanism": "ScramMechanism int8",
    "*.MatchType": "QuotaMatchType int8",
    "*.EndpointType": "EndpointType int8",
    "*.ElectionType": "ElectionType int8",
    "*.IsolationLevel": "IsolationLevel int8",
    "FindCoordinator*.KeyType": "CoordinatorType int8",
    "*.AcceptedCompressionTypes": "CompressionType int8",
    "*.CompressionType": "CompressionType int8",
    "*.DeliveryState": "ShareRecordState int8",
    "*.AcknowledgeTypes": "ShareAcknowledgeType int8",
    "*.ShareAcquireMode": "ShareAcquireMode int8",
    "*.UpgradeType": "FeatureUpdateType int8",
    "*.SecurityProtocol": "SecurityProtocol int16",
    "*.LeaderRecoveryState": "LeaderRecoveryState int8",
    "BrokerRegistrationChangeRecord.Fenced": "BrokerFencingChange int8",
    "BrokerRegistrationChangeRecord.InControlledShutdown": "BrokerControlledShutdownChange int8",
    "*.RemoteLogSegmentState": "RemoteLogSegmentState int8",
    "*.RemotePartitionDeleteState": "RemotePartitionDeleteState int8",
    "TransactionLogValue.TransactionStatus": "TransactionState int8",
    "ControlRecordTypeSchema.Type": "ControlRecordType int16",
    "*.ZkMigrationState": "ZkMigrationState int8",
    "LeaderAndIsrRequest.Type": "ControlRequestType int8",
    "UpdateMetadataRequest.Type": "ControlRequestType int8",
    "*.MemberType": "GroupMemberType int8",
    "Streams*AssignmentValue.State": "StreamsGroupMemberState int8",
    "*AssignmentValue.State": "GroupMemberState int8",
    "StreamsGroupHeartbeatResponse.Status.StatusCode": "StreamsGroupStatus int8",
    "*.TopologyDescriptionStatus": "StreamsTopologyDescriptionStatus int8",
    "*TopologyDescriptionNode.NodeType": "StreamsTopologyNodeType int8",
}

# Entities that the schemas do not name: from a pattern as above to the entity and the types of the field.
_ENTITIES = {
    "*.TopicId": "topicId uuid",
    "Fetch*.SessionId": "fetchSessionId int32",
    "*ErrorMessage": "errorMessage string",
    "StreamsGroupHeartbeatResponse.Status.StatusDetail": "errorMessage string",
    "*TopicRegex": "namePattern string",
    "ListTransactionsRequest.TransactionalIdPattern": "namePattern string",
    "*.Partition": "partition int32",
    "*.PartitionId": "partition int32",
    "*.PartitionIds": "partition int32",
    "*.PartitionIndex": "partition int32",
    "*.PartitionIndexes": "partition int32",
    "*.Partitions": "partition int32",
    "Produce*.Index": "partition int32",
    "FetchSnapshot*.Index": "partition int32",
    "UpdateRaftVoterResponse.CurrentLeader.Host": "brokerHost string",
    "UpdateRaftVoterResponse.CurrentLeader.Port": "brokerPort int32",
    "FindCoordinatorResponse.Host": "brokerHost string",
    "FindCoordinatorResponse.Port": "brokerPort int32",
    **{
        f"*Response.{struct}.{name}": f"broker{name} {types}"
        for struct in ("Brokers", "Coordinators", "NodeEndpoints")
        for name, types in (("Host", "string"), ("Port", "int32 uint16"))
    },
    "SaslAuthenticate*.AuthBytes": "secret bytes",
    "*DelegationToken*.Hmac": "secret bytes",
    "*Scram*.Salt": "secret bytes",
    "*Scram*.SaltedPassword": "secret bytes",
    "UserScramCredentialRecord.*Key": "secret bytes",
    "EnvelopeRequest.RequestData": "secret bytes",
    "EnvelopeResponse.ResponseData": "secret bytes",
}

# Folders of a source tree or a jar that do not identify a module.
_IDLE_FOLDERS = frozenset({"common", "message", "resources", "main", "src"})


# Structs whose newer versions Kafka reads as the newest that it knows, because members of a group send them to members
# with another version of the client.
READS_NEWER = frozenset({"ConsumerProtocolAssignment", "ConsumerProtocolSubscription"})


def add_facts(schema: MessageSchema) -> None:
    """Add to a schema what its JSON lacks."""
    schema.file = _file_name(schema)
    schema.version_prefixed = schema.name in VERSION_PREFIXED or schema.kind.startswith(
        "coordinator-"
    )
    schema.reads_newer = schema.name in READS_NEWER
    first = schema.fields[0] if schema.fields and schema.kind == "data" else None
    if first is not None and (first.name, first.type, first.array) == ("Version", "int16", False):
        # In other notations, the default of the version is unknown.
        first.default = first.default or "0"
    # The version of a record key is the type of the record. A single version is not written.
    lone = schema.name in VERSION_PREFIXED and schema.versions == (0, 0)
    schema.open_ended = schema.flexible_from is None and (lone or schema.kind == "coordinator-key")
    if schema.kind == "request":
        schema.routing = ROUTING.get(schema.base, "")
        schema.cluster_action = schema.base in CLUSTER_ACTIONS
    _add_entities(schema.name, schema.fields)
    for name, fields in schema.commons.items():
        _add_entities(f"{schema.name}.{name}", fields)


def _add_entities(place: str, fields: list[SchemaField]) -> None:
    for item in fields:
        path = f"{place}.{item.name}"
        for pattern, target in _ENTITIES.items():
            entity, *types = target.split()
            # Alone, an integer of this name counts partitions.
            is_count = pattern == "*.Partitions" and not item.array
            if item.type in types and not is_count and fnmatchcase(path, pattern):
                item.entity = item.entity or entity
        _add_entities(path, item.fields or [])


def _module(path: Path) -> str:
    """Kafka's module of a schema: the nearest folder that identifies one."""
    folders = [
        re.sub(r"^kafka-|-[0-9].*$", "", part) for part in path.parent.parts if part not in "/"
    ]
    for folder in reversed(folders):
        if folder in MODULE_FILES:
            return MODULE_FILES[folder]
    telling = [folder for folder in folders if folder not in _IDLE_FOLDERS]
    return re.sub(r"\W+", "_", telling[-1], flags=re.ASCII).lower() if telling else "records"


def _file_name(schema: MessageSchema) -> str:
    if schema.kind in {"request", "response"}:
        return snake_case(schema.base)
    if schema.kind == "header":
        return "headers"
    if schema.kind == "data":
        return DATA_FILES.get(schema.name) or snake_case(schema.name.removesuffix("Data"))
    return _module(schema.path)
