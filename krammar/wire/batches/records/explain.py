"""Returns precise errors for records that a loop of this package has refused.

``origin`` is the position of ``buf`` in its message, or None if the records were compressed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from krammar.wire.batches.records.model import INT32_MAX, INT64_MAX, INT64_MIN, Record
from krammar.wire.errors import DecodeError, EncodeError
from krammar.wire.layout.types import list_fault
from krammar.wire.primitives import Malformed, as_bytes, as_list, varint, varlong

# A check only searches the first records and headers for an error, 1 to 3 µs each: a broker has other clients.
EXPLAINED = 20_000


def explain_read(buf: bytes, pos: int, count: int, first: int, origin: int | None) -> DecodeError:
    """Return the error in ``count`` records at ``pos``. ``first`` is the number of the first record."""
    walk = _RecordWalk(buf, pos, origin)
    try:
        for index in range(first, first + count):
            walk.record(index)
    except DecodeError as error:
        return error
    return DecodeError(f"records[{first}]: cannot be decoded", path=f"records[{first}]")


def explain_check(buf: bytes, pos: int, count: int, origin: int | None) -> DecodeError:
    """Return the error in ``count`` records that must fill ``buf`` from ``pos`` on.

    The error has no position if it is after the first ``EXPLAINED`` records and headers.
    """
    walk = _RecordWalk(buf, pos, origin, EXPLAINED)
    try:
        for index in range(count):
            at = walk.pos
            offset = walk.record(index)
            if offset != index:
                walk.path = f"records[{index}].offset"
                raise walk.fault(f"{offset}, not {index}, from the batch's base offset", at)
        if walk.pos != len(buf):
            walk.path = f"records[{count}]"
            raise walk.fault(f"{len(buf) - walk.pos} bytes after the last record", walk.pos)
    except DecodeError as error:
        return error
    except _TooFarError:
        text = f"records: a record after the first {EXPLAINED} records and headers is invalid"
        return DecodeError(text, path="records")
    return DecodeError("records: cannot be decoded", path="records", offset=pos)


class _TooFarError(Exception):
    """The search for an error ends without a result."""


class _RecordWalk:
    """Reads records field by field. ``path`` is the current field, for errors."""

    def __init__(self, buf: bytes, pos: int, origin: int | None, most: int | None = None) -> None:
        self.buf = buf
        self.pos = pos
        self.origin = origin
        self.path = ""
        self.left = most  # the number of records and headers that may be read, or None

    def fault(self, text: str, at: int) -> DecodeError:
        if self.origin is None:
            place, offset = f"byte {at} of the uncompressed records", -1
        else:
            offset = at + self.origin
            place = f"offset {offset}"
        return DecodeError(
            f"{self.path}: {text.format(place=place)}", path=self.path, offset=offset
        )

    def number(self, read: Callable[[bytes, int], tuple[int, int]], path: str) -> int:
        self.path = path
        try:
            value, self.pos = read(self.buf, self.pos)
        except IndexError:
            raise self.fault("the bytes end in a number at {place}", self.pos) from None
        except Malformed:
            raise self.fault("number too large at {place}", self.pos) from None
        return value

    def chunk(self, path: str, nullable: bool = True) -> bytes:
        at = self.pos
        size = self.number(varint, path)
        if size < 0:
            if size == -1 and nullable:
                return b""
            raise self.fault(f"length of {size} at {{place}}", at)
        left = len(self.buf) - self.pos
        if size > left:
            raise self.fault(f"needs {size} bytes at {{place}}, {left} left", self.pos)
        self.pos += size
        return self.buf[self.pos - size : self.pos]

    def count_down(self, size: int) -> None:
        if self.left is not None:
            self.left -= size
            if self.left < 0:
                raise _TooFarError

    def record(self, index: int) -> int:
        """Read one record. Returns its offset as the difference from the base offset. Raises DecodeError."""
        self.count_down(1)
        record = f"records[{index}]"
        at = self.pos
        size = self.number(varint, record)
        start = self.pos
        left = len(self.buf) - start
        if not 0 <= size <= left:
            raise self.fault(f"needs {size} bytes at {{place}}, {left} left", start)
        self.pos += 1
        self.number(varlong, f"{record}.timestamp")
        offset = self.number(varint, f"{record}.offset")
        self.chunk(f"{record}.key")
        self.chunk(f"{record}.value")
        at_headers = self.pos
        headers = self.number(varint, f"{record}.headers")
        left = len(self.buf) - self.pos
        if not 0 <= headers <= left // 2:
            raise self.fault(f"{headers} headers at {{place}}, {left} bytes left", at_headers)
        for i in range(headers):
            self.count_down(1)
            self.chunk(f"{record}.headers[{i}].key", nullable=False)
            self.chunk(f"{record}.headers[{i}].value")
        if self.pos - start != size:
            self.path = record
            raise self.fault(f"says {size} bytes at {{place}} but has {self.pos - start}", at)
        return offset


def explain_write(records: Sequence[Any], base_offset: int, base_timestamp: int) -> EncodeError:
    """Return the error in ``records``, which cannot be encoded."""
    path = ""

    def fault(field: str, text: str) -> EncodeError:
        where = path + field
        return EncodeError(f"{where}: {text}", path=where)

    def check_int64(field: str, value: Any) -> None:
        if not isinstance(value, int):
            raise fault(field, f"needs an int, not {kind_of(value)}")
        if not INT64_MIN <= value <= INT64_MAX:
            raise fault(field, f"{value} is not within 64 bits")

    def check_bytes(field: str, value: Any) -> None:
        try:
            size = 0 if value is None else len(as_bytes(value))
        except Malformed:
            raise fault(field, f"needs bytes or None, not {kind_of(value)}") from None
        if size > INT32_MAX:
            raise fault(field, f"{size} bytes are too many for its length field")

    def check_list(field: str, value: Any) -> None:
        try:
            as_list(value)
        except Malformed:
            raise fault(field, list_fault(value, kind_of(value))) from None

    try:
        check_list("records", records)
    except EncodeError as error:
        return error
    last = -1
    for index, record in enumerate(records):
        path = f"records[{index}]"
        try:
            if not isinstance(record, Record):
                raise fault("", f"needs a Record, not {kind_of(record)}")
            check_int64(".offset", record.offset)
            delta = last + 1 if record.offset == -1 else record.offset - base_offset
            if delta < 0:
                raise fault(".offset", f"{record.offset} is before base_offset, {base_offset}")
            if delta <= last:
                raise fault(
                    ".offset",
                    f"{record.offset} is not higher than that of the previous record, {base_offset + last}",
                )
            if delta > INT32_MAX or base_offset + delta > INT64_MAX:
                raise fault(".offset", f"too far from base_offset, {base_offset}")
            last = delta
            check_int64(".timestamp", record.timestamp)
            if not INT64_MIN <= record.timestamp - base_timestamp <= INT64_MAX:
                raise fault(
                    ".timestamp",
                    f"{record.timestamp} is too far from base_timestamp, {base_timestamp}",
                )
            check_bytes(".key", record.key)
            check_bytes(".value", record.value)
            check_list(".headers", record.headers)
            for i, header in enumerate(record.headers):
                field = f".headers[{i}]"
                if not isinstance(header, (tuple, list)) or len(header) != 2:
                    raise fault(field, "needs a pair of str and bytes or None")
                if not isinstance(header[0], str):
                    raise fault(f"{field}.key", f"needs a str, not {kind_of(header[0])}")
                try:
                    header[0].encode()
                except UnicodeEncodeError:
                    raise fault(f"{field}.key", "cannot be written as UTF-8") from None
                check_bytes(f"{field}.value", header[1])
        except EncodeError as error:
            return error
    return EncodeError("records: too large for a batch", path="records")


def kind_of(value: object) -> str:
    return "None" if value is None else type(value).__name__
