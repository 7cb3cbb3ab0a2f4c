"""The settings of a topic's logs."""

from __future__ import annotations

from dataclasses import dataclass, field

INT64_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class LogConfig:
    """A topic's settings, with Kafka's names and defaults.

    Sizes are in bytes, times in milliseconds; -1 means no limit.
    """

    cleanup_policy: frozenset[str] = frozenset({"delete"})
    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3600 * 1000
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = -1
    max_message_bytes: int = 1048588
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = INT64_MAX
    message_timestamp_after_max_ms: int = 3600 * 1000
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = INT64_MAX
    delete_retention_ms: int = 24 * 3600 * 1000
    file_delete_delay_ms: int = 60000
    flush_messages: int = INT64_MAX
    flush_ms: int = INT64_MAX
    compression_type: str = "producer"
    compression_level: int | None = None
    # Whether the cleanup policy contains each of the two.
    compacts: bool = field(init=False)
    deletes: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "compacts", "compact" in self.cleanup_policy)
        object.__setattr__(self, "deletes", "delete" in self.cleanup_policy)
