"""The table of the data source's options: those of Spark's Kafka connector, and krammar's own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from enum import Enum

from krammar.spark.errors import OptionError
from krammar.spark.offsets import (
    INT64_MAX,
    Latest,
    parse_assign,
    parse_offsets,
    parse_timestamp,
    parse_timestamps,
)
from krammar.util.settings import Setting, SettingTable, boolean, choice, integer, split_names, text

CLIENT_PREFIX = "kafka."


class Use(Enum):
    """The operations that accept options."""

    READ = "read"
    READ_STREAM = "readStream"
    WRITE = "write"
    WRITE_STREAM = "writeStream"


_READS = frozenset({Use.READ, Use.READ_STREAM})
_BATCH = frozenset({Use.READ})
_STREAM = frozenset({Use.READ_STREAM})
_WRITES = frozenset({Use.WRITE, Use.WRITE_STREAM})
_BATCH_WRITE = frozenset({Use.WRITE})
_WRITE_STREAM = frozenset({Use.WRITE_STREAM})
_ALL = _READS | _WRITES

SOURCES = ("kafka", "logs", "frames", "journal")
_KAFKA = frozenset({"kafka"})
_RECORDS = frozenset({"kafka", "logs"})
_FILES = frozenset({"logs", "frames"})
# Journals are read with source=journal, and written with delivery=journal.
_JOURNAL = frozenset({"journal"})
FRAMED = frozenset({"kafka", "journal"})
_MESSAGES = _RECORDS | _JOURNAL
DELIVERIES = ("at-least-once", "journal")
_ANY = frozenset(SOURCES)


def _topics(value: str) -> tuple[str, ...]:
    topics = tuple(split_names(value))
    if not topics:
        raise ValueError("no topic is named")
    return topics


def _names(value: str) -> tuple[str, ...]:
    names = tuple(split_names(value))
    if not names:
        raise ValueError("names nothing")
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"names {name!r} twice")
    return names


def _one(kind: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if not value.strip():
            raise ValueError(f"no {kind} is named")
        return value.strip()

    return parse


def _pattern(value: str) -> re.Pattern[str]:
    if not value.strip():
        raise ValueError("the pattern is empty")
    try:
        return re.compile(value.strip())
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from None


def _duration(value: str) -> int:
    """Parse ``15m``, ``200 ms`` or ``1 hour`` to milliseconds. As in Spark, a bare number is milliseconds."""
    found = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", value.lower())
    if found is None or found[2] not in _UNITS:
        raise ValueError("needs a time such as 15m or 200ms")
    return int(found[1]) * _UNITS[found[2]]


_UNITS = {
    **dict.fromkeys(("", "ms", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "second", "seconds"), 1000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
}

_long = integer(1, INT64_MAX)

_NO_GROUP = "Spark stores the offsets; commitGroup commits them to a consumer group too"
_RETRIES = "requests are retried until kafka.default.api.timeout.ms have passed"
_FETCHES = "kafka.max.partition.fetch.bytes limits what a task holds in memory"
_BYTES = "key and value are binary; use the option decode or from_krammar to decode them"
_WRITTEN = "columns key and value are string or binary; use to_krammar to encode structs"

# A setting applies to uses and to values of ``source``. Names, uses and defaults in the first part match Spark's
# Kafka connector.
_TABLE = (
    Setting("assign", parse_assign, applies_to=_READS | _RECORDS),
    Setting("subscribe", _topics, applies_to=_READS | _MESSAGES),
    Setting("subscribePattern", _pattern, applies_to=_READS | _MESSAGES),
    Setting("startingOffsets", parse_offsets, applies_to=_READS | _RECORDS),
    Setting("startingTimestamp", parse_timestamp, applies_to=_READS | _RECORDS),
    Setting("startingOffsetsByTimestamp", parse_timestamps, applies_to=_READS | _RECORDS),
    Setting(
        "startingOffsetsByTimestampStrategy",
        choice("error", "latest"),
        "error",
        applies_to=_READS | _RECORDS,
    ),
    Setting("endingOffsets", parse_offsets, Latest(), applies_to=_BATCH | _RECORDS),
    Setting("endingTimestamp", parse_timestamp, applies_to=_BATCH | _RECORDS),
    Setting("endingOffsetsByTimestamp", parse_timestamps, applies_to=_BATCH | _RECORDS),
    Setting("failOnDataLoss", boolean, True, applies_to=_ALL | _MESSAGES),
    Setting("minPartitions", integer(1), applies_to=_READS | _MESSAGES),
    Setting("maxRecordsPerPartition", _long, applies_to=_READS | _MESSAGES),
    Setting("minRecordsPerPartition", integer(1), 1000, applies_to=_READS | _KAFKA),
    Setting("includeHeaders", boolean, False, applies_to=_ALL | _MESSAGES),
    Setting("maxOffsetsPerTrigger", _long, applies_to=_STREAM | FRAMED),
    Setting("minOffsetsPerTrigger", _long, applies_to=_STREAM | FRAMED),
    Setting("maxTriggerDelay", _duration, 15 * 60_000, applies_to=_STREAM | FRAMED),
    Setting("kafkaConsumer.pollTimeoutMs", _long, applies_to=_READS | _KAFKA),
    Setting("fetchOffset.numRetries", text, applies_to=_READS | _KAFKA, ignored=_RETRIES),
    Setting("fetchOffset.retryIntervalMs", text, applies_to=_READS | _KAFKA, ignored=_RETRIES),
    Setting("groupIdPrefix", text, applies_to=_READS | _KAFKA, ignored=_NO_GROUP),
    Setting("kafka.group.id", text, applies_to=_READS | _KAFKA, ignored=_NO_GROUP),
    Setting("kafka.max.poll.records", text, applies_to=_READS | _KAFKA, ignored=_FETCHES),
    Setting("kafka.enable.auto.commit", text, applies_to=_READS | _KAFKA, refused=_NO_GROUP),
    Setting(
        "kafka.auto.offset.reset",
        text,
        applies_to=_READS | _KAFKA,
        refused="use startingOffsets to choose where reading begins",
    ),
    Setting("kafka.key.deserializer", text, applies_to=_READS | _KAFKA, refused=_BYTES),
    Setting("kafka.value.deserializer", text, applies_to=_READS | _KAFKA, refused=_BYTES),
    Setting("topic", _one("topic"), applies_to=_WRITES | _KAFKA),
    Setting("kafka.key.serializer", text, applies_to=_WRITES | _KAFKA, refused=_WRITTEN),
    Setting("kafka.value.serializer", text, applies_to=_WRITES | _KAFKA, refused=_WRITTEN),
    Setting(
        "kafka.transactional.id",
        text,
        applies_to=_WRITES | _KAFKA,
        refused="each task has its own producer, and producers cannot share a transaction;"
        " use delivery=journal to write each row once",
    ),
    # Spark passes these options of its own to every sink.
    Setting("checkpointLocation", text, applies_to=_WRITE_STREAM | _KAFKA),
    Setting("queryName", text, applies_to=_WRITE_STREAM | _KAFKA),
    # krammar's own.
    Setting("startingGroup", _one("group"), applies_to=_READS | _KAFKA),
    Setting("commitGroup", _one("group"), applies_to=_STREAM | _KAFKA),
    Setting("source", choice(*SOURCES), "kafka", applies_to=_ALL | _ANY),
    Setting("path", text, applies_to=_ALL | _FILES | FRAMED),
    Setting("paths", text, applies_to=_READS | _FILES),
    Setting("columns", _names, applies_to=_READS | _RECORDS),
    Setting("decode", text, applies_to=_READS | _MESSAGES),
    Setting("fields", _names, applies_to=_READS | _RECORDS),
    Setting("decodeVersion", integer(0), applies_to=_READS | _RECORDS),
    Setting(
        "mode",
        choice("PERMISSIVE", "DROPMALFORMED", "FAILFAST"),
        "PERMISSIVE",
        applies_to=_READS | _MESSAGES,
    ),
    Setting("columnNameOfCorruptRecord", text, "_corrupt_record", applies_to=_READS | _RECORDS),
    # Journals.
    Setting("delivery", choice(*DELIVERIES), DELIVERIES[0], applies_to=_WRITES | _KAFKA),
    Setting("intents", text, applies_to=_WRITES | _KAFKA),
    Setting("writeId", text, applies_to=_BATCH_WRITE | _KAFKA),
    Setting("repeatedBatch", choice("compare", "skip"), "compare", applies_to=_WRITES | _KAFKA),
    Setting("message", text, applies_to=_WRITES | _KAFKA),
    Setting("journalsPerTopic", integer(1), 1, applies_to=_WRITES | _KAFKA),
    Setting("contentType", text, "application/x-krammar-fixed", applies_to=_ALL | FRAMED),
    Setting("splitBytes", integer(1), 64 << 20, applies_to=_READS | _JOURNAL),
    Setting("pruneHorizon", _duration, 7 * 86_400_000, applies_to=_STREAM | _JOURNAL),
    # A client setting that sources without a client also use.
    Setting(
        "kafka.isolation.level",
        choice("read_uncommitted", "read_committed"),
        "read_uncommitted",
        applies_to=_READS | _MESSAGES,
    ),
)


def _client_options() -> Iterator[str]:
    """The client's settings as options, for a name that lacks the prefix."""
    from krammar.client.settings import client_settings  # imported only for errors

    for setting in client_settings().values():
        if not setting.refused and not setting.ignored:
            yield from (CLIENT_PREFIX + name for name in (setting.name, *setting.aliases))


# Case is ignored, as in Spark.
TABLE = SettingTable(
    _TABLE, OptionError, fold=str.lower, unknown="is unknown", others=_client_options
)
