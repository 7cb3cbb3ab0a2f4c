"""The keys of a topic's configuration: all those of Apache Kafka 4.4."""

from __future__ import annotations

from kafka_wire import ConfigType

from krammar.broker.config.definitions import (
    BOOLEAN,
    DOUBLE,
    INT,
    INT64_MAX,
    LIST,
    LONG,
    STRING,
    ConfigDef,
    Validator,
    at_least,
    between,
    each_of,
    gzip_level,
    one_of,
    throttled_replicas,
)

MINUTE = 60 * 1000
HOUR = 60 * MINUTE
COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")

TOPIC_CONFIGS: dict[str, ConfigDef] = {}


def _define(
    name: str,
    type_: ConfigType,
    default: str | None,
    validator: Validator | None,
    doc: str,
    *synonyms: str | tuple[str, int],
    effect: bool = True,
    internal: bool = False,
) -> None:
    pairs = tuple((item, 1) if isinstance(item, str) else item for item in synonyms)
    TOPIC_CONFIGS[name] = ConfigDef(
        name, type_, default, validator, doc, pairs, effect=effect, internal=internal
    )


_define(
    "cleanup.policy",
    LIST,
    "delete",
    each_of("compact", "delete"),
    "What happens to old records: delete drops whole segments by age and size, compact keeps the last "
    "record of each key, both may be given, and an empty list keeps everything.",
    "log.cleanup.policy",
)
_define(
    "compression.type",
    STRING,
    "producer",
    one_of(*COMPRESSION_TYPES),
    "The codec that records are meant to be stored with; this broker stores every batch as its "
    "producer compressed it.",
    "compression.type",
)
_define(
    "compression.gzip.level",
    INT,
    "-1",
    gzip_level,
    "The level of gzip, where the broker would compress.",
    "compression.gzip.level",
    effect=False,
)
_define(
    "compression.lz4.level",
    INT,
    "9",
    between(1, 17),
    "The level of LZ4, where the broker would compress.",
    "compression.lz4.level",
    effect=False,
)
_define(
    "compression.zstd.level",
    INT,
    "3",
    between(-131072, 22),
    "The level of Zstandard, where the broker would compress.",
    "compression.zstd.level",
    effect=False,
)
_define(
    "delete.retention.ms",
    LONG,
    str(24 * HOUR),
    at_least(0),
    "How many milliseconds the delete marker of a key stays in a compacted log, so that a reader who "
    "began before still sees it.",
    "log.cleaner.delete.retention.ms",
)
_define(
    "errors.deadletterqueue.group.enable",
    BOOLEAN,
    "false",
    None,
    "Whether share groups may use the topic for records that they gave up.",
    effect=False,
)
_define(
    "file.delete.delay.ms",
    LONG,
    str(MINUTE),
    at_least(0),
    "How many milliseconds a segment's files stay on the disk, renamed, after it left the log.",
    "log.segment.delete.delay.ms",
)
_define(
    "flush.messages",
    LONG,
    str(INT64_MAX),
    at_least(1),
    "After how many records a log is forced to the disk; krammar.fsync says it for all logs here.",
    "log.flush.interval.messages",
    effect=False,
)
_define(
    "flush.ms",
    LONG,
    str(INT64_MAX),
    at_least(0),
    "After how many milliseconds a record is forced to the disk; krammar.fsync says it for all logs here.",
    "log.flush.interval.ms",
    "log.flush.scheduler.interval.ms",
    effect=False,
)
_define(
    "follower.replication.throttled.replicas",
    LIST,
    "",
    throttled_replicas,
    "The partition:broker pairs whose copying is slowed down on the follower's side.",
    effect=False,
)
_define(
    "index.interval.bytes",
    INT,
    "4096",
    at_least(0),
    "How many bytes of a log lie between two entries of its offset index.",
    "log.index.interval.bytes",
)
_define(
    "internal.segment.bytes",
    INT,
    None,
    None,
    "A segment size below what segment.bytes allows, for tests.",
    internal=True,
)
_define(
    "leader.replication.throttled.replicas",
    LIST,
    "",
    throttled_replicas,
    "The partition:broker pairs whose copying is slowed down on the leader's side.",
    effect=False,
)
_define(
    "local.retention.bytes",
    LONG,
    "-2",
    at_least(-2),
    "The size up to which segments that tiered storage holds too stay on the local disk.",
    "log.local.retention.bytes",
    effect=False,
)
_define(
    "local.retention.ms",
    LONG,
    "-2",
    at_least(-2),
    "How long segments that tiered storage holds too stay on the local disk.",
    "log.local.retention.ms",
    effect=False,
)
_define(
    "max.compaction.lag.ms",
    LONG,
    str(INT64_MAX),
    at_least(1),
    "After how many milliseconds a record of a compacted log has to be compacted at the latest.",
    "log.cleaner.max.compaction.lag.ms",
)
_define(
    "max.decompressed.message.bytes",
    INT,
    "2147483639",
    between(1, 2147483639),
    "The largest size that a batch may have when it is decompressed.",
    "max.decompressed.message.bytes",
    effect=False,
)
_define(
    "max.message.bytes",
    INT,
    "1048588",
    at_least(0),
    "The largest batch of records, compressed as it came, that the topic takes.",
    "message.max.bytes",
)
_define(
    "message.timestamp.after.max.ms",
    LONG,
    str(HOUR),
    at_least(0),
    "How many milliseconds a record's timestamp may lie in the broker's future.",
    "log.message.timestamp.after.max.ms",
)
_define(
    "message.timestamp.before.max.ms",
    LONG,
    str(INT64_MAX),
    at_least(0),
    "How many milliseconds a record's timestamp may lie in the broker's past.",
    "log.message.timestamp.before.max.ms",
)
_define(
    "message.timestamp.type",
    STRING,
    "CreateTime",
    one_of("CreateTime", "LogAppendTime"),
    "Whose clock a record's timestamp is: the producer's or the broker's at the time of writing.",
    "log.message.timestamp.type",
)
_define(
    "min.cleanable.dirty.ratio",
    DOUBLE,
    "0.5",
    between(0, 1),
    "What part of a compacted log has to be uncompacted before it is compacted again.",
    "log.cleaner.min.cleanable.ratio",
)
_define(
    "min.compaction.lag.ms",
    LONG,
    "0",
    at_least(0),
    "For how many milliseconds a record is safe from compaction.",
    "log.cleaner.min.compaction.lag.ms",
)
_define(
    "min.insync.replicas",
    INT,
    "1",
    at_least(1),
    "How many replicas have to hold a record before a producer with acks=all has its answer; here there "
    "is one.",
    "min.insync.replicas",
    effect=False,
)
_define(
    "preallocate",
    BOOLEAN,
    "false",
    None,
    "Whether a new segment's file takes its full size on the disk at once.",
    "log.preallocate",
    effect=False,
)
_define(
    "remote.copy.lag.bytes",
    LONG,
    "-1",
    at_least(-1),
    "How many bytes a log may be ahead of its copy in tiered storage.",
    "log.remote.copy.lag.bytes",
    effect=False,
)
_define(
    "remote.copy.lag.ms",
    LONG,
    "0",
    at_least(-1),
    "How long a segment may wait for its copy in tiered storage.",
    "log.remote.copy.lag.ms",
    effect=False,
)
_define(
    "remote.log.copy.disable",
    BOOLEAN,
    "false",
    None,
    "Whether the topic's tiered storage takes no new segments.",
    effect=False,
)
_define(
    "remote.log.delete.on.disable",
    BOOLEAN,
    "false",
    None,
    "Whether a topic's tiered data goes when its tiered storage is turned off.",
    effect=False,
)
_define(
    "remote.storage.enable",
    BOOLEAN,
    "false",
    None,
    "Whether the topic has tiered storage, which this broker does not offer.",
    effect=False,
)
_define(
    "retention.bytes",
    LONG,
    "-1",
    None,
    "The size above which a partition's oldest segments are deleted, -1 for no limit.",
    "log.retention.bytes",
)
_define(
    "retention.ms",
    LONG,
    str(168 * HOUR),
    at_least(-1),
    "The age in milliseconds above which a partition's segments are deleted, -1 for no limit.",
    "log.retention.ms",
    ("log.retention.minutes", MINUTE),
    ("log.retention.hours", HOUR),
)
_define(
    "segment.bytes",
    INT,
    str(1 << 30),
    at_least(1 << 20),
    "The size of a segment's file above which the next one is begun.",
    "log.segment.bytes",
)
_define(
    "segment.index.bytes",
    INT,
    str(10 << 20),
    at_least(4),
    "The largest size of a segment's index file.",
    "log.index.size.max.bytes",
)
_define(
    "segment.jitter.ms",
    LONG,
    "0",
    at_least(0),
    "By how many milliseconds at most the age at which a segment ends is shortened by chance.",
    "log.roll.jitter.ms",
    ("log.roll.jitter.hours", HOUR),
    effect=False,
)
_define(
    "segment.ms",
    LONG,
    str(168 * HOUR),
    at_least(1),
    "The age in milliseconds above which a segment that is not full is ended.",
    "log.roll.ms",
    ("log.roll.hours", HOUR),
)
_define(
    "unclean.leader.election.enable",
    BOOLEAN,
    "false",
    None,
    "Whether a replica that lags behind may become leader when no other is left.",
    "unclean.leader.election.enable",
    effect=False,
)
