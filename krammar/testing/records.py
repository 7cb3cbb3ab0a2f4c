"""The records of a broker in a test, as plain Python."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from krammar.logfiles.transactions import is_aborted
from krammar.wire.batches import RecordBatch

if TYPE_CHECKING:
    from krammar.broker.log.log import PartitionLog


_FIELDS = ("key", "value", "headers", "partition", "timestamp")


@dataclass(frozen=True, slots=True)
class Record:
    """A record in a topic.

    Attributes:
        timestamp: in milliseconds since 1970
        key, value: as the client sent them, in bytes; None for null
        headers: names and values, in order
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Seed:
    """A record to store.

    Attributes:
        partition: None to choose one by the key, as Kafka's clients do, or in turns without a key
        timestamp: in milliseconds since 1970; None for the broker's time
    """

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp: int | None = None


def seeds(records: Iterable[Any]) -> list[Seed]:
    """Check records, and return them in one form.

    Args:
        records: values; pairs of key and value; or mappings with ``key``, ``value``, ``headers``,
            ``partition`` and ``timestamp``. Text is encoded in UTF-8, and None is null.

    Raises:
        TypeError: a record has another form.
    """
    if isinstance(records, (str, bytes, Mapping)) or not isinstance(records, Iterable):
        raise TypeError(f"records are a list, such as [b'one'], not {records!r}")
    return [_seed(each) for each in records]


def _seed(record: Any) -> Seed:
    if isinstance(record, tuple) and len(record) == 2:
        record = {"key": record[0], "value": record[1]}
    elif not isinstance(record, Mapping):
        record = {"value": record}
    for name in record:
        if name not in _FIELDS:
            raise TypeError(f"a record has no {name!r}; it has {', '.join(_FIELDS)}")
    headers = record.get("headers", ())
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    numbers = [record.get(name) for name in ("partition", "timestamp")]
    for each in numbers:
        if each is not None and (type(each) is not int or each < 0):
            raise TypeError(f"{each!r} is not a partition or a time in milliseconds")
    return Seed(
        _data(record.get("key")),
        _data(record.get("value")),
        tuple((name, _data(value)) for name, value in pairs),
        *numbers,
    )


def _data(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    raise TypeError(f"{value!r} is neither bytes nor text nor None")


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of a log, with what its records lack."""

    topic: str
    partition: int
    first_offset: int
    content: RecordBatch

    def records(self) -> list[Record]:
        """Decode the records, without those that were deleted on request."""
        return [
            Record(
                self.topic,
                self.partition,
                record.offset,
                record.timestamp,
                record.key,
                record.value,
                tuple(record.headers),
            )
            for record in self.content
            if record.offset >= self.first_offset
        ]


def batches_of(log: PartitionLog, *, committed: bool) -> list[Batch]:
    """Read the batches of a log, without control batches. Call it in the broker's loop.

    Args:
        committed: whether batches of aborted transactions, and all from the first open transaction
            on, are left out, as for a consumer with ``read_committed``
    """
    end = log.last_stable_offset if committed else log.end_offset
    aborted = log.reader.aborted_entries(log.log_start_offset, end) if committed else []
    return [
        Batch(log.topic, log.partition, log.log_start_offset, batch)
        for batch in log.reader.batches()
        if batch.base_offset < end and not batch.is_control and not is_aborted(batch, aborted)
    ]


def batch_within(log: PartitionLog, first: int, last: int) -> Batch | None:
    """Return the batch with these offsets; None if it is deleted. Call it in the broker's loop."""
    begin = max(first, log.log_start_offset)
    if log.deleted or begin > last:
        return None
    batch = next(log.reader.batches(begin), None)
    if batch is None or batch.base_offset > last:
        return None
    return Batch(log.topic, log.partition, log.log_start_offset, batch)
