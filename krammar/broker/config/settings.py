"""The typed attributes of a broker's configuration."""

from __future__ import annotations

from pathlib import Path

from krammar.broker.config.listeners import Listener


class Settings:
    """One attribute per setting of a single node: the setting's name with underscores.

    ``listeners`` and the folders combine several settings. ``krammar.cluster.id``, ``krammar.fsync`` and
    ``krammar.fsync.interval.ms`` lose their prefix.
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
    message_max_bytes: int
    max_incremental_fetch_session_cache_slots: int
    max_request_partition_size_limit: int

    connection_failed_authentication_delay_ms: int
    connections_max_idle_ms: int
    connections_max_reauth_ms: int
    max_connections: int
    socket_listen_backlog_size: int
    socket_receive_buffer_bytes: int
    socket_request_max_bytes: int
    socket_send_buffer_bytes: int
    inter_broker_listener_name: str | None

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

    producer_id_expiration_check_interval_ms: int
    producer_id_expiration_ms: int
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int
    transaction_max_timeout_ms: int
    transaction_partition_verification_enable: bool
    transaction_remove_expired_transaction_cleanup_interval_ms: int
    transaction_state_log_num_partitions: int
    transaction_state_log_replication_factor: int
    transaction_state_log_segment_bytes: int
    transactional_id_expiration_ms: int

    compression_gzip_level: int
    compression_lz4_level: int
    compression_type: str
    compression_zstd_level: int
    log_cleaner_backoff_ms: int
    log_cleaner_delete_retention_ms: int
    log_cleaner_enable: bool
    log_cleaner_max_compaction_lag_ms: int
    log_cleaner_min_cleanable_ratio: float
    log_cleaner_min_compaction_lag_ms: int
    log_cleanup_policy: list[str]
    log_index_interval_bytes: int
    log_index_size_max_bytes: int
    log_message_timestamp_after_max_ms: int
    log_message_timestamp_before_max_ms: int
    log_message_timestamp_type: str
    log_retention_bytes: int
    log_retention_check_interval_ms: int
    log_retention_hours: int
    log_retention_minutes: int | None
    log_retention_ms: int | None
    log_roll_hours: int
    log_roll_ms: int | None
    log_segment_bytes: int
    log_segment_delete_delay_ms: int

    sasl_enabled_mechanisms: list[str]
    sasl_jaas_config: str | None
    sasl_server_max_receive_size: int
    ssl_cipher_suites: list[str]
    ssl_client_auth: str
    ssl_enabled_protocols: list[str]
    ssl_key_password: str | None
    ssl_keystore_certificate_chain: str | None
    ssl_keystore_key: str | None
    ssl_keystore_location: str | None
    ssl_keystore_password: str | None
    ssl_keystore_type: str
    ssl_principal_mapping_rules: str
    ssl_protocol: str
    ssl_truststore_certificates: str | None
    ssl_truststore_location: str | None
    ssl_truststore_password: str | None
    ssl_truststore_type: str

    cluster_id: str | None
    fsync: str
    fsync_interval_ms: int
