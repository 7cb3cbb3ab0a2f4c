"""What each of Kafka's error codes means, in one sentence; brokers send the number alone."""

from __future__ import annotations

from typing import Final

from kafka_wire import ErrorCode

MEANINGS: Final[dict[ErrorCode, str]] = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "The broker failed in a way that no other code describes",
    ErrorCode.OFFSET_OUT_OF_RANGE: (
        "The offset is before the start of the partition's log, or after its end"
    ),
    ErrorCode.CORRUPT_MESSAGE: (
        "A record or batch is damaged, too large, or has no key although its topic is compacted"
    ),
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: (
        "The broker has no such topic, or no such partition of it"
    ),
    ErrorCode.INVALID_FETCH_SIZE: "The number of bytes that a fetch requested is invalid",
    ErrorCode.LEADER_NOT_AVAILABLE: (
        "The partition has no leader at the moment, as during an election"
    ),
    ErrorCode.NOT_LEADER_OR_FOLLOWER: (
        "The broker is not the partition's leader, or not even one of its replicas"
    ),
    ErrorCode.REQUEST_TIMED_OUT: (
        "The broker did not finish within the time that the request allows"
    ),
    ErrorCode.BROKER_NOT_AVAILABLE: "The required broker is down",
    ErrorCode.REPLICA_NOT_AVAILABLE: ("The required replica is not on this broker, or not usable"),
    ErrorCode.MESSAGE_TOO_LARGE: "A batch is larger than the topic accepts",
    ErrorCode.STALE_CONTROLLER_EPOCH: (
        "The request comes from a controller that another one has replaced"
    ),
    ErrorCode.OFFSET_METADATA_TOO_LARGE: (
        "The metadata of a committed offset is longer than the broker accepts"
    ),
    ErrorCode.NETWORK_EXCEPTION: (
        "The connection broke before the response arrived. Clients set this; it is not on the wire"
    ),
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: (
        "The coordinator is still reading its part of the log"
    ),
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "There is no coordinator at the moment",
    ErrorCode.NOT_COORDINATOR: (
        "Another broker is the coordinator of this group or transactional id"
    ),
    ErrorCode.INVALID_TOPIC_EXCEPTION: (
        "The topic's name is not allowed, or the operation is not allowed on this topic"
    ),
    ErrorCode.RECORD_LIST_TOO_LARGE: (
        "The batches of one partition are together larger than a log segment"
    ),
    ErrorCode.NOT_ENOUGH_REPLICAS: (
        "Fewer replicas are in sync than the topic demands, so nothing was written"
    ),
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: (
        "The records were written, but to fewer in-sync replicas than the topic demands"
    ),
    ErrorCode.INVALID_REQUIRED_ACKS: ("The requested number of acknowledgements is not -1, 0 or 1"),
    ErrorCode.ILLEGAL_GENERATION: "The generation is not the one that the group is in",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        "The member has no protocol in common with the group, or named none"
    ),
    ErrorCode.INVALID_GROUP_ID: "The group id is empty, or otherwise not allowed",
    ErrorCode.UNKNOWN_MEMBER_ID: "The group has no such member",
    ErrorCode.INVALID_SESSION_TIMEOUT: (
        "The session timeout is outside of the range that the broker allows"
    ),
    ErrorCode.REBALANCE_IN_PROGRESS: "The group is rebalancing; the member must join it again",
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE: (
        "The offsets to commit do not fit into one record of the broker's log"
    ),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "The client may not do this to the topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "The client may not do this to the group",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "The client may not do this to the cluster",
    ErrorCode.INVALID_TIMESTAMP: "A record's timestamp is too far from the broker's clock",
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: "The broker does not offer this SASL mechanism",
    ErrorCode.ILLEGAL_SASL_STATE: "The request does not fit into the course of the SASL exchange",
    ErrorCode.UNSUPPORTED_VERSION: "The broker does not know this version of the request",
    ErrorCode.TOPIC_ALREADY_EXISTS: "A topic with this name already exists",
    ErrorCode.INVALID_PARTITIONS: "The number of partitions is not allowed",
    ErrorCode.INVALID_REPLICATION_FACTOR: (
        "The number of replicas is below 1, or above the number of brokers"
    ),
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: ("The list of brokers for the replicas is not allowed"),
    ErrorCode.INVALID_CONFIG: "A configuration entry is unknown, or its value is not allowed",
    ErrorCode.NOT_CONTROLLER: "The node is not the cluster's controller",
    ErrorCode.INVALID_REQUEST: "The request contradicts itself, or does not suit this broker",
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: (
        "The topic's message format is too old for the request"
    ),
    ErrorCode.POLICY_VIOLATION: "A policy that the cluster's operator has set forbids this",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: (
        "A producer's sequence number does not follow its last one: a batch is missing"
    ),
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: ("A batch with this sequence number was already written"),
    ErrorCode.INVALID_PRODUCER_EPOCH: (
        "The producer's epoch is older than the one that the broker knows"
    ),
    ErrorCode.INVALID_TXN_STATE: "The transaction is in a state in which this is not possible",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: (
        "The producer id is not the one that belongs to the transactional id"
    ),
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: (
        "The transaction timeout is longer than the broker allows"
    ),
    ErrorCode.CONCURRENT_TRANSACTIONS: "An earlier step of the same transaction is not finished",
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: (
        "The markers come from a transaction coordinator that another one has replaced"
    ),
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        "The client may not use this transactional id"
    ),
    ErrorCode.SECURITY_DISABLED: "The cluster runs without an authorizer, so it has no ACLs",
    ErrorCode.OPERATION_NOT_ATTEMPTED: (
        "The broker did not process this part of the request, because another part failed"
    ),
    ErrorCode.KAFKA_STORAGE_ERROR: "The broker's disk failed",
    ErrorCode.LOG_DIR_NOT_FOUND: "The broker has no such log folder",
    ErrorCode.SASL_AUTHENTICATION_FAILED: "The credentials were refused",
    ErrorCode.UNKNOWN_PRODUCER_ID: (
        "The broker has forgotten the producer, for instance because all its records expired"
    ),
    ErrorCode.REASSIGNMENT_IN_PROGRESS: (
        "The partition is being moved to other brokers at the moment"
    ),
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "The cluster does not use delegation tokens",
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: "The cluster has no such delegation token",
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: "The delegation token belongs to somebody else",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: (
        "Delegation tokens cannot be requested on this kind of connection"
    ),
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: (
        "The client may not do this to the delegation token"
    ),
    ErrorCode.DELEGATION_TOKEN_EXPIRED: "The delegation token has expired",
    ErrorCode.INVALID_PRINCIPAL_TYPE: "The kind of principal is not supported",
    ErrorCode.NON_EMPTY_GROUP: "The group still has members",
    ErrorCode.GROUP_ID_NOT_FOUND: "The group does not exist",
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND: "The broker has no such fetch session",
    ErrorCode.INVALID_FETCH_SESSION_EPOCH: (
        "The fetch does not have the current epoch of its session"
    ),
    ErrorCode.LISTENER_NOT_FOUND: (
        "The leader has no listener with the name of the one that the client uses"
    ),
    ErrorCode.TOPIC_DELETION_DISABLED: "The cluster is configured to delete no topics",
    ErrorCode.FENCED_LEADER_EPOCH: "The client's leader epoch is older than the broker's",
    ErrorCode.UNKNOWN_LEADER_EPOCH: "The client's leader epoch is newer than the broker's",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: (
        "The client's version of the request cannot carry this compression"
    ),
    ErrorCode.STALE_BROKER_EPOCH: "The broker has registered again in the meantime",
    ErrorCode.OFFSET_NOT_AVAILABLE: (
        "A new leader does not know yet how far the partition is committed"
    ),
    ErrorCode.MEMBER_ID_REQUIRED: (
        "The member must join again, with the member id in this response"
    ),
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: ("The partition's preferred leader is not in sync"),
    ErrorCode.GROUP_MAX_SIZE_REACHED: "The group has as many members as it may have",
    ErrorCode.FENCED_INSTANCE_ID: "Another member has taken over this group instance id",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "No replica may become the partition's leader",
    ErrorCode.ELECTION_NOT_NEEDED: "The partition has the right leader already",
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: "The partition is not being moved",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: (
        "The group reads the topic, so its offsets cannot be deleted"
    ),
    ErrorCode.INVALID_RECORD: "The broker's checks refused a record",
    ErrorCode.UNSTABLE_OFFSET_COMMIT: (
        "A transaction that has not ended holds offsets of the partition"
    ),
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: "The client has used up its quota of changes",
    ErrorCode.PRODUCER_FENCED: "A newer producer uses the same transactional id",
    ErrorCode.RESOURCE_NOT_FOUND: "The resource does not exist",
    ErrorCode.DUPLICATE_RESOURCE: "The request names a resource twice",
    ErrorCode.UNACCEPTABLE_CREDENTIAL: (
        "The credential breaks a rule, such as the least number of iterations"
    ),
    ErrorCode.INCONSISTENT_VOTER_SET: (
        "The sender or the receiver is missing from the set of voters"
    ),
    ErrorCode.INVALID_UPDATE_VERSION: "The feature cannot be set to this level",
    ErrorCode.FEATURE_UPDATE_FAILED: "The broker failed while it changed the feature levels",
    ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE: (
        "The controller cannot read the principal of a forwarded request"
    ),
    ErrorCode.SNAPSHOT_NOT_FOUND: "The snapshot does not exist",
    ErrorCode.POSITION_OUT_OF_RANGE: "The position is outside of the snapshot",
    ErrorCode.UNKNOWN_TOPIC_ID: "The broker has no topic with this id",
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: "Another broker that is alive uses this broker id",
    ErrorCode.BROKER_ID_NOT_REGISTERED: "No broker with this id has registered",
    ErrorCode.INCONSISTENT_TOPIC_ID: "The log belongs to another topic id",
    ErrorCode.INCONSISTENT_CLUSTER_ID: "The request is meant for another cluster",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "The transactional id does not exist",
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR: (
        "One fetch session was used both with and without topic ids"
    ),
    ErrorCode.INELIGIBLE_REPLICA: "A replica that may not be in sync was named as in sync",
    ErrorCode.NEW_LEADER_ELECTED: ("The change was made, and another replica became the leader"),
    ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE: "The offset exists in tiered storage only",
    ErrorCode.FENCED_MEMBER_EPOCH: (
        "The member's epoch is over: it must give up its partitions and join again"
    ),
    ErrorCode.UNRELEASED_INSTANCE_ID: (
        "The member that uses this instance id has not left the group"
    ),
    ErrorCode.UNSUPPORTED_ASSIGNOR: "The group cannot use this assignor, or not its version",
    ErrorCode.STALE_MEMBER_EPOCH: "The member's epoch is old: its next heartbeat returns the new one",
    ErrorCode.MISMATCHED_ENDPOINT_TYPE: (
        "The request is for a broker and reached a controller, or vice versa"
    ),
    ErrorCode.UNSUPPORTED_ENDPOINT_TYPE: "The kind of endpoint is not known",
    ErrorCode.UNKNOWN_CONTROLLER_ID: "No controller has this id",
    ErrorCode.UNKNOWN_SUBSCRIPTION_ID: ("The telemetry subscription is not the current one"),
    ErrorCode.TELEMETRY_TOO_LARGE: "The telemetry is larger than the broker accepts",
    ErrorCode.INVALID_REGISTRATION: "The controller refuses the broker's registration",
    ErrorCode.TRANSACTION_ABORTABLE: (
        "The transaction failed; the client can abort it and begin a new one"
    ),
    ErrorCode.INVALID_RECORD_STATE: (
        "The member has not acquired the record, so it cannot acknowledge it"
    ),
    ErrorCode.SHARE_SESSION_NOT_FOUND: "The broker has no such share session",
    ErrorCode.INVALID_SHARE_SESSION_EPOCH: (
        "The request does not have the current epoch of its share session"
    ),
    ErrorCode.FENCED_STATE_EPOCH: "The share group's state has moved on to a newer epoch",
    ErrorCode.INVALID_VOTER_KEY: (
        "The voter's id or folder differs from that of the replica that received the request"
    ),
    ErrorCode.DUPLICATE_VOTER: "The voter is already in the set of voters",
    ErrorCode.VOTER_NOT_FOUND: "The voter is not in the set of voters",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "The regular expression cannot be compiled",
    ErrorCode.REBOOTSTRAP_REQUIRED: (
        "The client's metadata is out of date: it must start again from its bootstrap servers"
    ),
    ErrorCode.STREAMS_INVALID_TOPOLOGY: "The Streams topology breaks a rule",
    ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH: "The Streams topology's epoch is invalid",
    ErrorCode.STREAMS_TOPOLOGY_FENCED: "The group uses a newer epoch of the Streams topology",
    ErrorCode.SHARE_SESSION_LIMIT_REACHED: "The broker has as many share sessions as it allows",
    ErrorCode.GROUP_DELETION_FAILED: ("The group was not deleted; the error message says why"),
    ErrorCode.STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED: (
        "The description of the topology was not stored; the error message says why"
    ),
    ErrorCode.CONTROLLER_ID_NOT_REGISTERED: "No controller with this id has registered",
}
