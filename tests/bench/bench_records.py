"""Record batches of 10,000 records: what is measured, beside the peers, on the same bytes.

``cases()`` gives the name of each measurement and, by peer, a function without arguments that does
it once. Before it does, it makes sure that all peers see, or write, the same records.

Of the codecs only lz4, the fastest that all three have, is among them: the slower a codec, the more
the C libraries behind it are what is compared.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

from krammar.wire.batches import Compression, Record, encode_batch, read_batches
from krammar.wire.batches.arrow import to_arrow

Case = tuple[str, dict[str, Callable[[], Any]]]
Row = tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]

COUNT = 10_000


def rows(headers: bool = False) -> list[Row]:
    """Keys of about 8 bytes and values of about 100, three records a millisecond."""
    rng = random.Random(2)
    extra: list[tuple[str, bytes | None]] = [("trace-id", b"0123456789abcdef"), ("source", b"web")]
    return [
        (
            i,
            1_700_000_000_000 + i // 3,
            b"key-%d" % i,
            rng.randbytes(rng.randint(80, 120)),
            list(extra) if headers else [],
        )
        for i in range(COUNT)
    ]


# Reading: every record as an object, the CRC checked.


def read(data: bytes) -> list[Record]:
    records: list[Record] = []
    for batch in read_batches(data):
        records.extend(batch.records())
    return records


def kafka_python_read(data: bytes) -> list[Any]:
    records: list[Any] = []
    batches = KafkaPythonRecords(data)
    while batches.has_next():
        batch = batches.next_batch()
        if not batch.validate_crc():
            raise ValueError("wrong CRC")
        records.extend(batch)
    return records


def aiokafka_read(data: bytes) -> list[Any]:
    batch = AiokafkaBatch(data)
    if not batch.validate_crc():
        raise ValueError("wrong CRC")
    return list(batch)


# Writing: from records (the peers: from their fields, as their builders take them) to bytes.


def build(builder: Any, rows: list[Row]) -> bytes:
    for offset, timestamp, key, value, headers in rows:
        builder.append(offset, timestamp, key, value, headers)
    return builder.build()  # type: ignore[no-any-return]


def kafka_python_write(rows: list[Row], codec: int) -> bytes:
    return build(KafkaPythonBuilder(2, codec, False, -1, -1, -1, 1 << 30), rows)


def aiokafka_write(rows: list[Row], codec: int) -> bytes:
    return build(AiokafkaBuilder(2, codec, 0, -1, -1, -1, 1 << 30), rows)


# Arrow columns: for the peers by way of their records, as one would do it.


def columns(records: Iterable[Any]) -> pa.RecordBatch:
    records = list(records)
    return pa.record_batch(
        [
            pa.array([record.key for record in records], pa.binary()),
            pa.array([record.value for record in records], pa.binary()),
            pa.array([record.offset for record in records], pa.int64()),
            pa.array([record.timestamp for record in records], pa.int64()),
        ],
        names=["key", "value", "offset", "timestamp"],
    )


def _seen(records: Iterable[Any]) -> list[Row]:
    return [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in records]


def _check(name: str, same: bool) -> None:
    if not same:
        raise AssertionError(f"{name}: the peers do not see the same records")


def cases() -> list[Case]:
    """Raises AssertionError where peers differ in what they read or write."""
    plain = rows()
    found: list[Case] = []
    for name, some, codec in (
        ("10,000 records", plain, Compression.NONE),
        ("10,000 records, two headers each", rows(headers=True), Compression.NONE),
        ("10,000 records, lz4", plain, Compression.LZ4),
    ):
        found += _both_ways(name, some, codec)
    data = encode_batch([Record(*row) for row in plain])
    arrow: dict[str, Callable[[], Any]] = {
        "krammar": lambda: to_arrow(data),
        "kafka-python": lambda: columns(kafka_python_read(data)),
        "aiokafka": lambda: columns(aiokafka_read(data)),
    }
    expected = columns([Record(*row) for row in plain])
    for peer, run in arrow.items():
        got = run()
        same = all(got[name].equals(expected[name]) for name in expected.schema.names)
        _check(f"Arrow, {peer}", same and got.num_rows == COUNT)
    # The garbage collector, which runs while this is timed, would walk all that was made here too,
    # and the time counts for the code that creates the object which starts it.
    gc.collect()
    gc.freeze()
    return [*found, ("10,000 records to Arrow columns", arrow)]


def _both_ways(name: str, some: list[Row], codec: Compression) -> list[Case]:
    records = [Record(*row) for row in some]
    data = encode_batch(records, compression=codec)
    decode: dict[str, Callable[[], Any]] = {
        "krammar": lambda: read(data),
        "kafka-python": lambda: kafka_python_read(data),
        "aiokafka": lambda: aiokafka_read(data),
    }
    for peer, run in decode.items():
        _check(f"decode {name}, {peer}", _seen(run()) == some)
    encode: dict[str, Callable[[], Any]] = {
        "krammar": lambda: encode_batch(records, compression=codec),
        "kafka-python": lambda: kafka_python_write(some, codec),
        "aiokafka": lambda: aiokafka_write(some, codec),
    }
    for peer, run in encode.items():
        _check(f"encode {name}, {peer}", _seen(read(bytes(run()))) == some)
    return [(f"decode {name}", decode), (f"encode {name}", encode)]
