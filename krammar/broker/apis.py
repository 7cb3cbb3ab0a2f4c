"""The APIs that the broker serves: for each api key, the versions and the method that handles it.

An entry finds its method when the first request arrives, because the modules of handlers are
imported at their first use.

The version ranges match Apache Kafka 4.4: from the oldest version that it accepts to the newest
released one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

from kafka_wire import ApiKey, request_class

from krammar.broker import handlers
from krammar.broker.session import Session

T = TypeVar("T")

# Returns a response, ``Steps`` of one, or an awaitable of one.
Handler = Callable[[Session, Any, int], Any]


class HandlersOf(Protocol):
    """Returns a broker's object of a class of handlers."""

    def __call__(self, kind: type[T], /) -> T: ...


class Api(NamedTuple):
    """``find`` returns the method that handles the requests from version ``low`` to ``high``."""

    find: Callable[[HandlersOf], Handler]
    low: int
    high: int


def answer_with_error(of: HandlersOf) -> Handler:
    """The handler of requests that are answered with an error."""
    return of(handlers.unserved.UnservedHandlers).refuse


APIS: dict[int, Api] = {
    # v0 to v2 carry formats that are refused; librdkafka compresses only if the range begins at v0.
    ApiKey.PRODUCE: Api(lambda of: of(handlers.produce.ProduceHandlers).produce, 0, 13),
    ApiKey.FETCH: Api(lambda of: of(handlers.fetch.FetchHandlers).fetch, 4, 18),
    ApiKey.LIST_OFFSETS: Api(lambda of: of(handlers.offsets.OffsetHandlers).list_offsets, 1, 11),
    ApiKey.METADATA: Api(lambda of: of(handlers.metadata.MetadataHandlers).metadata, 0, 13),
    ApiKey.OFFSET_COMMIT: Api(
        lambda of: of(handlers.group_offsets.GroupOffsetHandlers).offset_commit, 2, 10
    ),
    ApiKey.OFFSET_FETCH: Api(
        lambda of: of(handlers.group_offsets.GroupOffsetHandlers).offset_fetch, 1, 10
    ),
    ApiKey.FIND_COORDINATOR: Api(
        lambda of: of(handlers.groups.GroupHandlers).find_coordinator, 0, 6
    ),
    ApiKey.JOIN_GROUP: Api(lambda of: of(handlers.groups.GroupHandlers).join_group, 0, 9),
    ApiKey.HEARTBEAT: Api(lambda of: of(handlers.groups.GroupHandlers).heartbeat, 0, 4),
    ApiKey.LEAVE_GROUP: Api(lambda of: of(handlers.groups.GroupHandlers).leave_group, 0, 5),
    ApiKey.SYNC_GROUP: Api(lambda of: of(handlers.groups.GroupHandlers).sync_group, 0, 5),
    ApiKey.DESCRIBE_GROUPS: Api(lambda of: of(handlers.groups.GroupHandlers).describe_groups, 0, 6),
    ApiKey.LIST_GROUPS: Api(lambda of: of(handlers.groups.GroupHandlers).list_groups, 0, 5),
    ApiKey.SASL_HANDSHAKE: Api(
        lambda of: of(handlers.security.SecurityHandlers).sasl_handshake, 0, 1
    ),
    ApiKey.API_VERSIONS: Api(
        lambda of: of(handlers.api_versions.ApiVersionsHandlers).api_versions, 0, 5
    ),
    ApiKey.CREATE_TOPICS: Api(lambda of: of(handlers.topics.TopicHandlers).create_topics, 2, 7),
    ApiKey.DELETE_TOPICS: Api(lambda of: of(handlers.topics.TopicHandlers).delete_topics, 1, 6),
    ApiKey.DELETE_RECORDS: Api(lambda of: of(handlers.topics.TopicHandlers).delete_records, 0, 2),
    # v6 (two-phase commit, KIP-939) is marked unstable in Kafka 4.4, which does not advertise it.
    ApiKey.INIT_PRODUCER_ID: Api(
        lambda of: of(handlers.transactions.TransactionHandlers).init_producer_id, 0, 5
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Api(
        lambda of: of(handlers.offsets.OffsetHandlers).offset_for_leader_epoch, 2, 4
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: Api(
        lambda of: of(handlers.transactions.TransactionHandlers).add_partitions_to_txn, 0, 5
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: Api(
        lambda of: of(handlers.transactions.TransactionHandlers).add_offsets_to_txn, 0, 4
    ),
    ApiKey.END_TXN: Api(lambda of: of(handlers.transactions.TransactionHandlers).end_txn, 0, 5),
    ApiKey.TXN_OFFSET_COMMIT: Api(
        lambda of: of(handlers.group_offsets.GroupOffsetHandlers).txn_offset_commit, 0, 6
    ),
    # For administrators: coordinators of transactions write their markers without requests.
    ApiKey.WRITE_TXN_MARKERS: Api(
        lambda of: of(handlers.transactions.TransactionAdminHandlers).write_txn_markers, 1, 2
    ),
    ApiKey.DESCRIBE_CONFIGS: Api(
        lambda of: of(handlers.configs.ConfigHandlers).describe_configs, 1, 4
    ),
    ApiKey.ALTER_CONFIGS: Api(lambda of: of(handlers.configs.ConfigHandlers).alter_configs, 0, 2),
    ApiKey.DESCRIBE_LOG_DIRS: Api(
        lambda of: of(handlers.node.NodeHandlers).describe_log_dirs, 1, 5
    ),
    ApiKey.SASL_AUTHENTICATE: Api(
        lambda of: of(handlers.security.SecurityHandlers).sasl_authenticate, 0, 2
    ),
    ApiKey.CREATE_PARTITIONS: Api(
        lambda of: of(handlers.topics.TopicHandlers).create_partitions, 0, 3
    ),
    ApiKey.DELETE_GROUPS: Api(lambda of: of(handlers.groups.GroupHandlers).delete_groups, 0, 3),
    ApiKey.ELECT_LEADERS: Api(
        lambda of: of(handlers.elections.ElectionHandlers).elect_leaders, 0, 2
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Api(
        lambda of: of(handlers.configs.ConfigHandlers).incremental_alter_configs, 0, 1
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Api(
        lambda of: of(handlers.elections.ElectionHandlers).alter_partition_reassignments, 0, 1
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Api(
        lambda of: of(handlers.elections.ElectionHandlers).list_partition_reassignments, 0, 0
    ),
    ApiKey.OFFSET_DELETE: Api(
        lambda of: of(handlers.group_offsets.GroupOffsetHandlers).offset_delete, 0, 0
    ),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Api(
        lambda of: of(handlers.quotas.QuotaHandlers).describe_client_quotas, 0, 1
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: Api(
        lambda of: of(handlers.quotas.QuotaHandlers).alter_client_quotas, 0, 1
    ),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Api(
        lambda of: of(handlers.security.SecurityHandlers).describe_user_scram_credentials, 0, 0
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Api(
        lambda of: of(handlers.security.SecurityHandlers).alter_user_scram_credentials, 0, 0
    ),
    ApiKey.DESCRIBE_CLUSTER: Api(lambda of: of(handlers.node.NodeHandlers).describe_cluster, 0, 2),
    ApiKey.DESCRIBE_PRODUCERS: Api(
        lambda of: of(handlers.transactions.TransactionAdminHandlers).describe_producers, 0, 0
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: Api(
        lambda of: of(handlers.transactions.TransactionAdminHandlers).describe_transactions,
        0,
        0,
    ),
    ApiKey.LIST_TRANSACTIONS: Api(
        lambda of: of(handlers.transactions.TransactionAdminHandlers).list_transactions, 0, 2
    ),
    # ApiVersions lists these two only with krammar.client.telemetry.
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: Api(
        lambda of: of(handlers.telemetry.TelemetryHandlers).get_telemetry_subscriptions, 0, 0
    ),
    ApiKey.PUSH_TELEMETRY: Api(
        lambda of: of(handlers.telemetry.TelemetryHandlers).push_telemetry, 0, 0
    ),
    ApiKey.LIST_CONFIG_RESOURCES: Api(
        lambda of: of(handlers.configs.ConfigHandlers).list_config_resources, 0, 1
    ),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Api(
        lambda of: of(handlers.metadata.MetadataHandlers).describe_topic_partitions, 0, 0
    ),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Api(
        lambda of: of(handlers.node.NodeHandlers).alter_replica_log_dirs, 1, 2
    ),
    ApiKey.DESCRIBE_QUORUM: Api(lambda of: of(handlers.node.NodeHandlers).describe_quorum, 0, 2),
    ApiKey.UPDATE_FEATURES: Api(lambda of: of(handlers.node.NodeHandlers).update_features, 0, 2),
    ApiKey.UNREGISTER_BROKER: Api(
        lambda of: of(handlers.node.NodeHandlers).unregister_broker, 0, 0
    ),
    ApiKey.DESCRIBE_ACLS: Api(lambda of: of(handlers.acls.AclHandlers).describe_acls, 1, 3),
    ApiKey.CREATE_ACLS: Api(lambda of: of(handlers.acls.AclHandlers).create_acls, 1, 3),
    ApiKey.DELETE_ACLS: Api(lambda of: of(handlers.acls.AclHandlers).delete_acls, 1, 3),
    # Answered like Kafka with delegation tokens disabled.
    ApiKey.CREATE_DELEGATION_TOKEN: Api(answer_with_error, 1, 3),
    ApiKey.RENEW_DELEGATION_TOKEN: Api(answer_with_error, 1, 2),
    ApiKey.EXPIRE_DELEGATION_TOKEN: Api(answer_with_error, 1, 2),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: Api(answer_with_error, 1, 3),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Api(
        lambda of: of(handlers.groups.GroupHandlers).consumer_group_heartbeat, 0, 1
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Api(
        lambda of: of(handlers.groups.GroupHandlers).consumer_group_describe, 0, 1
    ),
    ApiKey.SHARE_GROUP_HEARTBEAT: Api(
        lambda of: of(handlers.share_groups.ShareGroupHandlers).share_group_heartbeat, 1, 1
    ),
    ApiKey.SHARE_GROUP_DESCRIBE: Api(
        lambda of: of(handlers.share_groups.ShareGroupHandlers).share_group_describe, 1, 1
    ),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: Api(
        lambda of: of(handlers.share_states.ShareStateHandlers).initialize, 0, 0
    ),
    ApiKey.READ_SHARE_GROUP_STATE: Api(
        lambda of: of(handlers.share_states.ShareStateHandlers).read, 0, 0
    ),
    ApiKey.WRITE_SHARE_GROUP_STATE: Api(
        lambda of: of(handlers.share_states.ShareStateHandlers).write, 0, 1
    ),
    ApiKey.DELETE_SHARE_GROUP_STATE: Api(
        lambda of: of(handlers.share_states.ShareStateHandlers).delete, 0, 0
    ),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: Api(
        lambda of: of(handlers.share_states.ShareStateHandlers).read_summary, 0, 1
    ),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: Api(
        lambda of: of(handlers.share_groups.ShareGroupHandlers).describe_share_group_offsets, 0, 1
    ),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: Api(
        lambda of: of(handlers.share_groups.ShareGroupHandlers).alter_share_group_offsets, 0, 0
    ),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: Api(
        lambda of: of(handlers.share_groups.ShareGroupHandlers).delete_share_group_offsets, 0, 0
    ),
    ApiKey.SHARE_FETCH: Api(
        lambda of: of(handlers.share_fetch.ShareFetchHandlers).share_fetch, 1, 2
    ),
    ApiKey.SHARE_ACKNOWLEDGE: Api(
        lambda of: of(handlers.share_fetch.ShareFetchHandlers).share_acknowledge, 1, 2
    ),
}

# ApiVersions does not list these, but clients may send them: answered with UNSUPPORTED_VERSION. All
# other api keys belong to brokers and controllers; they close the connection.
UNSERVED: dict[int, tuple[int, int]] = {
    ApiKey.ADD_RAFT_VOTER: (0, 1),
    ApiKey.REMOVE_RAFT_VOTER: (0, 0),
    ApiKey.STREAMS_GROUP_HEARTBEAT: (0, 1),
    ApiKey.STREAMS_GROUP_DESCRIBE: (0, 1),
    ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: (0, 0),
    ApiKey.UNREGISTER_CONTROLLER: (0, 0),
}

RANGES: dict[int, tuple[int, int]] = {int(key): (api.low, api.high) for key, api in APIS.items()}

# The versions of all requests that get a response.
SERVED = {**UNSERVED, **RANGES}

# The APIs of a login, and those that are served before a client has authenticated.
LOGIN = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
HANDSHAKE = LOGIN | {ApiKey.API_VERSIONS}

# Clients choose such versions if they do not ask for the broker's.
_OLD = (
    "; the client expects an old broker: set api.version.request=true in librdkafka, Config.Version in Sarama, "
    "or remove api_version in kafka-python and aiokafka"
)


def why_unserved(api_key: int, version: int, served: Mapping[int, tuple[int, int]]) -> str:
    """Return why a request closes the connection: its API or version is not among those that are ``served``."""
    name = request_class(api_key).__name__
    if api_key not in served:
        return f"{name} is not served"
    low, high = served[api_key]
    hint = _OLD if version < low else ""
    return f"{name} v{version} is not served, only v{low} to v{high}{hint}"
