"""A broker's configuration: server.properties or defaults, and changes at run time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from krammar.broker.config.definitions import (
    BROKER_CONFIGS,
    CLIENT_METRICS_CONFIGS,
    ConfigError,
    UpdateMode,
    setting_text,
    tables_of,
)
from krammar.broker.config.listeners import Listener, read_listeners
from krammar.broker.config.overrides import Levels, Overridable, check_topic, in_force, log_config
from krammar.broker.log.log_config import LogConfig
from krammar.util.properties import decode, parse_properties
from krammar.util.settings import SettingError


class BrokerSettings:
    """One attribute per setting that the broker reads by itself: the setting's name with underscores.

    ``listeners`` and the folders combine several settings. Topics and listeners read theirs by
    Kafka's names. The prefix ``krammar.`` is dropped.
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
    max_connection_creation_rate: int
    max_connections: int
    max_connections_per_ip: int
    max_connections_per_ip_overrides: str
    socket_request_max_bytes: int

    errors_deadletterqueue_auto_create_topics_enable: bool
    errors_deadletterqueue_topic_name_prefix: str
    group_consumer_assignors: list[str]
    group_consumer_max_size: int
    group_consumer_migration_policy: str
    group_coordinator_rebalance_protocols: list[str]
    group_initial_rebalance_delay_ms: int
    group_max_session_timeout_ms: int
    group_max_size: int
    group_min_session_timeout_ms: int
    group_share_max_share_sessions: int
    group_share_max_size: int
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

    share_coordinator_cold_partition_snapshot_interval_ms: int
    share_coordinator_snapshot_update_records_per_snapshot: int
    share_coordinator_state_topic_num_partitions: int
    share_coordinator_state_topic_prune_interval_ms: int
    share_coordinator_state_topic_replication_factor: int
    share_coordinator_state_topic_segment_bytes: int

    log_cleaner_backoff_ms: int
    log_cleaner_enable: bool
    log_retention_check_interval_ms: int
    log_segment_delete_delay_ms: int

    controller_quota_window_num: int
    controller_quota_window_size_seconds: int
    quota_window_num: int
    quota_window_size_seconds: int

    sasl_server_max_receive_size: int
    ssl_client_auth: str
    telemetry_max_bytes: int

    client_telemetry: bool
    cluster_id: str | None
    fsync: str
    fsync_interval_ms: int
    kafka_like_delays_ms: int
    kafka_version: str | None
    metrics: str | None
    racks: str | None
    oauthbearer_required_scope: list[str]
    plain_any_password: bool
    start_without: list[str]

    allow_everyone_if_no_acl_found: bool
    authorizer_class_name: str
    super_users: str


LISTENER_KEY = re.compile(r"listener\.name\.[^.]+\.(.+)")
_RELEASE = "krammar.kafka.version"
# Attributes that combine several settings.
_COMBINED = frozenset({"listeners", "log_dirs", "metadata_log_dir", "node_id"})


def attribute(name: str) -> str:
    """Return the attribute name of a setting."""
    return name.removeprefix("krammar.").replace(".", "_")


_BY_ATTRIBUTE = {attribute(name): name for name in BROKER_CONFIGS}
_ATTRIBUTES = {
    _BY_ATTRIBUTE[own]: own for own in BrokerSettings.__annotations__ if own not in _COMBINED
}


class BrokerConfig(BrokerSettings):
    """The settings of one broker.

    Attributes:
        static: the settings of the file or the caller, as text, by Kafka's names
        origins: the position of each text, such as "line 12 of server.properties"
        dynamic_default: settings made at run time for all brokers
        dynamic: settings made at run time for this broker
        tables: the definitions of the release that the broker serves as
        topics, groups, client_metrics: the settings that each of these resources can override
        warnings: unknown and duplicate settings, and other suspicious ones
    """

    def __init__(self, static: Mapping[str, str], origins: Mapping[str, str] | None = None) -> None:
        """Read and check all settings.

        Args:
            static: the settings as text, by Kafka's names
            origins: the position of each text, for error messages

        Raises:
            ConfigError: a setting is invalid.
        """
        self.static = dict(static)
        release = self.static.get(_RELEASE)
        self.tables = tables_of(release and BROKER_CONFIGS[_RELEASE].parse(release))
        self.warnings: list[str] = []
        self.origins = origins = dict(origins or {})
        for name in self.static:
            if not _known(name):
                where = f" ({origins[name]})" if name in origins else ""
                self.warnings.append(f"{name}: {BROKER_CONFIGS.unknown(name)}{where}")
        try:
            self._read()
            self.set_dynamic({}, {})
            check_topic(self.topics, {})
        except ConfigError as error:
            error.origin = error.origin or origins.get(error.name, "")
            raise

    @classmethod
    def from_properties(
        cls, source: str | PathLike[str], overrides: Mapping[str, str] | None = None
    ) -> BrokerConfig:
        """Read a server.properties.

        Args:
            source: the text (str) or the file (path)
            overrides: settings that take precedence over the file

        Raises:
            ConfigError: the file cannot be read, or a setting is invalid.
        """
        text, file = source, "the properties"
        if not isinstance(text, str):
            path = Path(text)
            try:
                text, file = decode(path.read_bytes()), path.name
            except OSError as error:
                raise ConfigError(str(path), None, f"cannot be read: {error.strerror}") from None
        static: dict[str, str] = {}
        origins: dict[str, str] = {}
        repeated: list[str] = []
        try:
            entries = parse_properties(text)
        except SettingError as error:
            origin = f"{error.origin} of {file}"
            raise ConfigError(error.name, None, error.reason, origin) from None
        for name, value, line in entries:
            if name in static:
                repeated.append(f"{name} is set twice: line {line} of {file} wins")
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
        """Return Kafka's defaults with some overrides: ``defaults(log_dirs=[path], num_partitions=3)``.

        Args:
            overrides: by attribute or by Kafka's name; the value as text or as in the attribute

        Raises:
            ConfigError: a setting is unknown or invalid.
        """
        static: dict[str, str] = {}
        for key, value in overrides.items():
            name = key if _known(key) else _BY_ATTRIBUTE.get(key, "")
            if not name:
                raise ConfigError(key, None, BROKER_CONFIGS.unknown(key.replace("_", ".")))
            if value is not None:
                static[name] = setting_text(value) or ""
        return cls(static)

    # Reading.

    def get(self, name: str) -> str | None:
        """Return the static text of a setting, ``listener.name.*`` included; None if it is not set."""
        return self.static.get(name)

    def topic_config(self, overrides: Mapping[str, str], *, check: bool = True) -> LogConfig:
        """Build the settings of a topic's logs from the topic's overrides and the broker's settings.

        Args:
            overrides: the topic's settings, as text
            check: raise ConfigError for invalid overrides. Without it, they are ignored: another
                version may have written them.
        """
        if check:
            check_topic(self.topics, overrides)
        return log_config(self.topics, overrides)

    def check_group_config(self, overrides: Mapping[str, str]) -> None:
        """Raise ConfigError if a group cannot have these settings; its ``api`` is Kafka's message."""
        values = self.groups.parse(overrides)
        for name, text in overrides.items():
            protocol, _, rest = name.partition(".")
            limits = [
                self.tables.broker.get(f"group.{protocol}.{end}.{rest}") for end in ("min", "max")
            ]
            low, high = (
                None if each is None else in_force(each, self.levels, self.tables.broker)
                for each in limits
            )
            if low is not None and high is not None and not low <= values[name] <= high:
                reason = f"must be in the range {low} to {high} inclusive."
                raise ConfigError(name, text, reason, api=f"{name} {reason}")

    @property
    def levels(self) -> Levels:
        """The texts of the settings, the strongest first."""
        return self.dynamic, self.dynamic_default, self.static

    # Changes at run time.

    def check_dynamic(self, changes: Mapping[str, str], own: bool) -> None:
        """Raise ConfigError if settings cannot be changed at run time; its ``api`` is Kafka's message.

        Args:
            changes: the new values, as text
            own: whether the changes are for this broker alone, not for all brokers
        """
        definitions = self.tables.broker
        modes = {name: definitions[name].mode for name in changes if name in definitions}
        fixed = sorted(
            name
            for name in changes
            if LISTENER_KEY.fullmatch(name) or modes.get(name) is UpdateMode.READ_ONLY
        )
        if fixed:
            api = f"Cannot update these configs dynamically: [{', '.join(fixed)}]"
            raise ConfigError(fixed[0], None, "cannot be changed while the broker runs", api=api)
        for name in modes:
            definitions[name].parse(changes[name])
        narrow = sorted(name for name, mode in modes.items() if mode is UpdateMode.PER_BROKER)
        if narrow and not own:
            api = (
                "Cannot update these configs at default cluster level, broker id must be "
                f"specified: [{', '.join(narrow)}]"
            )
            raise ConfigError(narrow[0], None, "can only be set for one broker", api=api)
        levels = (changes, *self.levels) if own else (self.dynamic, changes, *self.levels[1:])
        check_topic(Overridable("topic", self.tables.topics, levels, definitions), {})

    def set_dynamic(self, default: Mapping[str, str], own: Mapping[str, str]) -> None:
        """Apply the dynamic settings of the cluster metadata.

        Settings that are invalid, or that cannot change at run time, are ignored.

        Args:
            default: the settings for all brokers
            own: the settings for this broker
        """
        self.dynamic_default = dict(default)
        self.dynamic = dict(own)
        levels = self.levels
        tables = self.tables
        self.topics = Overridable("topic", tables.topics, levels, tables.broker)
        self.groups = Overridable("group", tables.groups, levels, tables.broker)
        self.client_metrics = Overridable(
            "client metrics", CLIENT_METRICS_CONFIGS, levels, tables.broker
        )
        for name, attribute_name in _ATTRIBUTES.items():
            definition = tables.broker[name]
            if not definition.read_only:
                setattr(self, attribute_name, in_force(definition, levels, tables.broker))

    # Reading what was given.

    def _read(self) -> None:
        values: dict[str, Any] = {}
        for name, definition in self.tables.broker.items():
            text = self.static.get(name)
            values[name] = definition.default if text is None else definition.parse(text)
        for name, own in _ATTRIBUTES.items():
            setattr(self, own, values[name])
        for name, text in self.static.items():
            match = LISTENER_KEY.fullmatch(name)
            if match and (found := self.tables.broker.get(match[1])) is not None:
                try:
                    found.parse(text)
                except ConfigError as error:
                    raise ConfigError(name, error.value, error.reason) from None
        self._read_node(values)
        folders = values["log.dirs"] or values["log.dir"]
        self.log_dirs = [Path(folder) for folder in folders]
        self.metadata_log_dir = Path(values["metadata.log.dir"] or folders[0])
        if self.fsync == "off":
            for name in ("log.flush.interval.messages", "log.flush.interval.ms"):
                if name in self.static:
                    self.warnings.append(
                        f"{name}: has no effect, because krammar.fsync=off forces nothing to the disk"
                    )
        self.listeners: list[Listener] = read_listeners(values, self.static, self.warnings)

    def _read_node(self, values: Mapping[str, Any]) -> None:
        older = values["broker.id"] if "broker.id" in self.static else None
        if "node.id" in self.static:
            self.node_id = values["node.id"]
        else:
            self.node_id = 1 if older is None else BROKER_CONFIGS["node.id"].parse(str(older))
        if older is not None and older != self.node_id:
            raise ConfigError("broker.id", str(older), f"is not node.id, {self.node_id}")
        roles = values["process.roles"]
        if roles is not None and "broker" not in roles:
            raise ConfigError("process.roles", ",".join(roles), "must include broker")


def _known(name: str) -> bool:
    return name in BROKER_CONFIGS or LISTENER_KEY.fullmatch(name) is not None
