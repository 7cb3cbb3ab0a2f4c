"""Record batches that are corrupt in one chosen way."""

from __future__ import annotations

from krammar.wire.batches.crc import sealed
from krammar.wire.batches.header import BODY_AT, CODEC, CRC_AT, HEADER_SIZE, read_headers
from krammar.wire.errors import DecodeError


def corrupt(records: bytes, kind: str) -> bytes:
    """Return record batches whose last one is corrupt. Bytes without a batch of format v2 are unchanged.

    Args:
        kind: ``crc`` for a wrong checksum; ``count`` for a header that counts one record more than the
            batch has; ``codec`` for a compression that does not exist. With ``count`` and ``codec``, the checksum is correct.
    """
    try:
        header = [h for h in read_headers(records) if h.magic == 2][-1]
    except (DecodeError, IndexError):
        return records
    begin, end = header.position, header.position + header.size_in_bytes
    batch = bytearray(records[begin:end])
    if kind == "crc":
        batch[CRC_AT[2]] ^= 0xFF
        return records[:begin] + bytes(batch) + records[end:]
    if kind == "count":
        header.records_count += 1
    else:
        header.attributes |= CODEC
    body = sealed(header, bytes(batch[HEADER_SIZE:]))  # it sets the header's checksum
    return records[:begin] + header.pack()[:BODY_AT] + body + records[end:]
