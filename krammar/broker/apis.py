"""The APIs that the broker serves: for each api key, the versions and the method that handles it.

The version ranges match Apache Kafka 4.4: from the oldest version that it accepts to the newest released one.
"""

from __future__ import annotations

from typing import NamedTuple

from kafka_wire import ApiKey


class Api(NamedTuple):
    """``handler`` is ``group.method``: a group of ``Handlers``, and one of its methods."""

    handler: str
    low: int
    high: int


# Answered with an error.
REFUSED = "unserved.refuse"

APIS: dict[int, Api] = {
    # v0 to v2 carry formats that are refused; librdkafka compresses only if the range begins at v0.
    ApiKey.PRODUCE: Api("produce.produce", 0, 13),
    ApiKey.FETCH: Api("fetch.fetch", 4, 18),
    ApiKey.LIST_OFFSETS: Api("offsets.list_offsets", 1, 11),
    ApiKey.METADATA: Api("metadata.metadata", 0, 13),
    ApiKey.OFFSET_COMMIT: Api("group_offsets.offset_commit", 2, 10),
    ApiKey.OFFSET_FETCH: Api("group_offsets.offset_fetch", 1, 10),
    ApiKey.FIND_COORDINATOR: Api("groups.find_coordinator", 0, 6),
    ApiKey.JOIN_GROUP: Api("groups.join_group", 0, 9),
    ApiKey.HEARTBEAT: Api("groups.heartbeat", 0, 4),
    ApiKey.LEAVE_GROUP: Api("groups.leave_group", 0, 5),
    ApiKey.SYNC_GROUP: Api("groups.sync_group", 0, 5),
    ApiKey.DESCRIBE_GROUPS: Api("groups.describe_groups", 0, 6),
    ApiKey.LIST_GROUPS: Api("groups.list_groups", 0, 5),
    ApiKey.SASL_HANDSHAKE: Api("security.sasl_handshake", 0, 1),
    ApiKey.API_VERSIONS: Api("api_versions.api_versions", 0, 5),
    ApiKey.CREATE_TOPICS: Api("topics.create_topics", 2, 7),
    ApiKey.DELETE_TOPICS: Api("topics.delete_topics", 1, 6),
    ApiKey.DELETE_RECORDS: Api("topics.delete_records", 0, 2),
    # v6 (two-phase commit, KIP-939) is marked unstable in Kafka 4.4, which does not advertise it.
    ApiKey.INIT_PRODUCER_ID: Api("transactions.init_producer_id", 0, 5),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Api("offsets.offset_for_leader_epoch", 2, 4),
    ApiKey.ADD_PARTITIONS_TO_TXN: Api("transactions.add_partitions_to_txn", 0, 5),
    ApiKey.ADD_OFFSETS_TO_TXN: Api("transactions.add_offsets_to_txn", 0, 4),
    ApiKey.END_TXN: Api("transactions.end_txn", 0, 5),
    ApiKey.TXN_OFFSET_COMMIT: Api("group_offsets.txn_offset_commit", 0, 6),
    ApiKey.DESCRIBE_CONFIGS: Api("configs.describe_configs", 1, 4),
    ApiKey.ALTER_CONFIGS: Api("configs.alter_configs", 0, 2),
    ApiKey.DESCRIBE_LOG_DIRS: Api("node.describe_log_dirs", 1, 5),
    ApiKey.SASL_AUTHENTICATE: Api("security.sasl_authenticate", 0, 2),
    ApiKey.CREATE_PARTITIONS: Api("topics.create_partitions", 0, 3),
    ApiKey.DELETE_GROUPS: Api("groups.delete_groups", 0, 3),
    ApiKey.ELECT_LEADERS: Api("elections.elect_leaders", 0, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Api("configs.incremental_alter_configs", 0, 1),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Api("elections.alter_partition_reassignments", 0, 1),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Api("elections.list_partition_reassignments", 0, 0),
    ApiKey.OFFSET_DELETE: Api("group_offsets.offset_delete", 0, 0),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Api("node.describe_client_quotas", 0, 1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Api("security.describe_user_scram_credentials", 0, 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Api("security.alter_user_scram_credentials", 0, 0),
    ApiKey.DESCRIBE_CLUSTER: Api("node.describe_cluster", 0, 2),
    ApiKey.DESCRIBE_PRODUCERS: Api("transaction_admin.describe_producers", 0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: Api("transaction_admin.describe_transactions", 0, 0),
    ApiKey.LIST_TRANSACTIONS: Api("transaction_admin.list_transactions", 0, 2),
    ApiKey.LIST_CONFIG_RESOURCES: Api("configs.list_config_resources", 0, 1),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Api("metadata.describe_topic_partitions", 0, 0),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Api("node.alter_replica_log_dirs", 1, 2),
    ApiKey.DESCRIBE_QUORUM: Api("node.describe_quorum", 0, 2),
    ApiKey.UPDATE_FEATURES: Api("node.update_features", 0, 2),
    ApiKey.UNREGISTER_BROKER: Api("node.unregister_broker", 0, 0),
    # Answered like Kafka without an authorizer, and with delegation tokens disabled.
    ApiKey.DESCRIBE_ACLS: Api(REFUSED, 1, 3),
    ApiKey.CREATE_ACLS: Api(REFUSED, 1, 3),
    ApiKey.DELETE_ACLS: Api(REFUSED, 1, 3),
    ApiKey.CREATE_DELEGATION_TOKEN: Api(REFUSED, 1, 3),
    ApiKey.RENEW_DELEGATION_TOKEN: Api(REFUSED, 1, 2),
    ApiKey.EXPIRE_DELEGATION_TOKEN: Api(REFUSED, 1, 2),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: Api(REFUSED, 1, 3),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Api("groups.consumer_group_heartbeat", 0, 1),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Api("groups.consumer_group_describe", 0, 1),
    # Answered with UNSUPPORTED_VERSION, like Kafka with this protocol disabled. If ApiVersions did
    # not list it, librdkafka would search for another coordinator forever.
    ApiKey.SHARE_GROUP_HEARTBEAT: Api(REFUSED, 0, 1),
}

# ApiVersions does not list these, but clients may send them: answered with UNSUPPORTED_VERSION. All other
# api keys belong to brokers and controllers; they close the connection.
UNSERVED: dict[int, tuple[int, int]] = {
    ApiKey.WRITE_TXN_MARKERS: (0, 2),
    ApiKey.ALTER_CLIENT_QUOTAS: (0, 1),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: (0, 0),
    ApiKey.PUSH_TELEMETRY: (0, 0),
    ApiKey.SHARE_GROUP_DESCRIBE: (0, 1),
    ApiKey.SHARE_FETCH: (0, 2),
    ApiKey.SHARE_ACKNOWLEDGE: (0, 2),
    ApiKey.ADD_RAFT_VOTER: (0, 1),
    ApiKey.REMOVE_RAFT_VOTER: (0, 0),
    ApiKey.STREAMS_GROUP_HEARTBEAT: (0, 1),
    ApiKey.STREAMS_GROUP_DESCRIBE: (0, 1),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (0, 1),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: (0, 0),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: (0, 0),
    ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: (0, 0),
    ApiKey.UNREGISTER_CONTROLLER: (0, 0),
}

RANGES: dict[int, tuple[int, int]] = {int(key): (api.low, api.high) for key, api in APIS.items()}

# The APIs that are served before a client has authenticated.
HANDSHAKE = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
