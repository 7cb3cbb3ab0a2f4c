"""Records, single and in columns: their sizes, and the partitions to which they are written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat

from kafka_wire import ErrorCode

from krammar.client.delivery import RECORD_OVERHEAD
from krammar.client.errors import kafka_error
from krammar.client.metadata import Topic
from krammar.client.partitioner import Partitioner, partition_of_key
from krammar.wire.batches import Record

Headers = Sequence[tuple[str, bytes | None]]


def record_size(value: bytes | None, key: bytes | None, headers: Headers) -> int:
    """Return an upper bound for the size of a record, in bytes. Raises TypeError."""
    size = RECORD_OVERHEAD
    if value is not None:
        if not isinstance(value, bytes):
            raise TypeError(f"the value must be bytes, not {type(value).__name__}")
        size += len(value)
    if key is not None:
        if not isinstance(key, bytes):
            raise TypeError(f"the key must be bytes, not {type(key).__name__}")
        size += len(key)
    return size + _headers_size(headers) if headers else size


def check_size(topic: str, size: int, most: int) -> None:
    """Raise MessageTooLarge if a record has more than ``max.request.size`` bytes."""
    if size > most:
        detail = f"{topic}: a record of {size} bytes exceeds max.request.size={most}"
        raise kafka_error(ErrorCode.MESSAGE_TOO_LARGE, detail)


def record_sizes(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None,
    headers: Sequence[Headers | None] | None,
) -> list[int]:
    """Return upper bounds for the sizes of records, in bytes."""
    sizes = [RECORD_OVERHEAD if v is None else RECORD_OVERHEAD + len(v) for v in values]
    if keys is not None:
        sizes = [n if k is None else n + len(k) for n, k in zip(sizes, keys, strict=True)]
    if headers is not None:
        sizes = [n + _headers_size(h) if h else n for n, h in zip(sizes, headers, strict=True)]
    return sizes


def _headers_size(headers: Headers) -> int:
    """Return an upper bound for the size of headers, in bytes. Raises TypeError."""
    size = 0
    for name, value in headers:
        if not isinstance(name, str) or not (value is None or isinstance(value, bytes)):
            raise TypeError("a header must be a pair of str, and bytes or None")
        size += 4 * len(name) + len(value or b"") + 10
    return size


def records_of(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None,
    headers: Sequence[Headers | None] | None,
    timestamp: int,
) -> list[Record]:
    """Return records without offsets."""
    return list(
        map(
            Record,
            repeat(-1),
            repeat(timestamp),
            repeat(None) if keys is None else keys,
            values,
            (
                repeat(None)
                if headers is None
                else (list(each) if each else None for each in headers)
            ),
        )
    )


def by_partition(
    topic: Topic,
    partitioner: Partitioner,
    keys: Sequence[bytes | None] | None,
    records: list[Record],
    sizes: list[int],
) -> Iterator[tuple[int, list[Record], list[int]]]:
    """Yield partitions with their records and the sizes of these, as ``send`` would choose them."""
    without_key: list[int] = []
    if keys is not None:
        count = len(topic.partitions)
        groups: dict[int, list[int]] = {}
        for index, key in enumerate(keys):
            if key is None:
                without_key.append(index)
            else:
                groups.setdefault(partition_of_key(key, count), []).append(index)
        for chosen, indexes in groups.items():
            yield chosen, [records[i] for i in indexes], [sizes[i] for i in indexes]
        records = [records[index] for index in without_key]
        sizes = [sizes[index] for index in without_key]
    begin = 0
    while begin < len(records):
        chosen, end = partitioner.choose_run(topic, sizes, begin)
        yield chosen, records[begin:end], sizes[begin:end]
        begin = end
