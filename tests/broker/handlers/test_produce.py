"""Produce: accepted and refused batches, their errors, and the files on the disk."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from kafka_wire import (
    AlterConfigOp,
    ConfigResourceType,
    ErrorCode,
    IncrementalAlterConfigsRequest,
    InitProducerIdRequest,
)

from krammar.broker import Broker
from krammar.broker.log.validation import MOST_INVALID_RECORDS
from krammar.wire.batches import (
    Compression,
    ControlRecord,
    ControlRecordType,
    Record,
    TimestampType,
    crc32c,
    encode_batch,
    encode_control_batch,
    read_batches,
)
from krammar.wire.batches.compression import compress, decompress
from tests.broker.requests import batch, create_topic, fetch, produce, produce_request
from tests.broker.support import RawClient


def result(client: RawClient, topic: str | UUID, records: bytes | None, version: int = 12) -> Any:
    response = client.call(produce_request(topic, records), version)
    return response.responses[0].partition_responses[0]


@pytest.mark.parametrize("version", range(14))
def test_every_version_appends(client: RawClient, version: int) -> None:
    topic_id = create_topic(client, "t")
    for expected in (0, 2):
        answer = result(client, topic_id if version >= 13 else "t", batch(b"a", b"b"), version)
        assert (answer.index, answer.error_code, answer.base_offset) == (0, 0, expected)
        assert answer.log_append_time_ms == -1
        assert answer.log_start_offset == (0 if version >= 5 else -1)


@pytest.mark.parametrize("compression", list(Compression))
def test_batches_are_kept_as_they_came(client: RawClient, compression: Compression) -> None:
    create_topic(client, "t")
    sent = batch(b"x" * 100, None, b"", compression=compression)
    assert result(client, "t", sent).error_code == 0
    assert result(client, "t", sent).base_offset == 3
    kept = fetch(client, "t").records
    assert len(kept) == 2 * len(sent)
    # All but offset and leader epoch, which the broker gives.
    assert kept[16 : len(sent)] == sent[16:]
    assert kept[8:12] == sent[8:12]
    assert [r.offset for b in read_batches(kept) for r in b] == [0, 1, 2, 3, 4, 5]


def test_the_file_holds_what_was_acknowledged(broker: Broker, client: RawClient) -> None:
    create_topic(client, "t", 2)
    assert produce(client, "t", batch(b"one"), partition=1).base_offset == 0
    data = (broker.config.log_dirs[0] / "t-1" / "00000000000000000000.log").read_bytes()
    assert data == fetch(client, "t", partition=1).records
    assert [record.value for b in read_batches(data) for record in b] == [b"one"]


def test_several_topics_and_partitions_in_one_request(client: RawClient) -> None:
    create_topic(client, "a", 2)
    create_topic(client, "b")
    request = produce_request("a", batch(b"0"), batch(b"1"), batch(b"2"))
    request.topic_data += produce_request("b", batch(b"3")).topic_data
    request.topic_data += produce_request("c", batch(b"4")).topic_data
    answers = [
        (topic.name, part.index, ErrorCode(part.error_code).name, part.base_offset)
        for topic in client.call(request, 11).responses
        for part in topic.partition_responses
    ]
    assert answers == [
        ("a", 0, "NONE", 0),
        ("a", 1, "NONE", 0),
        ("a", 2, "UNKNOWN_TOPIC_OR_PARTITION", -1),
        ("b", 0, "NONE", 0),
        ("c", 0, "UNKNOWN_TOPIC_OR_PARTITION", -1),
    ]


def test_an_unknown_topic_id(client: RawClient) -> None:
    answer = result(client, UUID(int=42), batch(b"x"), 13)
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("acks", [-1, 0, 1, 2, -2])
def test_acks(client: RawClient, acks: int) -> None:
    create_topic(client, "t")
    request = produce_request("t", batch(b"x"), acks=acks)
    if acks == 0:
        client.send(request, 9, expect_response=False)
        assert produce(client, "t", batch(b"y")).base_offset == 1
        return
    answer = client.call(request, 9).responses[0].partition_responses[0]
    good = acks in (-1, 1)
    assert answer.error_code == (ErrorCode.NONE if good else ErrorCode.INVALID_REQUIRED_ACKS)
    assert answer.base_offset == (0 if good else -1)


def test_internal_topics_are_not_for_producers(client: RawClient) -> None:
    create_topic(client, "__consumer_offsets")
    answer = result(client, "__consumer_offsets", batch(b"x"))
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_log_append_time(client: RawClient) -> None:
    create_topic(client, "t", message_timestamp_type="LogAppendTime")
    answer = result(client, "t", batch(b"x", b"y"))
    assert answer.log_append_time_ms > 1_700_000_000_000
    (kept,) = read_batches(fetch(client, "t").records)
    assert kept.timestamp_type == TimestampType.LOG_APPEND_TIME
    assert {record.timestamp for record in kept} == {answer.log_append_time_ms}


# Old formats


def message(magic: int) -> bytes:
    import zlib

    body = struct.pack(">bb", magic, 0) + (struct.pack(">q", 1) if magic else b"")
    body += struct.pack(">i", -1) + struct.pack(">i", 5) + b"hello"
    return struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("version", [0, 1, 2, 3, 7, 8, 12])
def test_old_formats_are_refused(client: RawClient, magic: int, version: int) -> None:
    create_topic(client, "t")
    answer = result(client, "t", message(magic), version)
    expected = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT if version < 3 else ErrorCode.INVALID_RECORD
    assert (answer.error_code, answer.base_offset) == (expected, -1)
    if version >= 8:
        assert "magic" in answer.error_message
    assert fetch(client, "t").high_watermark == 0


def test_zstd_needs_version_7(client: RawClient) -> None:
    create_topic(client, "t")
    data = batch(b"x" * 1000, compression=Compression.ZSTD)
    assert result(client, "t", data, 6).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert result(client, "t", data, 7).error_code == ErrorCode.NONE


TEXT = b"".join(b"%d " % (at * at) for at in range(20_000))


@pytest.mark.parametrize(
    ("codec", "level", "stands_for"),
    [
        ("gzip", None, -1),
        ("gzip", 1, 1),
        ("gzip", 9, 9),
        ("lz4", None, None),
        ("lz4", 3, 3),
        ("lz4", 9, None),  # Kafka's default is its fast compressor
        ("zstd", None, 3),
        ("zstd", -5, -5),
        ("zstd", 19, 19),
    ],
)
@pytest.mark.parametrize("of_broker", [True, False])
def test_levels_of_compression(
    client: RawClient, codec: str, level: int | None, stands_for: int | None, of_broker: bool
) -> None:
    configs = {} if level is None else {f"compression_{codec}_level": str(level)}
    if of_broker:
        set_broker_configs(client, {name.replace("_", "."): text for name, text in configs.items()})
        configs = {}
    create_topic(client, "t", compression_type=codec, **configs)
    assert result(client, "t", batch(TEXT)).error_code == 0
    stored = fetch(client, "t").records
    plain = batch(TEXT)[61:]
    assert decompress(stored[61:], Compression[codec.upper()]) == plain
    assert stored[61:] == compress(plain, Compression[codec.upper()], stands_for)


def set_broker_configs(client: RawClient, configs: dict[str, str]) -> None:
    request = IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsRequest.AlterConfigsResource(
                resource_type=ConfigResourceType.BROKER,
                resource_name="",
                configs=[
                    IncrementalAlterConfigsRequest.AlterableConfig(
                        name=name, config_operation=AlterConfigOp.SET, value=value
                    )
                    for name, value in configs.items()
                ],
            )
        ]
    )
    assert [each.error_code for each in client.call(request).responses] == [0]


# Batches that are wrong


def patched(change: Callable[[bytearray], None], data: bytes | None = None) -> bytes:
    """Return a changed batch with a valid CRC."""
    buffer = bytearray(batch(b"one", b"two") if data is None else data)
    change(buffer)
    struct.pack_into(">I", buffer, 17, crc32c(bytes(buffer[21:])))
    return bytes(buffer)


def put(form: str, offset: int, value: int) -> Callable[[bytearray], None]:
    return lambda buffer: struct.pack_into(form, buffer, offset, value)


GOOD = batch(b"one", b"two")
WRONG = {
    "none": (None, ErrorCode.INVALID_RECORD),
    "empty": (b"", ErrorCode.INVALID_RECORD),
    "two batches": (GOOD + GOOD, ErrorCode.INVALID_RECORD),
    "crc": (GOOD[:-1] + b"\x01", ErrorCode.CORRUPT_MESSAGE),
    "cut": (GOOD[:-3], ErrorCode.CORRUPT_MESSAGE),
    "cut in the header": (GOOD[:40], ErrorCode.CORRUPT_MESSAGE),
    "one byte": (b"\0", ErrorCode.CORRUPT_MESSAGE),
    "length too small": (GOOD[:8] + struct.pack(">i", 10) + GOOD[12:], ErrorCode.CORRUPT_MESSAGE),
    "count too large": (patched(put(">i", 57, 3)), ErrorCode.INVALID_RECORD),
    "count too small": (patched(put(">i", 57, 1)), ErrorCode.INVALID_RECORD),
    "count negative": (patched(put(">i", 57, -1)), None),
    "last offset delta": (patched(put(">i", 23, 7)), ErrorCode.INVALID_RECORD),
    "unknown codec": (patched(put(">h", 21, 6)), None),
    "gzip that is none": (patched(put(">h", 21, 1)), None),
    "record that is cut": (patched(lambda b: put(">b", 61, 0x7E)(b)), ErrorCode.INVALID_RECORD),
    "control batch": (
        encode_control_batch(
            [ControlRecord(ControlRecordType.COMMIT, 0)], producer_id=1, producer_epoch=0
        ),
        ErrorCode.INVALID_RECORD,
    ),
    "epoch negative": (batch(b"x", producer_id=3, producer_epoch=-1, base_sequence=0), None),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_batch_is_refused_and_leaves_no_trace(client: RawClient, name: str) -> None:
    data, code = WRONG[name]
    create_topic(client, "t")
    assert produce(client, "t", GOOD).error_code == 0
    answer = result(client, "t", data)
    assert answer.error_code != 0
    if code is not None:
        assert ErrorCode(answer.error_code) is code
    assert answer.base_offset == -1
    after = fetch(client, "t")
    assert after.high_watermark == 2
    assert len(after.records) == len(GOOD)
    assert produce(client, "t", GOOD).base_offset == 2


def test_a_batch_over_the_limit(client: RawClient) -> None:
    create_topic(client, "t", max_message_bytes="2000")
    assert result(client, "t", batch(bytes(3000))).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert result(client, "t", batch(bytes(1000))).error_code == 0


def test_a_compacted_topic_needs_keys(client: RawClient) -> None:
    create_topic(client, "t", cleanup_policy="compact")
    answer = result(client, "t", batch(b"no key"))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    keyed = encode_batch([Record(timestamp=1, key=b"k", value=b"v")])
    assert result(client, "t", keyed).error_code == 0


HOUR = 3_600_000


@pytest.mark.parametrize("version", [3, 7, 8, 9, 12, 13])
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP])
def test_each_invalid_record_is_listed_with_its_index(
    client: RawClient, compression: Compression, version: int
) -> None:
    topic_id = create_topic(client, "t", cleanup_policy="compact")
    keys = [b"k", None, b"", None, None]
    records = [Record(timestamp=-1, key=key) for key in keys]
    data = encode_batch(records, compression=compression)
    answer = result(client, topic_id if version >= 13 else "t", data, version)
    assert answer.error_code == ErrorCode.INVALID_RECORD
    if version < 8:
        return  # the response has no place for them
    assert [each.batch_index for each in answer.record_errors] == [1, 3, 4]
    assert all("no key" in each.batch_index_error_message for each in answer.record_errors)
    assert answer.error_message.startswith("3 of 5 records are invalid; the first is record 1: ")
    assert fetch(client, "t").high_watermark == 0


def test_records_with_invalid_timestamps_are_listed(client: RawClient) -> None:
    create_topic(client, "t", message_timestamp_before_max_ms=str(24 * HOUR))
    now = time.time_ns() // 1_000_000
    times = [now, now + 2 * HOUR, -1, now - 25 * HOUR, now - HOUR]
    records = [Record(timestamp=timestamp, value=b"v") for timestamp in times]
    answer = result(client, "t", encode_batch(records))
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [each.batch_index for each in answer.record_errors] == [1, 3]
    for each in answer.record_errors:
        text = each.batch_index_error_message
        assert f"timestamp {times[each.batch_index]} is not between" in text


def test_an_invalid_timestamp_decides_the_code_of_a_batch(client: RawClient) -> None:
    create_topic(client, "t", cleanup_policy="compact")
    late = time.time_ns() // 1_000_000 + 2 * HOUR
    records = [Record(timestamp=-1), Record(timestamp=late, key=b"k"), Record(timestamp=late)]
    answer = result(client, "t", encode_batch(records))
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    texts = [each.batch_index_error_message for each in answer.record_errors]
    assert ["no key" in text for text in texts] == [True, False, True]


@pytest.mark.parametrize("name", WRONG)
def test_an_error_of_the_whole_batch_lists_no_record(client: RawClient, name: str) -> None:
    create_topic(client, "t")
    assert result(client, "t", WRONG[name][0]).record_errors == []


def test_a_response_lists_a_bounded_number_of_records(client: RawClient) -> None:
    create_topic(client, "t", 2, cleanup_policy="compact")
    data = encode_batch([Record(timestamp=-1)] * 8000, compression=Compression.GZIP)
    response = client.call(produce_request("t", data, data), 12)
    first, second = response.responses[0].partition_responses
    assert len(first.record_errors) == 8000
    assert len(second.record_errors) == MOST_INVALID_RECORDS - 8000
    assert second.error_message.startswith("8000 of 8000 records are invalid")


# Idempotence (KIP-98)


def producer_id(client: RawClient) -> int:
    response = client.call(
        InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0), 5
    )
    assert response.error_code == 0
    return int(response.producer_id)


def test_a_repeated_batch_is_written_once(client: RawClient) -> None:
    create_topic(client, "t")
    producer = producer_id(client)

    def send(sequence: int, *values: bytes, epoch: int = 0) -> tuple[str, int]:
        answer = result(
            client,
            "t",
            batch(*values, producer_id=producer, producer_epoch=epoch, base_sequence=sequence),
        )
        return ErrorCode(answer.error_code).name, answer.base_offset

    assert send(0, b"a", b"b") == ("NONE", 0)
    assert send(2, b"c") == ("NONE", 2)
    assert send(0, b"a", b"b") == ("NONE", 0)
    assert send(2, b"c") == ("NONE", 2)
    assert send(4, b"gap") == ("OUT_OF_ORDER_SEQUENCE_NUMBER", -1)
    assert send(3, b"d") == ("NONE", 3)
    assert send(0, b"e", epoch=1) == ("NONE", 4)
    assert send(4, b"late") == ("INVALID_PRODUCER_EPOCH", -1)
    assert fetch(client, "t").high_watermark == 5


def test_only_the_last_five_batches_are_known_again(client: RawClient) -> None:
    create_topic(client, "t")
    producer = producer_id(client)

    def send(sequence: int) -> Any:
        return result(
            client,
            "t",
            batch(b"x", producer_id=producer, producer_epoch=0, base_sequence=sequence),
        )

    for sequence in range(7):
        assert send(sequence).base_offset == sequence
    for sequence in range(2, 7):
        assert send(sequence).base_offset == sequence
    assert send(1).error_code != 0
    assert fetch(client, "t").high_watermark == 7
