"""Computes the lag of consumer groups from the records of ``__consumer_offsets``."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class GroupLag:
    """A group that has committed offsets of a topic.

    ``partitions``     the number of unread records in each partition
    ``committed``      the number of records that were read
    ``waiting_since``  the time of the oldest unread record, in milliseconds since 1970; None if all were read
    """

    group: str
    partitions: tuple[int, ...]
    committed: int
    waiting_since: int | None

    @property
    def lag(self) -> int:
        return sum(self.partitions)


def committed_offsets(spark: SparkSession, bootstrap: str) -> DataFrame:
    """Return the committed offsets, with columns ``group``, ``topic``, ``partition`` and ``offset``.

    The topic has a record for each commit. The last record of a key counts. If it is a tombstone, without a value, the
    offset was deleted.
    """
    commits = (
        spark.read.format("krammar")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", "__consumer_offsets")
        .option("decode", "OffsetCommitValue")
        .load()
    )
    return spark.sql(
        """
        select key.group, key.topic, key.partition, last.offset
        from (select key, max_by(struct(value), offset).value as last from {commits} group by key)
        where last is not null
        """,
        commits=commits,
    )


def lag(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    """Return the lag of each group and partition.

    The columns are ``group``, ``partition``, ``committed``, ``end``, ``lag`` in records, and ``waiting_since`` in
    milliseconds since 1970; see GroupLag. A partition without a committed offset counts from offset 0. The
    topic must not have gaps in its offsets, which compaction and transactions leave.
    """
    records = (
        spark.read.format("krammar")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .load()
        .select("partition", "offset", "timestamp")
        .cache()  # used twice
    )
    return spark.sql(
        """
        with ends as (
          select partition, max(offset) + 1 as end from {records} group by partition
        ), committed as (
          select * from {committed} where topic = {topic}
        ), positions as (
          select g.group, e.partition, coalesce(c.offset, 0) as committed, e.end
          from (select distinct group from committed) g
          cross join ends e
          left join committed c on c.group = g.group and c.partition = e.partition
        )
        select p.group, p.partition, p.committed, p.end, p.end - p.committed as lag,
               unix_millis(r.timestamp) as waiting_since
        from positions p
        left join {records} r on r.partition = p.partition and r.offset = p.committed
        order by p.group, p.partition
        """,
        records=records,
        committed=committed_offsets(spark, bootstrap),
        topic=topic,
    )


def by_group(lags: DataFrame) -> list[GroupLag]:
    """Return the groups of ``lag``, the largest lag first."""
    rows = defaultdict(list)
    for row in lags.collect():
        rows[row.group].append(row)
    groups = [
        GroupLag(
            group,
            tuple(row.lag for row in each),
            sum(row.committed for row in each),
            min((row.waiting_since for row in each if row.waiting_since is not None), default=None),
        )
        for group, each in rows.items()
    ]
    return sorted(groups, key=lambda group: -group.lag)
