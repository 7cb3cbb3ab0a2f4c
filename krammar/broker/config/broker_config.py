"""A broker's configuration: Kafka's server.properties, or the defaults."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from krammar.broker.config.broker_configs import BROKER_CONFIGS
from krammar.broker.config.definitions import ConfigDef, ConfigError
from krammar.broker.config.listeners import (
    Endpoint,
    Listener,
    build_listeners,
    parse_endpoints,
    parse_protocol_map,
)
from krammar.broker.config.properties import decode, parse_properties
from krammar.broker.config.topic_configs import TOPIC_CONFIGS
from krammar.broker.storage.log_config import LogConfig

_BY_ATTRIBUTE = {name.replace(".", "_"): name for name in BROKER_CONFIGS}
_LISTENER_KEY = re.compile(r"listener\.name\.[^.]+\.(.+)")


class BrokerConfig:
    """The settings of one broker.

    Each of Kafka's keys is an attribute with underscores (``log.segment.bytes`` is
    ``log_segment_bytes``), with the value that was set or the default. ``listeners`` and the folders are
    made of several keys.
    """

    warnings: list[str]
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

    compression_type: str
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

    krammar_fsync: str
    krammar_fsync_interval_ms: int

    def __init__(self, static: Mapping[str, str], origins: Mapping[str, str] | None = None) -> None:
        """``static`` holds texts by Kafka's names, ``origins`` where each stands. Raises ConfigError."""
        self.static = dict(static)
        self._origins = dict(origins or {})
        self.warnings = []
        self._check_names()
        try:
            self._read()
        except ConfigError as error:
            if error.origin or error.name not in self._origins:
                raise
            raise error.at(self._origins[error.name]) from None

    @classmethod
    def from_properties(
        cls, source: str | PathLike[str], overrides: Mapping[str, str] | None = None
    ) -> BrokerConfig:
        """The configuration of a server.properties: a str is its text, a Path its file.

        ``overrides`` go before the file's entries. Raises ConfigError, and OSError for a file that
        cannot be read.
        """
        if isinstance(source, str):
            text, file = source, "the properties"
        else:
            text, file = decode(Path(source).read_bytes()), Path(source).name
        static: dict[str, str] = {}
        origins: dict[str, str] = {}
        repeated: list[str] = []
        try:
            entries = parse_properties(text)
        except ConfigError as error:
            raise error.at(f"{error.origin} of {file}") from None
        for name, value, line in entries:
            if name in static:
                repeated.append(f"{name} is set twice; line {line} of {file} counts")
            static[name] = value
            origins[name] = f"line {line} of {file}"
        for name, value in (overrides or {}).items():
            static[name] = value
            origins.pop(name, None)
        config = cls(static, origins)
        config.warnings[:0] = repeated
        return config

    @classmethod
    def defaults(cls, **overrides: Any) -> BrokerConfig:
        """Kafka's defaults, but for some settings, named with underscores or as Kafka does.

        A value may be text, or what its attribute holds: ``defaults(log_dirs=[path], num_partitions=3)``.
        Raises ConfigError, also for a name that no setting has.
        """
        static: dict[str, str] = {}
        for key, value in overrides.items():
            name = key if _known(key) else _BY_ATTRIBUTE.get(key, "")
            if not name:
                raise ConfigError(key, None, f"no such setting{_nearest(key, list(_BY_ATTRIBUTE))}")
            static[name] = _text(value)
        return cls(static)

    def get(self, name: str) -> str | None:
        """The text of any key by Kafka's name, ``listener.name.*`` too: as it was set, or its default."""
        if name in self.static:
            return self.static[name]
        definition = BROKER_CONFIGS.get(name)
        return definition.default if definition is not None else None

    def listener_get(self, listener: Listener, name: str) -> str | None:
        """The text of a key for one listener: ``listener.name.<listener>.<key>`` goes before ``<key>``."""
        own = f"listener.name.{listener.name.lower()}.{name}"
        return self.static[own] if own in self.static else self.get(name)

    def topic_config(self, overrides: Mapping[str, str]) -> LogConfig:
        """What a topic's own settings and the broker's mean for its logs. Raises ConfigError."""
        values = {name: self._topic_value(TOPIC_CONFIGS[name], overrides) for name in _LOG_KEYS}
        return LogConfig(
            cleanup_policy=frozenset(values["cleanup.policy"]),
            segment_bytes=values["internal.segment.bytes"] or values["segment.bytes"],
            segment_ms=values["segment.ms"],
            segment_index_bytes=values["segment.index.bytes"],
            index_interval_bytes=values["index.interval.bytes"],
            retention_ms=values["retention.ms"],
            retention_bytes=values["retention.bytes"],
            max_message_bytes=values["max.message.bytes"],
            message_timestamp_type=values["message.timestamp.type"],
            message_timestamp_before_max_ms=values["message.timestamp.before.max.ms"],
            message_timestamp_after_max_ms=values["message.timestamp.after.max.ms"],
            min_cleanable_dirty_ratio=values["min.cleanable.dirty.ratio"],
            min_compaction_lag_ms=values["min.compaction.lag.ms"],
            max_compaction_lag_ms=values["max.compaction.lag.ms"],
            delete_retention_ms=values["delete.retention.ms"],
            file_delete_delay_ms=values["file.delete.delay.ms"],
            compression_type=values["compression.type"],
        )

    def _topic_value(self, definition: ConfigDef, overrides: Mapping[str, str]) -> Any:
        if definition.name in overrides:
            return definition.parse(overrides[definition.name])
        for name, factor in definition.synonyms:
            if name in self.static:
                value = BROKER_CONFIGS[name].parse(self.static[name])
                return value * factor if factor != 1 else value
        return None if definition.default is None else definition.parse(definition.default)

    def _check_names(self) -> None:
        for name in self.static:
            if not _known(name):
                where = f" ({self._origins[name]})" if name in self._origins else ""
                near = _nearest(name, list(BROKER_CONFIGS))
                self.warnings.append(f"{name}: no such setting{near}{where}")

    def _read(self) -> None:
        values: dict[str, Any] = {}
        for name, definition in BROKER_CONFIGS.items():
            text = self.static.get(name, definition.default)
            values[name] = None if text is None else definition.parse(text)
            if definition.effect:
                setattr(self, name.replace(".", "_"), values[name])
        for name, text in self.static.items():
            match = _LISTENER_KEY.fullmatch(name)
            if match and match[1] in BROKER_CONFIGS:
                BROKER_CONFIGS[match[1]].parse(text)
        self._read_node(values)
        folders = values["log.dirs"] or values["log.dir"]
        self.log_dirs = [Path(folder) for folder in folders]
        self.metadata_log_dir = Path(values["metadata.log.dir"] or folders[0])
        self.listeners = self._read_listeners(values)

    def _read_node(self, values: Mapping[str, Any]) -> None:
        older = values["broker.id"] if "broker.id" in self.static else None
        self.node_id = values["node.id"] if "node.id" in self.static else (older or 1)
        if older is not None and older != self.node_id:
            raise ConfigError("broker.id", str(older), f"node.id is {self.node_id}: set both alike")
        roles = values["process.roles"]
        if roles is not None and "broker" not in roles:
            raise ConfigError("process.roles", ",".join(roles), "this node has to be a broker")

    def _read_listeners(self, values: Mapping[str, Any]) -> list[Listener]:
        protocols = parse_protocol_map(
            "listener.security.protocol.map", values["listener.security.protocol.map"]
        )
        controllers = {name.upper() for name in values["controller.listener.names"] or ()}
        bound = parse_endpoints("listeners", values["listeners"])
        served = [endpoint for endpoint in bound if endpoint.name not in controllers]
        if not served:
            raise ConfigError("listeners", ",".join(values["listeners"]), "none is a broker's")
        advertised: list[Endpoint] | None = None
        if values["advertised.listeners"] is not None:
            told = parse_endpoints("advertised.listeners", values["advertised.listeners"])
            advertised = [endpoint for endpoint in told if endpoint.name not in controllers]
        found = build_listeners(served, advertised, protocols)
        name = values["inter.broker.listener.name"]
        if name is not None and name.upper() not in {listener.name for listener in found}:
            raise ConfigError("inter.broker.listener.name", name, "listeners defines no such name")
        return found


_LOG_KEYS = (
    "cleanup.policy",
    "compression.type",
    "delete.retention.ms",
    "file.delete.delay.ms",
    "index.interval.bytes",
    "internal.segment.bytes",
    "max.compaction.lag.ms",
    "max.message.bytes",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.type",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.index.bytes",
    "segment.ms",
)


def _known(name: str) -> bool:
    return name in BROKER_CONFIGS or _LISTENER_KEY.fullmatch(name) is not None


def _nearest(name: str, names: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, names, 1)
    return f"; did you mean {close[0]}?" if close else ""


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(str(item) for item in value)
    return str(value)
