"""Message sets v0 and v1: compared with kafka-python and aiokafka, and as brokers store them."""

from __future__ import annotations

import random
import struct
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from record_oracles import (
    LEGACY_CODECS,
    PEERS,
    Row,
    missing_codec,
    our_read,
    patch_legacy,
    peer_read,
    peer_write,
    peer_write_legacy,
    rows_strategy,
)

from krammar.wire.batches import (
    RecordBatch,
    TimestampType,
    encode_batch,
    read_batches,
    read_headers,
)
from krammar.wire.batches.compression import Compression, compress
from krammar.wire.errors import CorruptRecordError, DecodeError

CASES = [
    pytest.param(
        peer,
        magic,
        codec,
        id=f"{peer}-v{magic}-{name}",
        marks=pytest.mark.skipif(
            missing_codec(peer, codec) is not None, reason=str(missing_codec(peer, codec))
        ),
    )
    for peer in PEERS
    for magic in (0, 1)
    for name, codec in LEGACY_CODECS.items()
    # aiokafka refuses it, for the wrong checksum of old Kafka.
    if (peer, magic, name) != ("aiokafka", 0, "lz4")
]

ROWS: list[Row] = [
    (0, 1000, b"k0", b"v0", []),
    (1, 1010, None, b"v1", []),
    (4, 1020, b"k4", None, []),  # 2 and 3 were compacted away
    (5, 1005, b"", b"", []),
]


def only(data: bytes | bytearray, **options: Any) -> RecordBatch:
    (batch,) = read_batches(data, allow_partial=False, **options)
    return batch


def message(
    magic: int,
    value: bytes | None,
    *,
    offset: int = 0,
    attributes: int = 0,
    timestamp: int = 1000,
    key: bytes | None = None,
) -> bytes:
    """Encode one message without krammar."""
    rest = struct.pack(">bb", magic, attributes)
    if magic:
        rest += struct.pack(">q", timestamp)
    for field in (key, value):
        rest += struct.pack(">i", -1 if field is None else len(field)) + (field or b"")
    return struct.pack(">qiI", offset, len(rest) + 4, zlib.crc32(rest)) + rest


def test_the_messages_written_here_are_the_peers() -> None:
    for peer in PEERS:
        for magic in (0, 1):
            theirs = peer_write_legacy(peer, magic, [(5, 7, b"k", None, [])], 0)
            assert theirs == message(magic, None, key=b"k", offset=5, timestamp=7)


@pytest.mark.parametrize(("peer", "magic", "codec"), CASES)
@settings(max_examples=40)
@given(rows=rows_strategy(headers=False))
def test_reads_what_peers_write(peer: str, magic: int, codec: int, rows: list[Row]) -> None:
    data = peer_write_legacy(peer, magic, rows, codec)
    if codec:
        # A wrapper as a broker appends it: its offset is the offset of the last inner message.
        data = patch_legacy(data, offset=rows[-1][0])
    expected = [
        (offset, timestamp if magic else -1, key, value, [])
        for offset, timestamp, key, value, _ in rows
    ]
    assert our_read(data) == peer_read(peer, data) == expected


@pytest.mark.parametrize("peer", PEERS)
@pytest.mark.parametrize("codec", LEGACY_CODECS.values(), ids=LEGACY_CODECS)
def test_offsets_inside_v1_are_relative(peer: str, codec: int) -> None:
    data = peer_write_legacy("aiokafka", 1, ROWS, codec)
    if codec:
        data = patch_legacy(data, offset=10_005)
        assert [row[0] for row in our_read(data)] == [10_000, 10_001, 10_004, 10_005]
        assert only(data).next_offset == 10_006
    else:
        assert [row[0] for row in our_read(data)] == [0, 1, 4, 5]
    assert our_read(data) == peer_read(peer, data)


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.SNAPPY])
def test_offsets_inside_v0_are_absolute(codec: int) -> None:
    rows = [(offset + 10_000, *rest) for offset, *rest in ROWS]
    data = peer_write_legacy("aiokafka", 0, rows, codec)  # type: ignore[arg-type]
    for offset in (0, 10_005, 77):
        patched = patch_legacy(data, offset=offset)
        assert [row[0] for row in our_read(patched)] == [10_000, 10_001, 10_004, 10_005]
        assert our_read(patched) == peer_read("kafka-python", patched)


@pytest.mark.parametrize("peer", PEERS)
@pytest.mark.parametrize("codec", LEGACY_CODECS.values(), ids=LEGACY_CODECS)
def test_log_append_time(peer: str, codec: int) -> None:
    data = peer_write_legacy("aiokafka", 1, ROWS if codec else ROWS[:1], codec)
    stamped = patch_legacy(data, offset=5, attributes=8, timestamp=9999)
    batch = only(stamped)
    assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert batch.max_timestamp == 9999
    assert {record.timestamp for record in batch} == {9999}
    assert our_read(stamped) == peer_read(peer, stamped)
    # Without it a wrapper's timestamp is only the largest of those inside.
    stamped = patch_legacy(data, offset=5, timestamp=9999 if codec else 1000)
    assert only(stamped).timestamp_type is TimestampType.CREATE_TIME
    assert [row[1] for row in our_read(stamped)] == [1000, 1010, 1020, 1005][: len(our_read(data))]
    assert our_read(stamped) == peer_read(peer, stamped)


def test_headers() -> None:
    (v0,) = read_headers(message(0, b"v", offset=5, key=b"k"))
    assert (v0.magic, v0.base_offset, v0.last_offset, v0.next_offset) == (0, 5, 5, 6)
    assert v0.timestamp_type is TimestampType.NO_TIMESTAMP_TYPE
    assert (v0.base_timestamp, v0.max_timestamp, v0.records_count) == (-1, -1, 1)
    assert (v0.partition_leader_epoch, v0.producer_id, v0.producer_epoch, v0.base_sequence) == (
        (-1, -1, -1, -1)
    )
    data = message(1, compress(message(1, b"v"), 1), offset=8, attributes=1, timestamp=55)
    (v1,) = read_headers(data)
    assert (v1.magic, v1.last_offset, v1.max_timestamp, v1.records_count) == (1, 8, 55, -1)
    assert v1.compression is Compression.GZIP
    assert v1.size_in_bytes == len(data)
    # Bits that only v2 has mean nothing here.
    (v1,) = read_headers(message(1, b"v", attributes=0x70))
    assert not any((v1.is_transactional, v1.is_control, v1.has_delete_horizon))


def test_formats_may_be_mixed() -> None:
    data = (
        peer_write_legacy("kafka-python", 0, ROWS[:2], 0)
        + patch_legacy(peer_write_legacy("kafka-python", 1, ROWS, 1), offset=25)
        + encode_batch([], base_offset=26, last_offset_delta=3)
        + peer_write("kafka-python", ROWS, 4)
    )
    assert [batch.magic for batch in read_batches(data)] == [0, 0, 1, 2, 2]
    assert [row[0] for row in our_read(data)] == [0, 1, 20, 21, 24, 25, 0, 1, 4, 5]
    assert our_read(data) == peer_read("kafka-python", data)
    # Cut anywhere, as the response to a fetch is.
    whole = [batch.position for batch in read_batches(data)]
    for size in range(0, len(data), 7):
        found = [batch.position for batch in read_batches(data[:size])]
        assert found == whole[: len(found)]
        assert len(found) >= sum(1 for position in whole[1:] if position <= size)


def test_lz4_of_either_checksum_in_v0_only() -> None:
    from kafka.codec import lz4_encode_old_kafka

    inside = message(0, b"v", offset=3)
    for value in (compress(inside, 3), lz4_encode_old_kafka(inside)):
        assert our_read(message(0, value, attributes=3)) == [(3, -1, None, b"v", [])]
    wrong = lz4_encode_old_kafka(message(1, b"v"))
    with pytest.raises(DecodeError, match="lz4"):
        our_read(message(1, wrong, attributes=3))


# Corrupt bytes.


def test_wrong_crc() -> None:
    data = bytearray(message(1, b"value", key=b"key"))
    data[-1] ^= 1
    with pytest.raises(CorruptRecordError) as caught:
        only(data)
    assert (caught.value.path, caught.value.offset) == ("crc", 12)
    assert [record.value for record in only(data, validate_crc=False)] == [b"valud"]


def test_wrong_crc_inside() -> None:
    inside = bytearray(message(1, b"a") + message(1, b"value"))
    inside[-1] ^= 1
    data = message(1, compress(bytes(inside), 1), attributes=1, offset=1)
    batch = only(data)
    with pytest.raises(CorruptRecordError) as caught:
        batch.records()
    assert caught.value.path == "records[1]"
    assert len(only(data, validate_crc=False).records()) == 2


@pytest.mark.parametrize(
    ("inside", "text"),
    [
        (b"", r"records\[0\]: needs 34 bytes"),
        (message(1, b"v") + bytes(33), r"records\[1\]: needs 34 bytes"),
        (message(1, b"v") * 2 + message(1, b"v")[:-1], r"records\[2\]: message of 35 bytes"),
        (message(0, b"value12345"), r"records\[0\]: a message v0 inside a message v1"),
        (
            message(1, compress(message(1, b"v"), 1), attributes=1),
            r"records\[0\]: compressed a second",
        ),
        (message(1, b"v")[:11] + b"\x15" + message(1, b"v")[12:], r"records\[0\]: message of 33"),
        (
            message(1, b"v")[:8] + b"\xff" * 4 + message(1, b"v")[12:],
            r"records\[0\]: message of 11",
        ),
    ],
)
def test_wrong_wrappers(inside: bytes, text: str) -> None:
    batch = only(message(1, compress(inside, 1), attributes=1))
    with pytest.raises(DecodeError, match=text) as caught:
        batch.records()
    assert str(caught.value).startswith("batch at offset 0: ")


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [4, 5, 6, 7])
def test_codecs_that_message_sets_do_not_have(magic: int, codec: int) -> None:
    inside = compress(message(magic, b"v"), 4)
    with pytest.raises(DecodeError, match=f"no compression {codec}"):
        only(message(magic, inside, attributes=codec)).records()
    with pytest.raises(DecodeError, match="message has no value"):
        only(message(magic, None, attributes=1)).records()


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize(
    ("key_size", "value_size", "path"),
    [
        (-2, 3, "records[0].key"),
        (2**31 - 1, 3, "records[0].key"),
        (7, 3, "records[0].key"),
        (3, -2, "records[0].value"),
        (3, -1, "records[0].value"),
        (3, 2, "records[0].value"),
        (3, 4, "records[0].value"),
        (3, 2**31 - 1, "records[0].value"),
    ],
)
def test_wrong_lengths(magic: int, key_size: int, value_size: int, path: str) -> None:
    data = bytearray(message(magic, b"val", key=b"key"))
    struct.pack_into(">i", data, len(data) - 14, key_size)
    struct.pack_into(">i", data, len(data) - 7, value_size)
    position = len(data) - (14 if path.endswith("key") else 7)
    with pytest.raises(DecodeError) as caught:
        only(b"" + data, validate_crc=False).records()
    assert (caught.value.path, caught.value.offset) == (path, position)
    # The same inside of a wrapper.
    struct.pack_into(">I", data, 12, zlib.crc32(data[16:]))
    with pytest.raises(DecodeError) as caught:
        only(message(magic, compress(bytes(data), 1), attributes=1)).records()
    assert (caught.value.path, caught.value.offset) == (path, -1)


def test_messages_too_short() -> None:
    for magic, smallest in ((0, 14), (1, 22)):
        data = bytearray(message(magic, None))
        assert len(data) == smallest + 12
        struct.pack_into(">i", data, 8, smallest - 1)
        with pytest.raises(DecodeError) as caught:
            list(read_headers(data))
        assert caught.value.path == "batch_length"


def test_bombs() -> None:
    inside = message(1, bytes(1 << 24))
    for codec in (1, 2, 3):
        batch = only(
            message(1, compress(inside, codec), attributes=codec), max_uncompressed=1 << 20
        )
        with pytest.raises(DecodeError, match="max_uncompressed"):
            batch.records()


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", LEGACY_CODECS.values(), ids=LEGACY_CODECS)
def test_mutations_give_values_or_decode_errors(magic: int, codec: int) -> None:
    rng = random.Random(magic)
    data = message(magic, b"value", key=b"key")
    if codec:
        inside = peer_write_legacy("aiokafka", magic, ROWS, 0)
        data = message(magic, compress(inside, codec), attributes=codec)
    values = errors = 0
    for _ in range(1500):
        mutated = bytearray(data)
        for _ in range(rng.randint(1, 3)):
            mutated[rng.randrange(len(mutated))] = rng.choice((0, 1, 127, 128, 255))
        if rng.random() < 0.2:
            del mutated[rng.randrange(len(mutated)) :]
        try:
            for batch in read_batches(mutated, validate_crc=False, max_uncompressed=1 << 16):
                batch.records()
            values += 1
        except DecodeError:
            errors += 1
    assert values > 20
    assert errors > 100


@pytest.mark.parametrize("magic", [0, 1])
def test_mutations_inside(magic: int) -> None:
    rng = random.Random(magic)
    data = peer_write_legacy("aiokafka", magic, ROWS, 0)
    values = errors = 0
    for _ in range(1500):
        mutated = bytearray(data)
        for _ in range(rng.randint(1, 3)):
            mutated[rng.randrange(len(mutated))] = rng.choice((0, 1, 127, 128, 255))
        if rng.random() < 0.2:
            del mutated[rng.randrange(len(mutated)) :]
        wrapper = message(magic, compress(bytes(mutated), 2), attributes=2)
        try:
            only(wrapper, validate_crc=False).records()
            values += 1
        except DecodeError:
            errors += 1
    assert values > 20
    assert errors > 100
