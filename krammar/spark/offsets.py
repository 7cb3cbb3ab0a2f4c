"""The offsets at which reading begins and ends, in the syntax of the Kafka connector's options."""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from krammar.spark.errors import MissingDataError, OptionError

# In JSON, these numbers mean the two ends of a partition.
LATEST = -1
EARLIEST = -2

INT64_MAX = 2**63 - 1

TopicPartition: TypeAlias = tuple[str, int]
_At = TypeVar("_At", bound=TopicPartition)


@dataclass(frozen=True, slots=True)
class Earliest:
    """The first offset that exists in each partition."""


@dataclass(frozen=True, slots=True)
class Latest:
    """The end of each partition."""


@dataclass(frozen=True, slots=True)
class Specific:
    """An offset for each partition; EARLIEST and LATEST mean its ends."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class AtTimestamp:
    """The first record at or after a time, in milliseconds since 1970.

    ``timestamps`` has a time for each partition. If it is None, ``timestamp`` applies to all partitions.
    """

    timestamp: int = -1
    timestamps: Mapping[TopicPartition, int] | None = None

    def of(self, partition: TopicPartition) -> int:
        """Return the time for a partition, in milliseconds since 1970."""
        return self.timestamp if self.timestamps is None else self.timestamps[partition]


@dataclass(frozen=True, slots=True)
class OfGroup:
    """The offsets that a consumer group has committed; partitions without one begin at the earliest."""

    group: str


Bound: TypeAlias = Earliest | Latest | Specific | AtTimestamp | OfGroup


def check_partitions(name: str, bound: Bound, known: Set[TopicPartition]) -> None:
    """Raise OptionError for the option ``name`` unless it names all partitions and no others."""
    named, hint = None, ""
    if isinstance(bound, Specific):
        named, hint = bound.offsets.keys(), " (-1 is latest, -2 earliest)"
    elif isinstance(bound, AtTimestamp) and bound.timestamps is not None:
        named = bound.timestamps.keys()
        name += "ByTimestamp"
    if named is not None and named != known:
        topic, partition = min(named ^ known)
        verb = "lacks" if (topic, partition) in known else "names the unknown"
        raise OptionError(
            name, f"{verb} {topic}-{partition}; name exactly the selected partitions{hint}"
        )


def check_times(starting: Bound, ending: Bound) -> None:
    """Raise OptionError if the end timestamp of a partition is before its start timestamp."""
    if not (isinstance(starting, AtTimestamp) and isinstance(ending, AtTimestamp)):
        return
    for at, time in (starting.timestamps or {}).items():
        if ending.timestamps is not None and time > ending.timestamps[at]:
            raise OptionError(
                "startingOffsetsByTimestamp",
                f"{at[0]}-{at[1]} begins at {time} ms, but ends at {ending.timestamps[at]} ms",
            )


def check_order(topic: str, partition: int, first: int, last: int) -> None:
    """Raise OptionError if the first offset of a partition is after its last."""
    if first > last:
        raise OptionError(
            "startingOffsets", f"{topic}-{partition} begins at offset {first}, but ends at {last}"
        )


def no_record_at(name: str, timestamp: int) -> MissingDataError:
    """Return the error for a partition without a record at or after ``timestamp``, in milliseconds."""
    return MissingDataError(
        f"{name} has no record at or after {timestamp} ms since 1970; set"
        " startingOffsetsByTimestampStrategy=latest to start at its end"
    )


def parse_offsets(text: str) -> Bound:
    """Parse ``earliest``, ``latest``, or JSON such as ``{"orders": {"0": 23, "1": -2}}``.

    Raises:
        ValueError: the text is none of these.
    """
    word = text.strip().lower()
    if word == "earliest":
        return Earliest()
    if word == "latest":
        return Latest()
    if not word.startswith(("{", "[")):
        raise ValueError('needs earliest, latest or JSON such as {"orders": {"0": 23, "1": -2}}')
    offsets = _parse_by_partition(text)
    for (topic, partition), offset in offsets.items():
        if offset < EARLIEST:
            raise ValueError(f"{topic}-{partition} has offset {offset}; at least -2 is needed")
    return Specific(offsets)


def parse_timestamps(text: str) -> Bound:
    """Parse JSON such as ``{"orders": {"0": 1700000000000}}``, in milliseconds since 1970.

    Raises:
        ValueError: the text is not such JSON.
    """
    return AtTimestamp(timestamps=_parse_by_partition(text))


def parse_timestamp(text: str) -> Bound:
    """Parse milliseconds since 1970, for all partitions.

    Raises:
        ValueError: the text is not a number, or negative.
    """
    try:
        timestamp = int(text)
    except ValueError:
        raise ValueError("needs milliseconds since 1970, as a whole number") from None
    if timestamp < 0:
        raise ValueError("milliseconds since 1970 cannot be negative")
    if timestamp > INT64_MAX:
        raise ValueError(f"needs at most {INT64_MAX} milliseconds")
    return AtTimestamp(timestamp)


def offsets_to_json(offsets: Mapping[_At, int]) -> dict[str, dict[str, int]]:
    """Return offsets as Kafka's connector stores them in checkpoints, ``{"orders": {"0": 23}}``.

    They are sorted, so that equal offsets give the same text.
    """
    result: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        result.setdefault(topic, {})[str(partition)] = offset
    return result


def of_json(found: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """Return the offsets in JSON that ``offsets_to_json`` or Kafka's connector wrote."""
    return {
        (topic, int(number)): offset
        for topic, by_partition in found.items()
        for number, offset in by_partition.items()
    }


def parse_assign(text: str) -> frozenset[TopicPartition]:
    """Parse JSON such as ``{"orders": [0, 1]}``.

    Raises:
        ValueError: the text is not such JSON, or names no partition.
    """
    found = _object(text)
    partitions: set[TopicPartition] = set()
    for topic, numbers in found.items():
        if not topic:
            raise ValueError("the name of a topic is empty")
        if not isinstance(numbers, list) or not all(_is_int(number) for number in numbers):
            raise ValueError(f"topic {topic!r} needs a list of partitions")
        partitions.update((topic, number) for number in numbers)
    if not partitions:
        raise ValueError("no partition is named")
    return frozenset(partitions)


def _parse_by_partition(text: str) -> dict[TopicPartition, int]:
    result = {}
    for topic, by_partition in _object(text).items():
        if not isinstance(by_partition, dict):
            raise ValueError(f"topic {topic!r} needs an object of partitions")
        for number, value in by_partition.items():
            if not number.isdecimal() or not _is_int(value):
                raise ValueError(f"topic {topic!r}: {number!r}: {value!r} is not partition: number")
            if value > INT64_MAX:
                raise ValueError(f"topic {topic!r}: {number!r}: needs at most {INT64_MAX}")
            result[topic, int(number)] = value
    return result


def _object(text: str) -> dict[str, object]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ValueError(f"is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError("needs a JSON object of topics")
    return found


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
