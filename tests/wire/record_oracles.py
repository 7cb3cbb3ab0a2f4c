"""Record batches and message sets as kafka-python and aiokafka write and read them.

Rows are (offset, timestamp, key, value, headers) for all of them.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Any

from aiokafka.record.default_records import (
    DefaultRecordBatch,
)
from aiokafka.record.default_records import (
    DefaultRecordBatchBuilder as AiokafkaBuilder,
)
from aiokafka.record.legacy_records import (
    LegacyRecordBatch,
)
from aiokafka.record.legacy_records import (
    LegacyRecordBatchBuilder as AiokafkaLegacyBuilder,
)
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from hypothesis import strategies as st
from kafka import codec as kafka_codec
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
from kafka.record.legacy_records import LegacyRecordBatchBuilder as KafkaPythonLegacyBuilder
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

from krammar.wire.batches import Record, read_batches

Row = tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
LEGACY_CODECS = {name: codec for name, codec in CODECS.items() if name != "zstd"}
PEERS = ("kafka-python", "aiokafka")

_has_codec = {
    0: lambda: True,
    1: kafka_codec.has_gzip,
    2: kafka_codec.has_snappy,
    3: kafka_codec.has_lz4,
    4: kafka_codec.has_zstd,
}


def missing_codec(peer: str, codec: int) -> str | None:
    """Why a peer cannot do a codec here: kafka-python takes a package for each, all of them among
    the development dependencies."""
    if peer == "kafka-python" and not _has_codec[codec]():
        return f"kafka-python has no package for codec {codec}"
    return None


def peer_write(
    peer: str,
    rows: Sequence[Row],
    codec: int,
    *,
    is_transactional: bool = False,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """A record batch v2. Offsets count from 0, as they do in what producers send."""
    builder = (KafkaPythonBuilder if peer == "kafka-python" else AiokafkaBuilder)(
        2, codec, is_transactional, producer_id, producer_epoch, base_sequence, 1 << 30
    )
    for offset, timestamp, key, value, headers in rows:
        assert builder.append(offset, timestamp, key, value, headers) is not None
    return bytes(builder.build())


def peer_write_legacy(peer: str, magic: int, rows: Sequence[Row], codec: int) -> bytes:
    """Write a message set with another implementation."""
    builder: Any = (KafkaPythonLegacyBuilder if peer == "kafka-python" else AiokafkaLegacyBuilder)(
        magic, codec, 1 << 30
    )
    for offset, timestamp, key, value, _ in rows:
        assert builder.append(offset, timestamp, key, value) is not None
    return bytes(builder.build())


def peer_read(peer: str, data: bytes) -> list[Row]:
    """All records of all batches, which must have the right CRCs."""
    rows: list[Row] = []
    batches: Any = (KafkaPythonRecords if peer == "kafka-python" else AiokafkaRecords)(data)
    while batches.has_next():
        batch = batches.next_batch()
        assert batch.validate_crc()
        for record in batch:
            timestamp = -1 if record.timestamp is None else record.timestamp
            rows.append((record.offset, timestamp, record.key, record.value, list(record.headers)))
    return rows


def peer_header(peer: str, data: bytes) -> dict[str, Any]:
    """The fields of the only batch in ``data``, v2, by our names."""
    batch: Any
    if peer == "kafka-python":
        batch = KafkaPythonRecords(data).next_batch()
    else:
        batch = DefaultRecordBatch(data)
    fields = {
        "base_offset": batch.base_offset,
        "magic": batch.magic,
        "crc": batch.crc,
        "attributes": batch.attributes,
        "last_offset_delta": batch.last_offset_delta,
        "base_timestamp": batch.first_timestamp,
        "max_timestamp": batch.max_timestamp,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "is_transactional": bool(batch.is_transactional),
        "is_control": bool(batch.is_control_batch),
        "next_offset": batch.next_offset,
        "timestamp_type": batch.timestamp_type,
        "compression": batch.compression_type,
    }
    if peer == "kafka-python":
        fields["partition_leader_epoch"] = batch.leader_epoch
        fields["records_count"] = batch.records_count
    return fields


def row(record: Record) -> Row:
    """Return a record as the tuple that all implementations are compared by."""
    return (record.offset, record.timestamp, record.key, record.value, record.headers)


def our_read(data: bytes) -> list[Row]:
    """Read records with krammar."""
    return [row(record) for batch in read_batches(data) for record in batch.records()]


def patch_legacy(
    data: bytes, *, offset: int | None = None, attributes: int = 0, timestamp: int | None = None
) -> bytes:
    """A message (a wrapper, say) as a broker changes it: another offset, more attributes, another
    timestamp (v1); the CRC is made to fit."""
    out = bytearray(data)
    if offset is not None:
        struct.pack_into(">q", out, 0, offset)
    out[17] |= attributes
    if timestamp is not None:
        struct.pack_into(">q", out, 18, timestamp)
    struct.pack_into(">I", out, 12, zlib.crc32(out[16:]))
    return bytes(out)


def legacy_reader(data: bytes, magic: int) -> Any:
    """aiokafka's batch of the one message in ``data``."""
    return LegacyRecordBatch(data, magic)


_octets = st.one_of(
    st.none(),
    st.binary(max_size=20),
    # Lengths on both sides of where their varints grow.
    st.sampled_from([62, 63, 64, 65, 127, 128, 8191, 8192, 8193, 16383, 16384]).map(
        lambda size: bytes(i * 7 & 255 for i in range(size))
    ),
)
_header = st.tuples(st.text(max_size=8), _octets)
_headers = st.one_of(st.just([]), st.lists(_header, max_size=4))
# Differences of one to ten bytes as varints.
_timestamp_delta = st.one_of(
    st.integers(-70, 70),
    st.integers(-9000, 9000),
    st.integers(-(2**35), 2**35),
    st.integers(-(2**62), 2**62),
)


@st.composite
def rows_strategy(draw: Any, headers: bool = True, nulls: bool = True) -> list[Row]:
    """One to twelve rows, offsets rising from 0 with gaps as compaction leaves them."""
    count = draw(st.integers(1, 12))
    base = draw(st.integers(0, 2**61))
    rows: list[Row] = []
    offset = -1
    for index in range(count):
        offset += draw(st.sampled_from([1, 1, 1, 2, 63, 64, 8191, 8192, 1 << 20])) if index else 1
        rows.append(
            (
                offset,
                max(0, base + draw(_timestamp_delta)),
                draw(_octets) if nulls else draw(_octets) or b"",
                draw(_octets) if nulls else draw(_octets) or b"",
                draw(_headers) if headers else [],
            )
        )
    return rows
