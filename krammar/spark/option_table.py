"""The table of the data source's options: those of Spark's Kafka connector, and krammar's own."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from krammar.spark.offsets import (
    INT64_MAX,
    Latest,
    parse_assign,
    parse_offsets,
    parse_timestamp,
    parse_timestamps,
)
from krammar.util.settings import boolean, choice, integer, split_list, text

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


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    Attributes:
        uses: the operations that accept it
        sources: the values of ``source`` that accept it
        parse: converts the text to the value; raises ValueError
        default: the value if the option is not given
        refused: why the option is not supported; empty if it is supported
        ignored: why the option has no effect, which a warning says; empty if it has one
    """

    name: str
    uses: frozenset[Use]
    sources: frozenset[str]
    parse: Callable[[str], Any]
    default: Any = None
    refused: str = ""
    ignored: str = ""


def _topics(value: str) -> tuple[str, ...]:
    topics = tuple(filter(None, split_list(value)))
    if not topics:
        raise ValueError("no topic is named")
    return topics


def _names(value: str) -> tuple[str, ...]:
    names = tuple(filter(None, split_list(value)))
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

# Names, uses and defaults in the first part match Spark's Kafka connector.
_TABLE = (
    Option("assign", _READS, _RECORDS, parse_assign),
    Option("subscribe", _READS, _MESSAGES, _topics),
    Option("subscribePattern", _READS, _MESSAGES, _pattern),
    Option("startingOffsets", _READS, _RECORDS, parse_offsets),
    Option("startingTimestamp", _READS, _RECORDS, parse_timestamp),
    Option("startingOffsetsByTimestamp", _READS, _RECORDS, parse_timestamps),
    Option(
        "startingOffsetsByTimestampStrategy",
        _READS,
        _RECORDS,
        choice("error", "latest"),
        "error",
    ),
    Option("endingOffsets", _BATCH, _RECORDS, parse_offsets, Latest()),
    Option("endingTimestamp", _BATCH, _RECORDS, parse_timestamp),
    Option("endingOffsetsByTimestamp", _BATCH, _RECORDS, parse_timestamps),
    Option("failOnDataLoss", _ALL, _RECORDS, boolean, True),
    Option("minPartitions", _READS, _MESSAGES, integer(1)),
    Option("maxRecordsPerPartition", _READS, _MESSAGES, _long),
    Option("minRecordsPerPartition", _READS, _KAFKA, integer(1), 1000),
    Option("includeHeaders", _ALL, _MESSAGES, boolean, False),
    Option("maxOffsetsPerTrigger", _STREAM, _KAFKA, _long),
    Option("minOffsetsPerTrigger", _STREAM, _KAFKA, _long),
    Option("maxTriggerDelay", _STREAM, _KAFKA, _duration, 15 * 60_000),
    Option("kafkaConsumer.pollTimeoutMs", _READS, _KAFKA, _long),
    Option("fetchOffset.numRetries", _READS, _KAFKA, text, ignored=_RETRIES),
    Option("fetchOffset.retryIntervalMs", _READS, _KAFKA, text, ignored=_RETRIES),
    Option("groupIdPrefix", _READS, _KAFKA, text, ignored=_NO_GROUP),
    Option("kafka.group.id", _READS, _KAFKA, text, ignored=_NO_GROUP),
    Option("kafka.max.poll.records", _READS, _KAFKA, text, ignored=_FETCHES),
    Option("kafka.enable.auto.commit", _READS, _KAFKA, text, refused=_NO_GROUP),
    Option(
        "kafka.auto.offset.reset",
        _READS,
        _KAFKA,
        text,
        refused="use startingOffsets to choose where reading begins",
    ),
    Option("kafka.key.deserializer", _READS, _KAFKA, text, refused=_BYTES),
    Option("kafka.value.deserializer", _READS, _KAFKA, text, refused=_BYTES),
    Option("topic", _WRITES, _KAFKA, _one("topic")),
    Option("kafka.key.serializer", _WRITES, _KAFKA, text, refused=_WRITTEN),
    Option("kafka.value.serializer", _WRITES, _KAFKA, text, refused=_WRITTEN),
    Option(
        "kafka.transactional.id",
        _WRITES,
        _KAFKA,
        text,
        refused="each task has its own producer, and producers cannot share a transaction;"
        " use delivery=journal to write each row once",
    ),
    # Spark passes these options of its own to every sink.
    Option("checkpointLocation", _WRITE_STREAM, _KAFKA, text),
    Option("queryName", _WRITE_STREAM, _KAFKA, text),
    # krammar's own.
    Option("startingGroup", _READS, _KAFKA, _one("group")),
    Option("commitGroup", _STREAM, _KAFKA, _one("group")),
    Option("source", _ALL, _ANY, choice(*SOURCES), "kafka"),
    Option("path", _ALL, _FILES | FRAMED, text),
    Option("paths", _READS, _FILES, text),
    Option("columns", _READS, _RECORDS, _names),
    Option("decode", _READS, _MESSAGES, text),
    Option("fields", _READS, _RECORDS, _names),
    Option("decodeVersion", _READS, _RECORDS, integer(0)),
    Option(
        "mode",
        _READS,
        _MESSAGES,
        choice("PERMISSIVE", "DROPMALFORMED", "FAILFAST"),
        "PERMISSIVE",
    ),
    Option("columnNameOfCorruptRecord", _READS, _RECORDS, text, "_corrupt_record"),
    # Journals.
    Option("delivery", _WRITES, _KAFKA, choice(*DELIVERIES), DELIVERIES[0]),
    Option("intents", _WRITES, _KAFKA, text),
    Option("writeId", _BATCH_WRITE, _KAFKA, text),
    Option("repeatedBatch", _WRITES, _KAFKA, choice("compare", "skip"), "compare"),
    Option("message", _WRITES, _KAFKA, text),
    Option("journalsPerTopic", _WRITES, _KAFKA, integer(1), 1),
    Option("contentType", _ALL, FRAMED, text, "application/x-krammar-fixed"),
    Option("splitBytes", _READS, _JOURNAL, integer(1), 64 << 20),
    # A client setting that sources without a client also use.
    Option(
        "kafka.isolation.level",
        _READS,
        _MESSAGES,
        choice("read_uncommitted", "read_committed"),
        "read_uncommitted",
    ),
)
TABLE: Mapping[str, Option] = {option.name.lower(): option for option in _TABLE}
