"""Reading in batches: ``format("krammar")`` and Spark's own ``format("kafka")`` give the same for all options."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from pyspark.sql import SparkSession

from krammar.spark.option_table import TABLE
from tests.interop import content
from tests.interop.spark.alike import (
    JOURNALS,
    OURS,
    THEIRS,
    Case,
    Expected,
    compare,
    our_outcome,
    outcome,
)
from tests.interop.spark.cluster import Cluster

SAME_ROWS, ERRORS = Expected.SAME_ROWS, Expected.ERRORS
WE_REFUSE, WE_READ_MORE = Expected.WE_REFUSE, Expected.WE_READ_MORE

# Stands for the time of the first record of all, plus so many milliseconds.
_TIME = "@{}@"
PLAIN = {"subscribe": "plain"}
CUT = {"subscribe": "cut"}  # from offset 45 on; 100 is its end

# The connector waits for records that are not there yet.
SOON = {"kafkaConsumer.pollTimeoutMs": "1000"}


def by(topic: str, *values: object) -> str:
    """JSON with a value for each partition."""
    return json.dumps({topic: {str(n): value for n, value in enumerate(values)}})


def at(milliseconds: int) -> str:
    return _TIME.format(milliseconds)


def per(topic: str, *values: int) -> str:
    """JSON with a time for each partition."""
    return by(topic, *map(at, values)).replace('"@', "@").replace('@"', "@")


_OWN = "krammar's own, which has no counterpart"

# At least one case for each option that a batch can have; see the test below.
CASES: dict[str, list[Case]] = {
    "assign": [
        Case({"assign": '{"plain": [0, 2]}'}),
        Case({"assign": '{"plain": [1], "codecs": [3, 0]}'}),
        Case({"assign": '{"plain": 0}'}, ERRORS),
        Case({"assign": "plain"}, ERRORS),
        Case({"assign": '{"nothing": [0]}'}, ERRORS),
        Case({"assign": '{"plain": [0]}', "subscribe": "plain"}, ERRORS),
        Case({}, ERRORS, says="subscribe"),
        Case(
            {"assign": '{"plain": [0, 7]}'},
            WE_REFUSE,
            "what is named and not there is not left out in silence",
            "partition plain-7 does not exist",
        ),
    ],
    "subscribe": [
        Case(PLAIN),
        Case({"SUBSCRIBE": "plain , codecs,,plain"}),
        Case({"subscribe": "recompressed,append-time,grown,rolled,compacted,open,transactional"}),
        Case({"subscribe": "empty.topic-with_all.chars"}),
        Case({"subscribe": " , "}, ERRORS),
        Case({"subscribe": "nothing"}, ERRORS, says="topic 'nothing' does not exist"),
        Case(
            {"subscribe": "__consumer_offsets"},
            WE_READ_MORE,
            "internal topics can be read by their name, to decode them",
        ),
    ],
    "subscribepattern": [
        Case({"subscribePattern": "plain"}),
        Case({"subscribePattern": "lai|ode"}),
        Case({"subscribePattern": "^p.*n$"}),
        Case({"subscribePattern": " plain "}),
        Case({"subscribePattern": "nothing.+"}),
        Case({"subscribePattern": "offsets"}),
        Case({"subscribePattern": "("}, ERRORS),
        Case({"subscribePattern": " "}, ERRORS),
    ],
    "startingoffsets": [
        Case({**PLAIN, "startingOffsets": "EARLIEST"}),
        Case({**PLAIN, "startingOffsets": "latest"}, ERRORS),
        Case({**PLAIN, "startingOffsets": by("plain", 5, -2, 120)}),
        Case({**PLAIN, "startingOffsets": by("plain", 5, -1, 0)}, ERRORS),
        Case({**PLAIN, "startingOffsets": by("plain", 5, 5)}, ERRORS),
        Case({**PLAIN, "startingOffsets": by("plain", 5, 5, 5, 5)}, ERRORS),
        Case({**PLAIN, "startingOffsets": by("plain", 5, 5, 1000)}, ERRORS),
        Case({**PLAIN, "startingOffsets": '{"plain": 5}'}, ERRORS),
        Case({**PLAIN, "startingOffsets": "5"}, ERRORS),
        Case({**PLAIN, "startingOffsets": by("plain", "5", "6", "7")}, ERRORS),
        Case({**CUT, "startingOffsets": by("cut", 44)}, ERRORS),
        Case({**CUT, "startingOffsets": by("cut", 45)}),
    ],
    "endingoffsets": [
        Case({**PLAIN, "endingOffsets": "Latest"}),
        Case({**PLAIN, "endingOffsets": "earliest"}, ERRORS),
        Case({**PLAIN, "endingOffsets": by("plain", 5, -1, 0)}),
        Case({**PLAIN, "endingOffsets": by("plain", 5, -2, 0)}, ERRORS),
        Case({**PLAIN, "endingOffsets": by("plain", 5)}, ERRORS),
        Case({**CUT, **SOON, "endingOffsets": by("cut", 101)}, ERRORS),
        Case(
            {
                **PLAIN,
                "startingOffsets": by("plain", 9, 9, 9),
                "endingOffsets": by("plain", 9, 8, 10),
            },
            ERRORS,
        ),
        Case(
            {
                **PLAIN,
                "startingOffsets": by("plain", 3, 4, 5),
                "endingOffsets": by("plain", 7, 8, 9),
            }
        ),
    ],
    "startingtimestamp": [
        Case({**PLAIN, "startingTimestamp": at(0)}),
        Case({**PLAIN, "startingTimestamp": at(150_000)}),
        Case({**PLAIN, "startingTimestamp": at(150_001), "startingOffsets": "latest"}),
        Case({**PLAIN, "startingTimestamp": "0"}),
        Case({**PLAIN, "startingTimestamp": at(10**9)}, ERRORS),
        Case({**PLAIN, "startingTimestamp": "soon"}, ERRORS),
    ],
    "startingoffsetsbytimestamp": [
        Case({**PLAIN, "startingOffsetsByTimestamp": per("plain", 0, 100_000, 200_000)}),
        Case(
            {
                **PLAIN,
                "startingOffsetsByTimestamp": per("plain", 0, 0, 0),
                "startingOffsets": "latest",
            }
        ),
        Case({**PLAIN, "startingOffsetsByTimestamp": per("plain", 0)}, ERRORS),
        Case({**PLAIN, "startingOffsetsByTimestamp": per("plain", 0, 0, 10**9)}, ERRORS),
        Case({**PLAIN, "startingOffsetsByTimestamp": "earliest"}, ERRORS),
    ],
    "startingoffsetsbytimestampstrategy": [
        Case(
            {
                **PLAIN,
                "startingTimestamp": at(10**9),
                "startingOffsetsByTimestampStrategy": "latest",
            }
        ),
        Case(
            {
                **PLAIN,
                "startingOffsetsByTimestamp": per("plain", 0, 10**9, 0),
                "startingOffsetsByTimestampStrategy": "LATEST",
            }
        ),
        Case(
            {
                **PLAIN,
                "startingTimestamp": at(10**9),
                "startingOffsetsByTimestampStrategy": "error",
            },
            ERRORS,
        ),
        Case({**PLAIN, "startingOffsetsByTimestampStrategy": "earliest"}, ERRORS),
    ],
    "endingtimestamp": [
        Case({**PLAIN, "endingTimestamp": at(150_000)}),
        Case({**PLAIN, "endingTimestamp": at(10**9)}),
        Case({**PLAIN, "endingTimestamp": at(100_000), "startingTimestamp": at(50_000)}),
        Case({**PLAIN, "endingTimestamp": at(50_000), "startingTimestamp": at(100_000)}, ERRORS),
        Case({**PLAIN, "endingTimestamp": "x"}, ERRORS),
    ],
    "endingoffsetsbytimestamp": [
        Case({**PLAIN, "endingOffsetsByTimestamp": per("plain", 0, 100_000, 10**9)}),
        Case({**PLAIN, "endingOffsetsByTimestamp": per("plain", 0)}, ERRORS),
        Case(
            {
                **PLAIN,
                "endingOffsetsByTimestamp": per("plain", 5, 5, 5),
                "startingOffsetsByTimestamp": per("plain", 5, 5, 6),
            },
            ERRORS,
        ),
    ],
    "failondataloss": [
        Case({**CUT, "failOnDataLoss": "FALSE", "startingOffsets": by("cut", 3)}),
        Case({**CUT, "failOnDataLoss": "true", "startingOffsets": by("cut", 3)}, ERRORS),
        Case({**CUT, **SOON, "failOnDataLoss": "false", "endingOffsets": by("cut", 200)}),
        Case({**CUT, "failOnDataLoss": "false", "startingOffsets": by("cut", 200)}, ERRORS),
        Case(
            {
                **CUT,
                "failOnDataLoss": "false",
                "startingOffsets": by("cut", 3),
                "endingOffsets": by("cut", 9),
            }
        ),
        Case({**CUT, "failOnDataLoss": "no"}, ERRORS),
    ],
    "minpartitions": [
        Case({**PLAIN, "minPartitions": "2"}),
        Case({**PLAIN, "minPartitions": "8"}),
        Case({"subscribe": "plain,rolled", "minPartitions": "11"}),
        Case({"subscribe": "plain,rolled,grown,codecs", "minPartitions": "25"}),
        Case({"subscribe": "grown", "minPartitions": "4"}),
        Case({"subscribe": "append-time", "minPartitions": "100"}),
        Case({**PLAIN, "minPartitions": "0"}, ERRORS),
        Case({**PLAIN, "minPartitions": "many"}, ERRORS),
    ],
    "maxrecordsperpartition": [
        *(
            Case(
                {"subscribe": topics, "maxRecordsPerPartition": most},
                SAME_ROWS,
                "alone it has no effect on the connector's batches, against what its guide says",
            )
            for topics, most in (("plain,rolled", "500"), ("compacted", "200"))
        ),
        Case({"subscribe": "plain,rolled", "maxRecordsPerPartition": "500", "minPartitions": "21"}),
        Case({**PLAIN, "maxRecordsPerPartition": "0"}, ERRORS),
    ],
    "includeheaders": [
        Case({**PLAIN, "includeHeaders": "true"}),
        Case({**PLAIN, "INCLUDEHEADERS": "TRUE"}),
        Case({**PLAIN, "includeHeaders": "false"}),
    ],
    "kafka.isolation.level": [
        Case({"subscribe": "transactional,open", "kafka.isolation.level": "read_uncommitted"}),
        Case({"subscribe": "transactional,open", "kafka.isolation.level": "read_committed"}),
        Case(
            {
                "subscribe": "transactional",
                "kafka.isolation.level": "read_committed",
                "startingOffsets": by("transactional", 5, 6),
                "endingOffsets": by("transactional", 20, 21),
            }
        ),
        Case(
            {
                "subscribe": "transactional",
                "kafka.isolation.level": "read_committed",
                "minPartitions": "20",
            }
        ),
        Case({**PLAIN, "kafka.isolation.level": "snapshot"}, ERRORS),
    ],
    "minrecordsperpartition": [
        Case(
            {"subscribe": "plain,codecs,rolled", "minRecordsPerPartition": "1000000"},
            SAME_ROWS,
            _OWN,
        ),
        Case({**PLAIN, "minRecordsPerPartition": "0"}, WE_REFUSE, _OWN, "at least 1"),
        Case(
            {**PLAIN, "minRecordsPerPartition": "1", "minPartitions": "2"},
            WE_REFUSE,
            _OWN,
            "has no meaning with minPartitions",
        ),
    ],
    # Accepted with a warning, because they have no effect on what krammar reads.
    **{
        name.lower(): [Case({**PLAIN, name: value})]
        for name, value in (
            ("fetchOffset.numRetries", "2"),
            ("fetchOffset.retryIntervalMs", "500"),
            ("groupIdPrefix", "mine"),
            ("kafka.group.id", "mine"),
            ("kafka.max.poll.records", "7"),
        )
    },
    "kafkaconsumer.polltimeoutms": [Case({**PLAIN, "kafkaConsumer.pollTimeoutMs": "20000"})],
    "kafka.enable.auto.commit": [Case({**PLAIN, "kafka.enable.auto.commit": "false"}, ERRORS)],
    "kafka.auto.offset.reset": [Case({**PLAIN, "kafka.auto.offset.reset": "latest"}, ERRORS)],
    "kafka.key.deserializer": [Case({**PLAIN, "kafka.key.deserializer": "x.Y"}, ERRORS)],
    "kafka.value.deserializer": [Case({**PLAIN, "kafka.value.deserializer": "x.Y"}, ERRORS)],
    **{
        name.lower(): [
            Case(
                {**PLAIN, name: value},
                WE_REFUSE,
                "an option without effect is an error",
                f"{name!r}: {text}",
            )
        ]
        for name, value, text in (
            ("commitGroup", "mine", "has no meaning in read"),
            ("maxOffsetsPerTrigger", "10", "has no meaning in read"),
            ("minOffsetsPerTrigger", "10", "has no meaning in read"),
            ("maxTriggerDelay", "1m", "has no meaning in read"),
            ("topic", "plain", "has no meaning in read"),
            ("checkpointLocation", "/x", "has no meaning in read"),
            ("queryName", "x", "has no meaning in read"),
            ("kafka.key.serializer", "x.Y", "is not supported"),
            ("kafka.value.serializer", "x.Y", "is not supported"),
            ("kafka.transactional.id", "mine", "is not supported"),
        )
    },
    **{
        name.lower(): [Case({**PLAIN, name: "1"}, WE_REFUSE, _OWN, f"{name!r}")]
        for name in JOURNALS
        if name.lower() in TABLE
    },
    # The connector ignores unknown options.
    "source": [Case({**PLAIN, "source": "kafka"})],
    "path": [Case({**PLAIN, "path": "/x"}, WE_REFUSE, _OWN, "has no meaning with source=kafka")],
    "paths": [Case({**PLAIN, "paths": "[]"}, WE_REFUSE, _OWN)],
    "startinggroup": [
        Case(
            {**PLAIN, "startingGroup": "mine", "startingOffsets": "earliest"},
            WE_REFUSE,
            _OWN,
            "cannot be combined with startingOffsets",
        )
    ],
    "columns": [Case({**PLAIN, "columns": "value,nothing"}, WE_REFUSE, _OWN, "'columns'")],
    "fields": [Case({**PLAIN, "fields": "group"}, WE_REFUSE, _OWN, "'fields'")],
    "decode": [Case({**PLAIN, "decode": "NoSuchClass"}, WE_REFUSE, _OWN)],
    "decodeversion": [Case({**PLAIN, "decodeVersion": "1"}, WE_REFUSE, _OWN)],
    "mode": [Case({**PLAIN, "mode": "x"}, WE_REFUSE, _OWN)],
    "columnnameofcorruptrecord": [
        Case({**PLAIN, "columnNameOfCorruptRecord": "c"}, WE_REFUSE, _OWN, "without decode")
    ],
}


@pytest.mark.parametrize("name", TABLE)
def test_options(
    spark: SparkSession, cluster: Cluster, written: content.Written, name: str
) -> None:
    """Each option needs a case that shows how the connector treats it."""
    differences = []
    seen = False
    for case in CASES[name]:
        options = {
            "kafka.bootstrap.servers": cluster.bootstrap,
            **{name: resolved(value, written.began) for name, value in case.options.items()},
        }
        theirs = outcome(spark, THEIRS, options)
        # The first of those that give rows goes all the way.
        if case.expected in (ERRORS, WE_REFUSE) or seen:
            ours = our_outcome(options)
        else:
            ours = outcome(spark, OURS, options)
            seen = True
        differences.append(compare(case, ours, theirs))
    assert not (found := list(filter(None, differences))), "\n".join(found)


def resolved(value: str, began: int) -> str:
    """With times for what stands for them."""
    first, *rest = value.split("@")
    pairs = zip(rest[::2], rest[1::2], strict=True)
    return first + "".join(f"{began + int(number)}{text}" for number, text in pairs)
