"""The typed attributes of a broker's configuration."""

from __future__ import annotations

from pathlib import Path

from krammar.broker.config.listeners import Listener


class BrokerSettings:
    """One attribute per setting that the broker reads by itself: the setting's name with underscores.

    ``listeners`` and the folders combine several settings. Topics and listeners read theirs by Kafka's
    names. The prefix ``krammar.`` is dropped.
    """

    listeners: list[Listener]
    log_dirs: list[Path]
    metadata_log_dir: Path

    node_id: int
    broker_rack: str | None
    num_partitions: int
    auto_create_topics_enable: bool
    delete_topic_enable: bool
    default_replication_factor: int
    min_insync_replicas: int
    fetch_max_bytes: int
    max_incremental_fetch_session_cache_slots: int
    max_request_partition_size_limit: int
    replica_selector_class: str | None

    connection_failed_authentication_delay_ms: int
    connections_max_idle_ms: int
    max_connections: int
    max_connections_per_ip: int
    max_connections_per_ip_overrides: str
    socket_request_max_bytes: int

    group_consumer_assignors: list[str]
    group_consumer_max_size: int
    group_consumer_migration_policy: str
    group_coordinator_rebalance_protocols: list[str]
    group_initial_rebalance_delay_ms: int
    group_max_session_timeout_ms: int
    group_max_size: int
    group_min_session_timeout_ms: int
    offset_metadata_max_bytes: int
    offsets_retention_check_interval_ms: int
    offsets_retention_minutes: int
    offsets_topic_num_partitions: int
    offsets_topic_replication_factor: int
    offsets_topic_segment_bytes: int

    producer_id_expiration_ms: int
    transaction_max_timeout_ms: int
    transaction_partition_verification_enable: bool
    transaction_remove_expired_transaction_cleanup_interval_ms: int
    transaction_state_log_num_partitions: int
    transaction_state_log_replication_factor: int
    transaction_state_log_segment_bytes: int
    transactional_id_expiration_ms: int

    log_cleaner_backoff_ms: int
    log_cleaner_enable: bool
    log_retention_check_interval_ms: int
    log_segment_delete_delay_ms: int

    sasl_server_max_receive_size: int
    ssl_client_auth: str

    cluster_id: str | None
    fsync: str
    fsync_interval_ms: int
    metrics: str | None
    racks: str | None
    oauthbearer_required_scope: list[str]
    start_without: list[str]
