"""The CRC of a batch, without a copy of all of it."""

from __future__ import annotations

import zlib
from collections.abc import Callable

from krammar.wire.errors import CorruptRecordError
from krammar.wire.records import BatchHeader, crc32c

# google-crc32c takes nothing but bytes. A copy of so few stays in the processor's cache, and in memory that
# is at hand: a third of the time that a copy of 1 MiB takes.
_PIECE = 1 << 16
# Where what the CRC covers begins, and where the CRC itself stands: of message sets, and of format v2.
_COVERED = (16, 16, 21)
_PLACE = (12, 12, 17)


def check_crc(data: memoryview, header: BatchHeader) -> None:
    """Raises CorruptRecordError if the batch at ``header.position`` of ``data`` has another CRC than its
    header says. Messages inside a compressed message set are not looked at."""
    position = header.position
    if header.magic > 1:
        extend: Callable[[bytes, int], int] = crc32c
    else:
        extend = zlib.crc32
    kind = min(header.magic, 2)
    end = position + header.size_in_bytes
    crc = 0
    for begin in range(position + _COVERED[kind], end, _PIECE):
        crc = extend(bytes(data[begin : min(begin + _PIECE, end)]), crc)
    if crc != header.crc:
        raise CorruptRecordError(
            f"batch at offset {position}: CRC {header.crc:#010x}, but its bytes have {crc:#010x}",
            path="crc",
            offset=position + _PLACE[kind],
        )
