"""Validates batches from clients before they are stored.

Usually only the offsets of a batch change, so no record is encoded again. The error codes are
Kafka's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from kafka_wire import ErrorCode

from krammar.broker.errors import ApiError, InvalidRecords
from krammar.broker.log.log_config import LogConfig
from krammar.wire.batches import BatchHeader
from krammar.wire.batches.bounds import Bounds, default_bounds
from krammar.wire.batches.compression import Compression, compress_in_pieces, decompress
from krammar.wire.batches.crc import crc32c, sealed
from krammar.wire.batches.header import (
    BODY_AT,
    CODEC,
    LOG_APPEND_TIME,
    MAGIC_AT,
    RECORDS_IN_BODY,
    SIZE_END,
    header_at,
)
from krammar.wire.batches.records.check import check_records
from krammar.wire.batches.records.model import MIN_RECORD_SIZE
from krammar.wire.errors import BatchLimitError, WireError
from krammar.wire.primitives import varint, varlong

if TYPE_CHECKING:
    from krammar.wire.batches.compression import Data

CODECS = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}

# Invalid records are only searched in the first records of a batch, 3 µs each, because a small
# compressed batch can contain millions. By default, batches of librdkafka have at most this number
# of records.
MOST_INVALID_RECORDS = 10_000

# Batches up to these limits take less than 50 ms, so they are checked on the event loop.
QUICK = Bounds(uncompressed=2 << 20, records=20_000, headers=50_000)
# Up to this size in bytes, records are compressed on the event loop (zstd's highest level takes 10
# ms).
QUICKLY_COMPRESSED = 256 << 10
# Up to this size in bytes, a batch is copied and its CRC computed on the event loop: 100 MB take 70
# ms.
QUICKLY_READ = 4 << 20


class LongCheck(Exception):
    """A batch takes too long to check on the event loop.

    Attributes:
        run: checks it in any thread, and returns its header and the body to store; raises ApiError
    """

    def __init__(self, run: Callable[[], tuple[BatchHeader, bytes]]) -> None:
        super().__init__("the batch takes long to check")
        self.run = run


def _quick(bounds: Bounds) -> Bounds:
    global _last_quick
    before, found = _last_quick
    # Hashing the limits for a cache would take longer.
    if before is not bounds:
        found = replace(
            bounds,
            uncompressed=min(QUICK.uncompressed, bounds.uncompressed),
            records=min(QUICK.records, bounds.records),
            headers=min(QUICK.headers, bounds.headers),
        )
        _last_quick = bounds, found
    return found


_last_quick = QUICK, QUICK


def read_batch(batch: Data, config: LogConfig) -> tuple[BatchHeader, bytes]:
    """Split exactly one batch into its header and a copy of its body, and check sizes and CRC. Raises ApiError."""
    size = len(batch)
    if size <= MAGIC_AT:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{size} bytes are not a record batch")
    magic = batch[MAGIC_AT]
    if magic < 2:
        raise _invalid(f"message format v{magic} is no longer supported; send record batches v2")
    header = header_at(batch, 0, 0)
    if header is None or header.size_in_bytes > size:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{size} bytes contain no complete record batch")
    if header.size_in_bytes < size:
        rest = size - header.size_in_bytes
        raise _invalid(f"{rest} bytes follow the batch; exactly one batch is allowed")
    if size > config.max_message_bytes:
        raise too_large(size, config)
    if size > config.segment_bytes:
        raise ApiError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"the batch has {size} bytes, but segment.bytes is {config.segment_bytes}",
        )
    body = bytes(batch[BODY_AT:])
    crc = crc32c(body)
    if crc != header.crc:
        raise ApiError(
            ErrorCode.CORRUPT_MESSAGE,
            f"the batch has CRC {header.crc:#010x}, but its bytes have {crc:#010x}",
        )
    return header, body


def read_and_check(
    batch: Data,
    config: LogConfig,
    now_ms: int,
    bounds: Bounds | None = None,
) -> tuple[BatchHeader, bytes]:
    """Read and check a batch in one step. Raises ApiError."""
    parts: list[Any] = [*read_batch(batch, config)]
    header = parts[0]
    # Nothing here refers to the body any more, so that compressing it can free it.
    return header, check(parts.pop(), header, config, now_ms, bounds)


def too_large(size: int, config: LogConfig, reason: str = "") -> ApiError:
    """Return the error for a batch that is larger than the topic allows."""
    limit = config.max_message_bytes
    text = f"the batch has {size} bytes{reason}, but max.message.bytes is {limit}"
    return ApiError(ErrorCode.MESSAGE_TOO_LARGE, text)


def _invalid(text: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_RECORD, text)


def check(
    body: bytes,
    header: BatchHeader,
    config: LogConfig,
    now_ms: int,
    bounds: Bounds | None = None,
    *,
    quick: bool = False,
) -> bytes:
    """Check the records of a batch, and return the body to store.

    Args:
        header: updated if the body changes
        now_ms: milliseconds since 1970
        bounds: the limits of the batch, by default those of the environment
        quick: whether the caller can continue a long check in a thread

    Raises:
        ApiError: the batch is refused.
        LongCheck: the check takes long; only if it is to be ``quick``.
    """
    if bounds is None:
        bounds = default_bounds()
    _check_header(header, config)
    limits = _quick(bounds) if quick else bounds
    codec = header.attributes & CODEC
    count = header.records_count
    records, start = body, RECORDS_IN_BODY
    try:
        if codec:
            compressed = memoryview(body)[start:]
            records, start = decompress(compressed, codec, bounds=limits), 0
        else:
            # Once it is compressed, readers would refuse a larger one.
            bounds.check_size(len(body) - start)
        if count > (len(records) - start) // MIN_RECORD_SIZE:
            raise _invalid(f"{len(records) - start} bytes cannot contain {count} records")
        lowest, highest, without_key = check_records(
            records, start, count, None if codec else BODY_AT, limits
        )
    except BatchLimitError as error:
        if quick:
            raise _long(body, header, config, now_ms, bounds) from None
        raise _invalid(str(error)) from None
    except WireError as error:
        raise _invalid(str(error)) from None
    wanted = CODECS.get(config.compression_type, codec)
    if quick and wanted not in (codec, Compression.NONE) and len(records) > QUICKLY_COMPRESSED:
        raise _long(body, header, config, now_ms, bounds)
    earliest = header.base_timestamp + lowest
    latest = header.base_timestamp + highest
    own_times = config.message_timestamp_type != "LogAppendTime"
    wrong = (without_key >= 0 and config.compacts) or (
        own_times and latest - now_ms > config.message_timestamp_after_max_ms
    )
    early = own_times and now_ms - earliest > config.message_timestamp_before_max_ms
    if wrong or early:
        # -1 means no timestamp, which is never too early.
        _check_each(records, start, header, config, now_ms, certain=wrong or earliest != -1)
    body = _with_timestamps(body, header, config, now_ms, latest)
    if wanted != codec:
        view = memoryview(records)[start:]
        del records, body
        body = _with_compression(view, header, wanted, config)
        if header.size_in_bytes > config.max_message_bytes:
            raise too_large(header.size_in_bytes, config, " with the topic's compression")
    return body


def _long(
    body: bytes, header: BatchHeader, config: LogConfig, now_ms: int, bounds: Bounds
) -> LongCheck:
    def run() -> tuple[BatchHeader, bytes]:
        return header, check(body, header, config, now_ms, bounds)

    return LongCheck(run)


def _check_header(header: BatchHeader, config: LogConfig) -> None:
    if header.base_offset:
        raise _invalid(f"the base offset is {header.base_offset}, but must be 0")
    if header.is_control:
        raise _invalid("clients must not write control records")
    if header.attributes & CODEC > Compression.ZSTD:
        raise ApiError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"unknown compression {header.attributes & CODEC}",
        )
    if header.attributes & LOG_APPEND_TIME and config.message_timestamp_type != "LogAppendTime":
        raise ApiError(
            ErrorCode.INVALID_TIMESTAMP, "producers must not set timestamps of LogAppendTime"
        )
    if header.records_count < 1:
        raise _invalid("the batch has no records")
    if header.last_offset_delta != header.records_count - 1:
        raise _invalid(
            f"the batch has {header.records_count} records, but its last offset delta is"
            f" {header.last_offset_delta}"
        )
    if header.producer_id >= 0:
        if header.base_sequence < 0 or header.producer_epoch < 0:
            raise _invalid(
                f"producer {header.producer_id} has epoch {header.producer_epoch} and sequence"
                f" {header.base_sequence}; both must be 0 or more"
            )
    elif header.is_transactional:
        raise _invalid("the batch is transactional, but has no producer id")


def _check_each(
    records: bytes,
    start: int,
    header: BatchHeader,
    config: LogConfig,
    now_ms: int,
    *,
    certain: bool,
) -> None:
    """Raise InvalidRecords with all records that Kafka's LogValidator refuses, if there are any.

    Args:
        certain: whether there are any. If none is among the first records, ApiError is raised.
    """
    count = min(header.records_count, MOST_INVALID_RECORDS) if certain else header.records_count
    found = _invalid_records(records, start, count, header.base_timestamp, config, now_ms)
    invalid = list(islice(found, MOST_INVALID_RECORDS))
    if not invalid:
        if certain:
            raise _invalid(
                f"a record after the first {count} has no key, or a timestamp that the topic does not"
                " allow; send smaller batches to find it"
            )
        return
    # There is one code for all records. As in Kafka, an invalid timestamp takes precedence.
    codes = [code for _, code, _ in invalid]
    has_time = ErrorCode.INVALID_TIMESTAMP in codes
    code = ErrorCode.INVALID_TIMESTAMP if has_time else ErrorCode.INVALID_RECORD
    index, _, text = invalid[0]
    more = " or more" if len(invalid) == MOST_INVALID_RECORDS else ""
    raise InvalidRecords(
        code,
        f"{len(invalid)}{more} of {header.records_count} records are invalid; the first is record"
        f" {index}: {text}",
        [(index, text) for index, _, text in invalid],
    )


def _invalid_records(
    records: bytes, start: int, count: int, base_timestamp: int, config: LogConfig, now_ms: int
) -> Iterator[tuple[int, ErrorCode, str]]:
    """Yield the index, the error and its text of each invalid record. The records must be valid as bytes."""
    needs_key = config.compacts
    earliest = now_ms - config.message_timestamp_before_max_ms
    latest = now_ms + config.message_timestamp_after_max_ms
    own_times = config.message_timestamp_type != "LogAppendTime"
    end = start
    for index in range(count):
        length, at = varint(records, end)
        end = at + length
        delta, at = varlong(records, at + 1)
        _, at = varint(records, at)
        timestamp = base_timestamp + delta
        if needs_key and varint(records, at)[0] < 0:
            text = "the record has no key, which records of a compacted topic need"
            yield index, ErrorCode.INVALID_RECORD, text
        elif own_times and timestamp != -1 and not earliest <= timestamp <= latest:
            text = (
                f"timestamp {timestamp} is not between {max(earliest, 0)} and {latest}, the limits by the"
                " topic's message.timestamp.before.max.ms and message.timestamp.after.max.ms"
            )
            yield index, ErrorCode.INVALID_TIMESTAMP, text


def _with_timestamps(
    body: bytes, header: BatchHeader, config: LogConfig, now_ms: int, latest: int
) -> bytes:
    """Set the maximum timestamp, and with LogAppendTime the append time (KIP-32)."""
    attributes = header.attributes
    if config.message_timestamp_type == "LogAppendTime":
        attributes |= LOG_APPEND_TIME
        latest = now_ms
    if latest == header.max_timestamp and attributes == header.attributes:
        return body
    header.max_timestamp = latest
    header.attributes = attributes
    return sealed(header, memoryview(body)[RECORDS_IN_BODY:])


def _with_compression(
    records: memoryview, header: BatchHeader, codec: int, config: LogConfig
) -> bytes:
    """Compress the records with the topic's codec, and free them. Their bytes are the same with every codec."""
    compressed = compress_in_pieces(records, codec, config.compression_level)
    records.release()
    header.batch_length = BODY_AT + RECORDS_IN_BODY + sum(map(len, compressed)) - SIZE_END
    header.attributes = header.attributes & ~CODEC | codec
    return sealed(header, *compressed)
