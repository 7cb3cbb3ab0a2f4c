"""What a batch from a client has to be before it is stored, and how it is stored.

Mostly it is stored as it came: with its offsets, and with nothing else changed, so that no record is
decoded or encoded. Errors are Kafka's.
"""

from __future__ import annotations

from kafka_wire import ErrorCode

from krammar.broker.errors import ApiError
from krammar.broker.storage.headers import (
    CODEC,
    CRC_COVERS_FROM,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    SIZE_END,
    header_at,
)
from krammar.broker.storage.log_config import LogConfig
from krammar.wire.compression import DEFAULT_MAX_UNCOMPRESSED, Compression, decompress
from krammar.wire.errors import WireError
from krammar.wire.record_format import MIN_RECORD_SIZE, check_records
from krammar.wire.records import BatchHeader, RecordBatch, crc32c, encode_batch, read_batches

CODECS = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}


def read_header(batch: bytes, config: LogConfig) -> BatchHeader:
    """The header of the one batch that ``batch`` has to be, with a CRC that is right. Raises ApiError."""
    size = len(batch)
    if size < 17:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{size} bytes are no record batch")
    magic = batch[16]
    if magic < 2:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"messages of format v{magic} are not stored any more, only record batches v2",
        )
    header = header_at(batch, 0, 0)
    if header is None or header.size_in_bytes > size:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"no whole record batch in {size} bytes")
    if header.size_in_bytes < size:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"{size - header.size_in_bytes} bytes behind the batch: there has to be exactly one",
        )
    if size > config.max_message_bytes:
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {size} bytes, more than max.message.bytes, {config.max_message_bytes}",
        )
    if size > config.segment_bytes:
        raise ApiError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"the batch has {size} bytes, more than segment.bytes, {config.segment_bytes}",
        )
    # The slice is a copy, 30 us for 1 MB; the C function takes nothing but whole bytes objects.
    crc = crc32c(batch[CRC_COVERS_FROM:])
    if crc != header.crc:
        raise ApiError(
            ErrorCode.CORRUPT_MESSAGE,
            f"the batch has CRC {header.crc:#010x}, but its bytes have {crc:#010x}",
        )
    return header


def _invalid(text: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_RECORD, text)


def check(
    batch: bytes,
    header: BatchHeader,
    config: LogConfig,
    now_ms: int,
    max_uncompressed: int = DEFAULT_MAX_UNCOMPRESSED,
) -> bytes:
    """The batch as it is to be stored, offsets aside; ``header`` is changed along with it.
    Raises ApiError."""
    _check_header(header)
    codec = header.attributes & CODEC
    count = header.records_count
    try:
        if codec:
            expanded = decompress(
                memoryview(batch)[HEADER_SIZE:], codec, max_uncompressed=max_uncompressed
            )
            if count > len(expanded) // MIN_RECORD_SIZE:
                raise _invalid(f"{count} records in {len(expanded)} bytes")
            lowest, highest, without_key = check_records(expanded, 0, count, None)
        else:
            if count > (len(batch) - HEADER_SIZE) // MIN_RECORD_SIZE:
                raise _invalid(f"{count} records in {len(batch) - HEADER_SIZE} bytes")
            lowest, highest, without_key = check_records(batch, HEADER_SIZE, count)
    except WireError as error:
        raise _invalid(str(error)) from None
    if without_key >= 0 and config.compacts:
        raise _invalid(f"record {without_key} has no key, which records of a compacted topic need")
    batch = _with_timestamps(batch, header, config, now_ms, lowest, highest)
    wanted = CODECS.get(config.compression_type)
    if wanted is not None and wanted != codec:
        batch = _with_compression(batch, header, wanted, max_uncompressed)
        if len(batch) > config.max_message_bytes:
            raise ApiError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"the batch has {len(batch)} bytes with the topic's compression, more than"
                f" max.message.bytes, {config.max_message_bytes}",
            )
    return batch


def _check_header(header: BatchHeader) -> None:
    if header.base_offset:
        raise _invalid(f"base offset {header.base_offset}; producers have to send 0")
    if header.is_control:
        raise _invalid("clients must not write control records")
    if header.attributes & CODEC > Compression.ZSTD:
        raise ApiError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"there is no compression {header.attributes & CODEC}",
        )
    if header.records_count < 1:
        raise _invalid("a batch without records")
    if header.last_offset_delta != header.records_count - 1:
        raise _invalid(
            f"{header.records_count} records, but the last one's offset is"
            f" {header.last_offset_delta} behind the first"
        )
    if header.producer_id >= 0:
        if header.base_sequence < 0 or header.producer_epoch < 0:
            raise _invalid(
                f"producer {header.producer_id} with epoch {header.producer_epoch} and sequence"
                f" {header.base_sequence}"
            )
    elif header.is_transactional:
        raise _invalid("a transactional batch without a producer id")


def _with_timestamps(
    batch: bytes, header: BatchHeader, config: LogConfig, now_ms: int, lowest: int, highest: int
) -> bytes:
    """Check the records' timestamps, or give them the log's (KIP-32)."""
    attributes = header.attributes
    if config.message_timestamp_type == "LogAppendTime":
        attributes |= LOG_APPEND_TIME
        latest = now_ms
    else:
        if attributes & LOG_APPEND_TIME:
            raise ApiError(
                ErrorCode.INVALID_TIMESTAMP, "producers must not set timestamps of LogAppendTime"
            )
        earliest = header.base_timestamp + lowest
        latest = header.base_timestamp + highest
        if latest - now_ms > config.message_timestamp_after_max_ms or (
            now_ms - earliest > config.message_timestamp_before_max_ms
            and _too_early(batch, now_ms - config.message_timestamp_before_max_ms)
        ):
            raise ApiError(
                ErrorCode.INVALID_TIMESTAMP,
                f"timestamps from {earliest} to {latest} are not within"
                f" {config.message_timestamp_before_max_ms} ms before and"
                f" {config.message_timestamp_after_max_ms} ms after the broker's time, {now_ms}",
            )
    if latest == header.max_timestamp and attributes == header.attributes:
        return batch
    header.max_timestamp = latest
    header.attributes = attributes
    return with_header(batch, header)


def _too_early(batch: bytes, earliest: int) -> bool:
    """Whether a record is from before ``earliest``; those without a time do not count."""
    try:
        return any(-1 != record.timestamp < earliest for record in one_batch(batch))
    except WireError:  # names of headers that are not UTF-8, which otherwise do not matter
        return True


def with_header(batch: bytes, header: BatchHeader) -> bytes:
    """The batch with the fields of ``header``, and with a CRC over them, which is put there too."""
    rest = batch[HEADER_SIZE:]
    header.crc = crc32c(rest, crc32c(pack_header(header)[CRC_COVERS_FROM:]))
    return pack_header(header) + rest


def pack_header(header: BatchHeader) -> bytes:
    return HEADER.pack(
        header.base_offset,
        header.batch_length,
        header.partition_leader_epoch,
        header.magic,
        header.crc,
        header.attributes,
        header.last_offset_delta,
        header.base_timestamp,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.records_count,
    )


def one_batch(data: bytes, max_uncompressed: int = DEFAULT_MAX_UNCOMPRESSED) -> RecordBatch:
    """The batch that ``data`` begins with. Raises DecodeError."""
    return next(read_batches(data, validate_crc=False, max_uncompressed=max_uncompressed))


def _with_compression(
    batch: bytes, header: BatchHeader, codec: Compression, max_uncompressed: int
) -> bytes:
    """The same records, compressed as the topic wants it."""
    try:
        records = one_batch(batch, max_uncompressed).records()
        encoded = encode_batch(
            records,
            compression=codec,
            base_offset=header.base_offset,
            last_offset_delta=header.last_offset_delta,
            timestamp_type=header.timestamp_type,
            base_timestamp=header.base_timestamp,
            max_timestamp=header.max_timestamp,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            is_transactional=header.is_transactional,
        )
    except WireError as error:  # names of headers that are not UTF-8
        raise _invalid(str(error)) from None
    changed = header_at(encoded, 0, 0)
    assert changed is not None
    header.batch_length = len(encoded) - SIZE_END
    header.attributes = changed.attributes
    header.crc = changed.crc
    return encoded
