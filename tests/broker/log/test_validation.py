"""Batches that a broker must refuse, and the errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka_wire import ErrorCode

from krammar.broker.errors import ApiError
from krammar.broker.log.log_config import LogConfig
from krammar.broker.log.validation import (
    MOST_INVALID_RECORDS,
    check,
    read_batch,
)
from krammar.wire.batches import (
    BatchHeader,
    Bounds,
    Compression,
    ControlRecord,
    Record,
    TimestampType,
    encode_batch,
    encode_control_batch,
)
from krammar.wire.batches.crc import sealed
from tests.broker.log.support import NOW, Setting, batch, headers_of, refused, sent

MESSAGE_V1 = bytes.fromhex("0000000000000000 00000016 00000000 01 00") + b"\0" * 16


def changed(data: bytes, **fields: int) -> bytes:
    """A batch with other fields in its header and the CRC that they need."""
    header, body = read_batch(data, LogConfig())
    for name, value in fields.items():
        setattr(header, name, value)
    return whole(header, body[40:])


def whole(header: BatchHeader, records: bytes) -> bytes:
    body = sealed(header, records)
    return header.pack()[:21] + body


def with_body(body: bytes, count: int = 1, compression: int = 0) -> bytes:
    data = changed(batch(b"x"), records_count=count, last_offset_delta=count - 1)
    header, _ = read_batch(data, LogConfig())
    header.batch_length = 49 + len(body)
    header.attributes = compression
    return whole(header, body)


GOOD = batch(b"one", b"two")

CASES: list[tuple[bytes, ErrorCode, str]] = [
    (b"", ErrorCode.CORRUPT_MESSAGE, "0 bytes are not a record batch"),
    (GOOD[:60], ErrorCode.CORRUPT_MESSAGE, "60 bytes contain no complete record batch"),
    (GOOD[:-1], ErrorCode.CORRUPT_MESSAGE, "contain no complete record batch"),
    (GOOD[:16] + b"\3" + GOOD[17:], ErrorCode.CORRUPT_MESSAGE, "contain no complete record batch"),
    (GOOD[:-1] + b"\1", ErrorCode.CORRUPT_MESSAGE, "has CRC 0x"),
    (MESSAGE_V1, ErrorCode.INVALID_RECORD, "format v1"),
    (GOOD + GOOD, ErrorCode.INVALID_RECORD, "bytes follow the batch"),
    (changed(GOOD, base_offset=1), ErrorCode.INVALID_RECORD, "the base offset is 1"),
    (changed(GOOD, attributes=5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "unknown compression 5"),
    (changed(GOOD, attributes=8), ErrorCode.INVALID_TIMESTAMP, "LogAppendTime"),
    (
        encode_control_batch([ControlRecord(0, 0)], producer_id=1, producer_epoch=0),
        ErrorCode.INVALID_RECORD,
        "control records",
    ),
    (changed(GOOD, last_offset_delta=2), ErrorCode.INVALID_RECORD, "2 records, but"),
    (
        changed(batch(b"one", b"number two"), records_count=3, last_offset_delta=2),
        ErrorCode.INVALID_RECORD,
        r"records\[2\]: the bytes end",
    ),
    (
        changed(GOOD, records_count=1, last_offset_delta=0),
        ErrorCode.INVALID_RECORD,
        "after the last record",
    ),
    (
        changed(GOOD, records_count=2**31 - 1, last_offset_delta=2**31 - 2),
        ErrorCode.INVALID_RECORD,
        "20 bytes cannot contain 2147483647 records",
    ),
    (
        encode_batch([], last_offset_delta=0, base_offset=0),
        ErrorCode.INVALID_RECORD,
        "the batch has no records",
    ),
    (changed(GOOD, producer_id=4), ErrorCode.INVALID_RECORD, "producer 4 has epoch -1"),
    (changed(GOOD, attributes=16), ErrorCode.INVALID_RECORD, "has no producer id"),
    (
        batch(b"x", timestamp=NOW + 3_600_001),
        ErrorCode.INVALID_TIMESTAMP,
        "is not between",
    ),
    (with_body(b"\x0e\0\0\2\1\2x\0"), ErrorCode.INVALID_RECORD, "offset: 1, not 0"),
    (with_body(b"\x0e\0\0\0\1\2x\2"), ErrorCode.INVALID_RECORD, "headers"),
    (with_body(b"rubbish", compression=1), ErrorCode.INVALID_RECORD, "gzip"),
    (with_body(b"rubbish", compression=2), ErrorCode.INVALID_RECORD, "snappy"),
    (with_body(b"rubbish", compression=3), ErrorCode.INVALID_RECORD, "lz4"),
    (with_body(b"rubbish", compression=4), ErrorCode.INVALID_RECORD, "zstd"),
]


@pytest.mark.parametrize(
    ("data", "code", "text"), CASES, ids=[str(number) for number in range(len(CASES))]
)
def test_refusals_leave_nothing(setting: Setting, data: bytes, code: ErrorCode, text: str) -> None:
    log = setting.open()
    log.append(sent(1, 0))
    with refused(code, text):
        log.append(data)
    assert log.end_offset == 1
    assert log.size == len(sent(1, 0))
    log.append(sent(1, 1))
    assert [header.base_offset for header in headers_of(log)] == [0, 1]


def test_limits_of_size(setting: Setting) -> None:
    data = batch(b"x" * 100)
    log = setting.open(LogConfig(max_message_bytes=len(data)))
    log.append(data)
    log.update_config(LogConfig(max_message_bytes=len(data) - 1))
    with refused(ErrorCode.MESSAGE_TOO_LARGE, f"has {len(data)} bytes"):
        log.append(data)
    with refused(ErrorCode.MESSAGE_TOO_LARGE):
        log.append_records([Record(value=b"x" * 100)])
    log.update_config(LogConfig(segment_bytes=len(data) - 1))
    with refused(ErrorCode.RECORD_LIST_TOO_LARGE):
        log.append(data)
    # Large only when expanded by the topic's own compression.
    squeezed = batch(b"x" * 5000, compression=Compression.GZIP)
    log.update_config(LogConfig(max_message_bytes=1000))
    log.append(squeezed)
    log.update_config(LogConfig(max_message_bytes=1000, compression_type="uncompressed"))
    with refused(ErrorCode.MESSAGE_TOO_LARGE):
        log.append(squeezed)
    assert log.end_offset == 2


def test_a_batch_must_not_expand_without_limit(tmp_path: Path) -> None:
    log = Setting(tmp_path, bounds=Bounds(uncompressed=10_000)).open()
    for codec in (Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD):
        log.append(batch(bytes(9_000), compression=codec))
        with refused(ErrorCode.INVALID_RECORD, "max_uncompressed"):
            log.append(batch(bytes(11_000), compression=codec))


def test_compacted_topics_need_keys(setting: Setting) -> None:
    log = setting.open(LogConfig(cleanup_policy=frozenset({"compact"})))
    log.append(batch(b"x", key=b""))
    for codec in (0, 4):
        with refused(ErrorCode.INVALID_RECORD, "record 1: the record has no key"):
            log.append(encode_batch([Record(key=b"k"), Record()], compression=codec))


def test_invalid_records_are_looked_for_in_the_first_ones(setting: Setting) -> None:
    log = setting.open(
        LogConfig(cleanup_policy=frozenset({"compact"}), message_timestamp_before_max_ms=1000)
    )
    some = [Record(timestamp=NOW, key=b"k")] * MOST_INVALID_RECORDS
    log.append(encode_batch([*some, Record(timestamp=NOW, key=b"k")]))
    for last in (
        Record(timestamp=NOW),
        Record(timestamp=NOW + 3_600_001, key=b"k"),
        Record(timestamp=NOW - 1001, key=b"k"),
    ):
        with refused(ErrorCode.INVALID_RECORD, "after the first 10000 .* send smaller batches"):
            log.append(encode_batch([*some, last], compression=4))
    # One without a time is not invalid, but others may be.
    log.append(encode_batch([*some, Record(key=b"k")]))
    with refused(ErrorCode.INVALID_TIMESTAMP, f"the first is record {len(some)}: timestamp 0 is"):
        log.append(encode_batch([*some, Record(timestamp=0, key=b"k"), Record(key=b"k")]))
    assert log.end_offset == 2 * (len(some) + 1)


def test_times_that_are_too_far_away(setting: Setting) -> None:
    log = setting.open(
        LogConfig(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=10)
    )
    for timestamp in (NOW - 1000, NOW + 10, -1):
        log.append(batch(b"x", timestamp=timestamp))
    for timestamp in (NOW - 1001, NOW + 11, 0):
        with refused(ErrorCode.INVALID_TIMESTAMP):
            log.append(batch(b"x", timestamp=timestamp))
    log.append(encode_batch([Record(timestamp=-1), Record(timestamp=NOW)]))
    with refused(ErrorCode.INVALID_TIMESTAMP):
        log.append(encode_batch([Record(timestamp=-1), Record(timestamp=NOW - 1001)]))


def test_one_byte_changed_is_found(setting: Setting) -> None:
    """All but offset, length and leader epoch, which the broker writes, is covered by the CRC."""
    log = setting.open()
    for at in range(16, len(GOOD)):
        mutated = bytearray(GOOD)
        mutated[at] ^= 0x40
        with pytest.raises(ApiError):
            log.append(bytes(mutated))
    assert log.end_offset == 0
    assert log.size == 0


@settings(max_examples=150)
@given(
    body=st.binary(max_size=60),
    count=st.integers(-1, 5),
    attributes=st.integers(0, 127),
    offset=st.sampled_from([0, 0, 0, 7]),
)
def test_anything_with_a_right_crc_is_judged(
    body: bytes, count: int, attributes: int, offset: int
) -> None:
    data = with_body(body, count=max(count, 1), compression=attributes)
    data = changed(data, records_count=max(count, 0), base_offset=offset)
    try:
        header, sent_body = read_batch(data, LogConfig())
        stored = check(sent_body, header, LogConfig(), NOW)
    except ApiError:
        return
    assert read_batch(header.pack()[:21] + stored, LogConfig()) == (header, stored)


@pytest.mark.parametrize("make", [lambda: batch(b"x"), lambda: sent(3, 7, transactional=True)])
def test_what_a_batch_becomes_can_be_checked_again(make: Callable[[], bytes]) -> None:
    config = LogConfig(message_timestamp_type="LogAppendTime", compression_type="zstd")
    data = make()
    header, body = read_batch(data, config)
    stored = check(body, header, config, NOW)
    again, stored = read_batch(header.pack()[:21] + stored, config)
    assert again == header
    assert (again.timestamp_type, again.compression) == (
        TimestampType.LOG_APPEND_TIME,
        Compression.ZSTD,
    )
    assert check(stored, again, config, NOW) is stored
