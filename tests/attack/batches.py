"""Record batches that are small on the wire and expensive to read, and that encode_batch does not build."""

from __future__ import annotations

from krammar.wire.batches import Record, encode_batch
from krammar.wire.batches.compression import compress
from krammar.wire.batches.crc import sealed
from krammar.wire.batches.header import BODY_AT, header_at
from krammar.wire.primitives import encode_varint


def raw_batch(records: bytes, count: int, codec: int = 0) -> bytes:
    """A batch with these bytes as its records, compressed with ``codec``."""
    header = header_at(encode_batch([Record(value=b"x")]), 0, 0)
    assert header is not None
    content = compress(records, codec)
    header.records_count = count
    header.last_offset_delta = count - 1
    header.attributes = codec
    header.batch_length = 49 + len(content)
    body = sealed(header, content)
    return header.pack()[:BODY_AT] + body


def with_headers(number: int) -> bytes:
    """A record with this number of empty headers."""
    body = b"\0\0\0\1\1" + encode_varint(number) + b"\0\0" * number
    return encode_varint(len(body)) + body


def with_value(size: int) -> bytes:
    """A record of this number of zero bytes."""
    body = b"\0\0\0\1" + encode_varint(size) + bytes(size) + b"\0"
    return encode_varint(len(body)) + body


def empty_records(number: int) -> bytes:
    """Records without key and value, with offsets that count up."""
    out = []
    for index in range(number):
        offset = encode_varint(index)
        out.append(encode_varint(5 + len(offset)) + b"\0\0" + offset + b"\1\1\0")
    return b"".join(out)
