"""Evaluates filters that Spark pushes down, by topic, partition, offset and timestamp.

Spark still applies all filters. Here they only exclude records from being read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from krammar.spark import undocumented
from krammar.spark.offsets import INT64_MAX

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
INT64_MIN = -(2**63)


@dataclass(slots=True)
class Range:
    """The integers from ``low`` to ``high``, inclusive; false if empty."""

    low: int = INT64_MIN
    high: int = INT64_MAX

    def narrow(self, low: int, high: int) -> None:
        """Intersect with another range."""
        self.low = max(self.low, low)
        self.high = min(self.high, high)

    def __contains__(self, number: int) -> bool:
        return self.low <= number <= self.high

    def __bool__(self) -> bool:
        return self.low <= self.high


@dataclass(slots=True)
class Wanted:
    """The records that may pass all filters.

    ``timestamp`` is in milliseconds since 1970. None for ``topics`` or ``partitions`` means all.
    """

    topics: set[str] | None = None
    topic_prefixes: list[str] = field(default_factory=list)
    partitions: set[int] | None = None
    partition: Range = field(default_factory=Range)
    offset: Range = field(default_factory=Range)
    timestamp: Range = field(default_factory=Range)

    def has(self, topic: str, partition: int) -> bool:
        """Return whether a partition can have records that pass the filters."""
        return (
            (self.topics is None or topic in self.topics)
            and all(topic.startswith(prefix) for prefix in self.topic_prefixes)
            and (self.partitions is None or partition in self.partitions)
            and partition in self.partition
            and bool(self.offset)
            and bool(self.timestamp)
        )

    def add(self, condition: Filter) -> None:
        """Apply a filter; filters on other columns are ignored."""
        path: tuple[str, ...] = getattr(condition, "attribute", ())
        if len(path) != 1:
            return
        column = path[0].lower()
        value = getattr(condition, "value", None)
        if column == "topic":
            self._add_topic(condition, value)
        elif column == "timestamp":
            self._add_number(self.timestamp, condition, value, _milliseconds)
        elif column == "offset":
            self._add_number(self.offset, condition, value, _exact)
        elif column == "partition":
            self._add_number(self.partition, condition, value, _exact)
            if isinstance(condition, In):
                numbers = {number for number in condition.value if isinstance(number, int)}
                self.partitions = numbers & (
                    numbers if self.partitions is None else self.partitions
                )

    def _add_topic(self, condition: Filter, value: Any) -> None:
        names: set[str]
        if isinstance(condition, (EqualTo, EqualNullSafe)):
            names = {value}
        elif isinstance(condition, In):
            names = set(condition.value)
        elif isinstance(condition, StringStartsWith):
            self.topic_prefixes.append(value)
            return
        else:
            return
        self.topics = names if self.topics is None else self.topics & names

    def _add_number(
        self,
        known: Range,
        condition: Filter,
        value: Any,
        bounds: Callable[[Any], tuple[int, int] | None],
    ) -> None:
        if isinstance(condition, In):
            each = [bounds(one) for one in condition.value if one is not None]
            found = [one for one in each if one is not None]
            if len(found) == len(each):
                # Without values, the range is empty.
                low = min((first for first, _ in found), default=1)
                known.narrow(low, max((last for _, last in found), default=0))
            return
        pair = bounds(value)
        if pair is None:
            return
        # A value between two integers gives the next lower and the next higher one.
        below, above = min(pair), max(pair)
        if isinstance(condition, (EqualTo, EqualNullSafe)):
            known.narrow(below, above)
        elif isinstance(condition, GreaterThanOrEqual):
            known.narrow(above, INT64_MAX)
        elif isinstance(condition, GreaterThan):
            known.narrow(above + (below == above), INT64_MAX)
        elif isinstance(condition, LessThanOrEqual):
            known.narrow(INT64_MIN, below)
        elif isinstance(condition, LessThan):
            known.narrow(INT64_MIN, below - (below == above))


def _exact(value: Any) -> tuple[int, int] | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value, value
    return None


def _milliseconds(value: Any) -> tuple[int, int] | None:
    if not isinstance(value, datetime):
        return None
    if value.tzinfo is None:
        value = value.astimezone()
    since = value - _EPOCH
    below = since // _MILLISECOND
    return below, below if since == below * _MILLISECOND else below + 1


class FilteringReader(DataSourceReader):
    """A reader that collects pushed-down filters in ``wanted``."""

    def __init__(self) -> None:
        self.wanted = Wanted()

    @property
    def pushFilters(self) -> Any:
        """The method that Spark calls with the filters."""
        takes = undocumented.TAKES_FILTERS
        return undocumented.PushFilters(self.wanted.add) if takes else super().pushFilters
