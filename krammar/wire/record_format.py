"""Records, and the sequence of them inside a record batch of format v2 (KIP-82, KIP-98).

A record is its own length, an unused attributes byte, a timestamp and an offset as differences to
those of its batch, key, value and headers; all numbers are zig-zag varints.

Both directions have one loop that does everything in line and only notices that something is
wrong. What is wrong, and where, is found by a second, plain walk over the same input.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import repeat
from typing import TYPE_CHECKING, Any

from krammar.wire.errors import DecodeError, EncodeError
from krammar.wire.primitives import (
    FAILURES,
    Malformed,
    as_bytes,
    as_list,
    encode_varint,
    encode_varlong,
    varint,
    varlong,
)

if TYPE_CHECKING:
    from typing import TypeAlias

    Header: TypeAlias = tuple[str, bytes | None]
    Octets: TypeAlias = bytes | bytearray | memoryview

# No record is smaller: its length, attributes and five numbers of one byte each.
MIN_RECORD_SIZE = 7

INT32_MAX = 0x7FFFFFFF
INT64_MIN = -0x8000000000000000
INT64_MAX = 0x7FFFFFFFFFFFFFFF


def compiled() -> Any:
    """The compiled form of the loops of this module, or None. It raises one of ``FAILURES`` where
    something is wrong, or is more than it takes: then the pure form goes over the same again."""
    global _compiled
    if _compiled is _UNKNOWN:
        from krammar.wire.native import records

        _compiled = records()
    return _compiled


_UNKNOWN = object()
_compiled: Any = _UNKNOWN


class Record:
    """One record: what a producer sends and a consumer gets.

    ``offset``     in its partition; -1 to write it behind its predecessor
    ``timestamp``  in milliseconds since 1970; -1 if it has none
    ``key``, ``value``  bytes or None
    ``headers``    list of (str, bytes or None)
    """

    # The list of headers is made when it is asked for: most records have none, and a batch of
    # records costs the garbage collector half as much without it (decoding it takes 10% less).
    __slots__ = ("_headers", "key", "offset", "timestamp", "value")
    __match_args__ = ("offset", "timestamp", "key", "value", "headers")
    __hash__ = None  # type: ignore[assignment]

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    _headers: list[Header] | None

    def __init__(
        self,
        offset: int = -1,
        timestamp: int = -1,
        key: bytes | None = None,
        value: bytes | None = None,
        headers: list[Header] | None = None,
    ) -> None:
        self.offset = offset
        self.timestamp = timestamp
        self.key = key
        self.value = value
        self._headers = headers

    @property
    def headers(self) -> list[Header]:
        headers = self._headers
        if headers is None:
            headers = self._headers = []
        return headers

    @headers.setter
    def headers(self, headers: list[Header] | None) -> None:
        self._headers = headers

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record):
            return NotImplemented
        return (
            self.offset == other.offset
            and self.timestamp == other.timestamp
            and self.key == other.key
            and self.value == other.value
            and (self._headers or []) == (other._headers or [])
        )

    def __repr__(self) -> str:
        return (
            f"Record(offset={self.offset!r}, timestamp={self.timestamp!r}, key={self.key!r},"
            f" value={self.value!r}, headers={self.headers!r})"
        )


class Columns:
    """Records by column, as they are decoded.

    Making records of columns afterwards takes no longer than making them one by one (0.75 µs a
    record either way), so one loop serves those who want records and those who want Arrow.
    ``headers`` has only the rows that have headers.
    """

    __slots__ = ("headers", "keys", "offsets", "timestamps", "values")

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.timestamps: list[int] = []
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.headers: dict[int, list[Header]] = {}

    def __len__(self) -> int:
        return len(self.values)

    def records(self) -> list[Record]:
        headers = map(self.headers.get, range(len(self))) if self.headers else repeat(None)
        return list(map(Record, self.offsets, self.timestamps, self.keys, self.values, headers))

    def clear(self) -> None:
        for column in (self.offsets, self.timestamps, self.keys, self.values, self.headers):
            column.clear()


# Decoding.


def read_records(
    buf: bytes,
    pos: int,
    count: int,
    base_offset: int,
    base_timestamp: int,
    appended_at: int | None = None,
    first: int = 0,
    origin: int | None = 0,
) -> tuple[list[Record], int]:
    """The ``count`` records at ``pos``, and the position behind them.

    ``appended_at`` is the timestamp of all of them, None if they have their own; ``first`` and
    ``origin`` as ``decode_records`` has them. Raises DecodeError.
    """
    native = compiled()
    if native is not None:
        own = appended_at is None
        timestamp = base_timestamp if own else appended_at
        try:
            read: tuple[list[Record], int] = native.decode_records(
                Record, buf, pos, count, base_offset, timestamp, own
            )
            return read
        except FAILURES:
            pass
    columns = Columns()
    end = decode_records(columns, buf, pos, count, base_offset, base_timestamp, first, origin)
    if appended_at is not None:
        columns.timestamps = [appended_at] * count
    return columns.records(), end


# The first byte of a varint is looked up: the number if it is the whole of one that is
# not negative or -1 (null), -2 if more bytes of a positive number follow, -3 for all else.
FIRST_BYTES = [
    -1 if byte == 1 else -3 if byte & 1 else -2 if byte > 127 else byte >> 1 for byte in range(256)
]
# The low bits of a positive number of several bytes. Those of further bytes are added by
# multiplication and without taking their highest bits away, which is done once, by a constant.
# CPython has fast paths for + and * of small integers and for subscripts of lists, but none for
# shifts and masks: 0.80 µs a record against 0.85 with them.
LOW_BITS = [(byte & 127) >> 1 for byte in range(256)]


def decode_records(
    columns: Columns,
    buf: bytes,
    pos: int,
    count: int,
    base_offset: int,
    base_timestamp: int,
    first: int = 0,
    origin: int | None = 0,
) -> int:
    """Append the ``count`` records at ``pos`` to ``columns``. Returns the position behind them.

    ``first`` is the number of the first of them in its batch and ``origin`` the position of ``buf``
    in its message, None if it is not a part of it (but was compressed); both are for errors.
    Raises DecodeError; ``columns`` is not to be used then.
    """
    try:
        return _decode_records(columns, buf, pos, count, base_offset, base_timestamp)
    except FAILURES:
        raise _decode_fault(buf, pos, count, first, origin) from None


def _decode_records(
    columns: Columns, buf: bytes, pos: int, count: int, base_offset: int, base_timestamp: int
) -> int:
    # No slice is compared with what is left before it is taken: one that is cut short by the
    # buffer's end leaves `pos` behind that end, where the next subscript fails.
    offsets = columns.offsets
    timestamps = columns.timestamps
    keys = columns.keys
    values = columns.values
    with_headers = columns.headers
    # One str for all headers of one name, as records mostly have the same: faster, and smaller.
    names: dict[bytes, str] = {}
    first = FIRST_BYTES
    low = LOW_BITS
    base_offset_3 = base_offset - 8192
    size = len(buf)
    for _ in repeat(None, count):
        # length, attributes
        byte = buf[pos]
        n = first[byte]
        if n >= 0:
            end = pos + n + 1
            pos += 2
        elif n == -2 and (byte_2 := buf[pos + 1]) < 128:
            end = pos + byte_2 * 64 + low[byte] + 2
            pos += 3
        else:
            n, pos = varint(buf, pos)
            end = pos + n
            pos += 1

        # timestamp
        byte = buf[pos]
        n = first[byte]
        if n >= 0:
            timestamps.append(base_timestamp + n)
            pos += 1
        elif n == -2 and (byte_2 := buf[pos + 1]) < 128:
            timestamps.append(byte_2 * 64 + low[byte] + base_timestamp)
            pos += 2
        else:
            n, pos = varlong(buf, pos)
            timestamps.append(base_timestamp + n)

        # offset
        byte = buf[pos]
        n = first[byte]
        if n >= 0:
            offsets.append(base_offset + n)
            pos += 1
        elif n != -2:
            n, pos = varint(buf, pos)
            offsets.append(base_offset + n)
        elif (byte_2 := buf[pos + 1]) < 128:
            offsets.append(byte_2 * 64 + low[byte] + base_offset)
            pos += 2
        elif (byte_3 := buf[pos + 2]) < 128:
            offsets.append((byte_3 * 128 + byte_2) * 64 + low[byte] + base_offset_3)
            pos += 3
        else:
            n, pos = varint(buf, pos)
            offsets.append(base_offset + n)

        # key
        n = first[buf[pos]]
        pos += 1
        if n >= 0:
            stop = pos + n
            keys.append(buf[pos:stop])
            pos = stop
        elif n == -1:
            keys.append(None)
        else:
            n, pos = varint(buf, pos - 1)
            if n >= 0:
                stop = pos + n
                keys.append(buf[pos:stop])
                pos = stop
            elif n == -1:
                keys.append(None)
            else:
                raise Malformed

        # value
        byte = buf[pos]
        n = first[byte]
        pos += 1
        if n >= 0:
            stop = pos + n
            values.append(buf[pos:stop])
            pos = stop
        elif n == -1:
            values.append(None)
        elif n == -2 and (byte_2 := buf[pos]) < 128:
            pos += 1
            stop = byte_2 * 64 + low[byte] + pos
            values.append(buf[pos:stop])
            pos = stop
        else:
            n, pos = varint(buf, pos - 1)
            if n >= 0:
                stop = pos + n
                values.append(buf[pos:stop])
                pos = stop
            elif n == -1:
                values.append(None)
            else:
                raise Malformed

        # headers
        byte = buf[pos]
        pos += 1
        if byte:
            n = first[byte]
            if n < 0:
                n, pos = varint(buf, pos - 1)
                if n < 0:
                    raise Malformed
            headers: list[Header] = []
            left = n
            while left:
                left -= 1
                n = first[buf[pos]]
                pos += 1
                if n < 0:
                    n, pos = varint(buf, pos - 1)
                    if n < 0:
                        raise Malformed
                stop = pos + n
                raw = buf[pos:stop]
                try:
                    name = names[raw]
                except KeyError:
                    name = names[raw] = raw.decode()
                n = first[buf[stop]]
                pos = stop + 1
                if n < -1:
                    n, pos = varint(buf, stop)
                if n >= 0:
                    stop = pos + n
                    headers.append((name, buf[pos:stop]))
                    pos = stop
                elif n == -1:
                    headers.append((name, None))
                else:
                    raise Malformed
            if pos > size:
                raise Malformed
            with_headers[len(values) - 1] = headers
        if pos != end:
            raise Malformed
    return pos


def _decode_fault(buf: bytes, pos: int, count: int, first: int, origin: int | None) -> DecodeError:
    """What is wrong with the records at ``pos``."""
    path = ""

    def fault(text: str, at: int) -> DecodeError:
        if origin is None:
            place = f"byte {at} of the uncompressed records"
        else:
            at += origin
            place = f"offset {at}"
        return DecodeError(
            f"{path}: {text.format(place=place)}",
            path=path,
            offset=-1 if origin is None else at,
        )

    def number(read: Any, name: str) -> int:
        nonlocal path, pos
        path = f"{record}{name}"
        try:
            value, pos = read(buf, pos)
        except IndexError:
            raise fault("the bytes end in a number at {place}", pos) from None
        except Malformed:
            raise fault("number too large at {place}", pos) from None
        return int(value)

    def chunk(name: str, nullable: bool = True) -> bytes:
        nonlocal pos
        at = pos
        size = number(varint, name)
        if size < 0:
            if size == -1 and nullable:
                return b""
            raise fault(f"length of {size} at {{place}}", at)
        if size > len(buf) - pos:
            raise fault(f"needs {size} bytes at {{place}}, {len(buf) - pos} left", pos)
        pos += size
        return buf[pos - size : pos]

    try:
        for index in range(first, first + count):
            record = f"records[{index}]"
            at = pos
            size = number(varint, "")
            start = pos
            if not 0 <= size <= len(buf) - pos:
                raise fault(f"needs {size} bytes at {{place}}, {len(buf) - pos} left", pos)
            pos += 1
            number(varlong, ".timestamp")
            number(varint, ".offset")
            chunk(".key")
            chunk(".value")
            at_headers = pos
            headers = number(varint, ".headers")
            if not 0 <= headers <= (len(buf) - pos) // 2:
                raise fault(
                    f"{headers} headers at {{place}}, {len(buf) - pos} bytes left", at_headers
                )
            for i in range(headers):
                at_key = pos
                try:
                    chunk(f".headers[{i}].key", nullable=False).decode()
                except UnicodeDecodeError:
                    raise fault("not UTF-8 at {place}", at_key) from None
                chunk(f".headers[{i}].value")
            if pos - start != size:
                path = record
                raise fault(f"says {size} bytes at {{place}} but has {pos - start}", at)
    except DecodeError as error:
        return error
    return DecodeError(f"records[{first}]: cannot be decoded", path=f"records[{first}]")


def check_records(buf: bytes, pos: int, count: int, origin: int | None = 0) -> tuple[int, int, int]:
    """Walk ``count`` records, which have to fill ``buf`` from ``pos`` to its end, as a broker has to
    before it stores what a producer sent: lengths, and offsets that count up from 0.

    Returns the lowest and the highest timestamp, as differences to the batch's, and the number of a
    record without a key, -1 if there is none. Nothing is decoded; names of headers may be any bytes.
    ``origin`` as in ``decode_records``. Raises DecodeError.
    """
    native = compiled()
    if native is not None:
        try:
            found: tuple[int, int, int] = native.check(buf, pos, count)
            return found
        except FAILURES:
            pass
    try:
        return _check_records(buf, pos, count)
    except FAILURES:
        raise _check_fault(buf, pos, count, origin) from None


def _check_records(buf: bytes, pos: int, count: int) -> tuple[int, int, int]:
    lowest = INT64_MAX
    highest = INT64_MIN
    without_key = -1
    index = 0
    step = 16
    most = 64
    while index < count:
        # Often records in a row are alike but for their content: of 100 bytes, 0.02 us a record then
        # (0.12 in runs of 50, between which the timestamp changes), against 0.42 one by one.
        left = count - index
        if left >= 8:
            run, length, n, keyless = _alike(buf, pos, index, min(left, most))
            if run:
                pos += run * length
                index += run
                if n > highest:
                    highest = n
                if n < lowest:
                    lowest = n
                if keyless:
                    without_key = index - 1
                if run >= 32:
                    step = 16
                    most = most * 2 if run == most else 64
                    continue
        most = 64
        # The more often they are not alike, the longer it is until they are compared again.
        end = min(index + step, count)
        pos, low, high, keyless_index = _check_each(buf, pos, index, end)
        index = end
        step = min(step * 2, 1024)
        if high > highest:
            highest = high
        if low < lowest:
            lowest = low
        if keyless_index >= 0:
            without_key = keyless_index
    if pos != len(buf):
        raise Malformed
    return lowest, highest, without_key


# Offsets of records as they are written, by the byte: below 8192 in two bytes, behind in three.
_OFFSETS = 8192


@cache
def _offset_bytes() -> tuple[bytes, bytes, bytes]:
    numbers = range(_OFFSETS)
    return (
        bytes((n & 63) << 1 | 128 for n in numbers),
        bytes(n >> 6 for n in numbers),
        bytes(n >> 6 | 128 for n in numbers),
    )


def _alike(buf: bytes, pos: int, index: int, limit: int) -> tuple[int, int, int, bool]:
    """How many records from ``pos`` on, up to ``limit``, are right and alike: same sizes, same
    timestamp, no headers. Then the bytes that each takes, its timestamp, and whether it has no key.

    The same byte of all of them is one slice, with their length as its step.
    """
    start = pos
    none = 0, 0, 0, False
    size, pos = varint(buf, pos)
    length = pos + size - start
    if index < 64:
        limit = min(limit, 64 - index)
    else:
        limit = min(limit, _OFFSETS - index % _OFFSETS)
    if size < MIN_RECORD_SIZE - 1 or index >= 128 * _OFFSETS:
        return none
    limit = min(limit, (len(buf) - start) // length)
    if limit < 8:
        return none
    timestamp_at = pos + 1  # no bit of the attributes is in use
    timestamp, offset_at = varlong(buf, timestamp_at)
    offset, key_at = varint(buf, offset_at)
    key_size, pos = varint(buf, key_at)
    key_end = pos
    if key_size > 0:
        pos += key_size
    value_at = pos
    value_size, pos = varint(buf, pos)
    value_end = pos
    if value_size > 0:
        pos += value_size
    if offset != index or pos != start + length - 1 or key_size < -1 or value_size < -1:
        return none

    same = [
        *range(start, timestamp_at - 1),
        *range(timestamp_at, offset_at),
        *range(key_at, key_end),
        *range(value_at, value_end),
    ]
    low, high, high_and_more = _offset_bytes()
    first = index % _OFFSETS
    rising: list[tuple[int, bytes]] = []
    if index < 64:
        if key_at - offset_at != 1:
            return none
        rising.append((offset_at, bytes(range(index * 2, (index + limit) * 2, 2))))
    elif index < _OFFSETS:
        if key_at - offset_at != 2:
            return none
        rising += [(offset_at, low), (offset_at + 1, high)]
    else:
        if key_at - offset_at != 3:
            return none
        rising += [(offset_at, low), (offset_at + 1, high_and_more)]
        same.append(offset_at + 2)
    same.append(pos)
    if buf[pos]:
        return none
    for at in same:
        column = buf[at : at + limit * length : length][:limit]
        byte = buf[at : at + 1]
        limit -= len(column.lstrip(byte))
        if limit < 8:
            return none
    for at, expected in rising:
        column = buf[at : at + limit * length : length][:limit]
        begin = 0 if index < 64 else first
        if column != expected[begin : begin + limit]:
            return none
    return limit, length, timestamp, key_size == -1


def _check_each(buf: bytes, pos: int, begin: int, stop: int) -> tuple[int, int, int, int]:
    """Position behind records ``begin`` to before ``stop``, their lowest and highest timestamps, and
    the number of one without a key."""
    first = FIRST_BYTES
    low = LOW_BITS
    lowest = INT64_MAX
    highest = INT64_MIN
    before = None
    without_key = -1
    for index in range(begin, stop):
        # length, attributes
        byte = buf[pos]
        n = first[byte]
        if n >= 0:
            end = pos + n + 1
            pos += 2
        elif n == -2 and (byte_2 := buf[pos + 1]) < 128:
            end = pos + byte_2 * 64 + low[byte] + 2
            pos += 3
        else:
            n, pos = varint(buf, pos)
            end = pos + n
            pos += 1

        # timestamp
        byte = buf[pos]
        n = first[byte]
        if n >= 0:
            pos += 1
        elif n == -2 and (byte_2 := buf[pos + 1]) < 128:
            n = byte_2 * 64 + low[byte]
            pos += 2
        else:
            n, pos = varlong(buf, pos)
        if n != before:
            before = n
            if n > highest:
                highest = n
            if n < lowest:
                lowest = n

        # offset
        byte = buf[pos]
        n = first[byte]
        if n >= 0:
            pos += 1
        elif n == -2 and (byte_2 := buf[pos + 1]) < 128:
            n = byte_2 * 64 + low[byte]
            pos += 2
        else:
            n, pos = varint(buf, pos)
        if n != index:
            raise Malformed

        # key
        n = first[buf[pos]]
        if n >= 0:
            pos += n + 1
        elif n == -1:
            without_key = index
            pos += 1
        else:
            n, pos = varint(buf, pos)
            if n >= 0:
                pos += n
            elif n == -1:
                without_key = index
            else:
                raise Malformed

        # value
        byte = buf[pos]
        n = first[byte]
        if n >= 0:
            pos += n + 1
        elif n == -2 and (byte_2 := buf[pos + 1]) < 128:
            pos += byte_2 * 64 + low[byte] + 2
        elif n == -1:
            pos += 1
        else:
            n, pos = varint(buf, pos)
            if n >= 0:
                pos += n
            elif n != -1:
                raise Malformed

        # headers
        if buf[pos]:
            pos = _skip_headers(buf, pos, end)
        else:
            pos += 1
        if pos != end:
            raise Malformed
    return pos, lowest, highest, without_key


def _skip_headers(buf: bytes, pos: int, end: int) -> int:
    count, pos = varint(buf, pos)
    if not 0 <= count <= (end - pos) // 2:
        raise Malformed
    for _ in repeat(None, count):
        n, pos = varint(buf, pos)
        if n < 0:
            raise Malformed
        n, pos = varint(buf, pos + n)
        if n > 0:
            pos += n
        elif n < -1:
            raise Malformed
    return pos


def _check_fault(buf: bytes, pos: int, count: int, origin: int | None) -> DecodeError:
    """What is wrong with the records that are to fill ``buf`` from ``pos`` on."""
    start = pos
    columns = Columns()
    for index in range(count):
        at = pos
        try:
            pos = _decode_records(columns, buf, pos, 1, 0, 0)
        except FAILURES:
            fault = _decode_fault(buf, at, 1, index, origin)
            # Not UTF-8 is no fault here.
            if not fault.path.endswith("].key") or "UTF-8" not in fault.args[0]:
                return fault
            length, body = varint(buf, at)
            pos = body + length
            columns.offsets.append(_offset_delta(buf, body))
        if columns.offsets[-1] != index:
            path = f"records[{index}].offset"
            return DecodeError(
                f"{path}: {columns.offsets[-1]}, not {index}, from the batch's base offset",
                path=path,
                offset=-1 if origin is None else at + origin,
            )
        columns.clear()
    if pos != len(buf):
        path = f"records[{count}]"
        return DecodeError(
            f"{path}: {len(buf) - pos} bytes behind the last record",
            path=path,
            offset=-1 if origin is None else pos + origin,
        )
    return DecodeError("records: cannot be decoded", path="records", offset=start)


def _offset_delta(buf: bytes, body: int) -> int:
    _, pos = varlong(buf, body + 1)
    return varint(buf, pos)[0]


# Encoding.
_TABLE_SIZE = 16384


@cache
def _varints() -> list[bytes]:
    """The varints of 0 to 16383: lengths, and offsets in all but the largest batches.

    A subscript against 0.3 µs for a call; made at first use, in 3 ms.
    """
    return [
        *[bytes((low,)) for low in range(0, 128, 2)],
        *[bytes((low, high)) for high in range(1, 128) for low in range(128, 256, 2)],
        *[bytes((low, high, 1)) for high in range(128, 256) for low in range(128, 256, 2)],
    ]


def encode_records(
    records: Sequence[Record], base_offset: int, base_timestamp: int
) -> tuple[bytes, int, int]:
    """The bytes of ``records``, with the last one's distance from ``base_offset`` and the latest
    timestamp. There must be one record at least. Raises EncodeError."""
    native = compiled()
    if native is not None:
        try:
            made: tuple[bytes, int, int] = native.encode(
                Record, records, base_offset, base_timestamp
            )
            return made
        except FAILURES:
            pass
    try:
        return _encode_records(records, base_offset, base_timestamp)
    except FAILURES:
        raise _encode_fault(records, base_offset, base_timestamp) from None


def _encode_records(
    records: Sequence[Record], base_offset: int, base_timestamp: int
) -> tuple[bytes, int, int]:
    table = _varints()
    size = _TABLE_SIZE
    join = b"".join
    encode = str.encode
    names: dict[str, Octets] = {}  # encoded names of headers, with their lengths
    out: list[bytes] = []
    last = -1
    max_timestamp = records[0].timestamp
    timestamp: int | None = None
    for record in records:
        offset = record.offset
        if offset == -1:
            last += 1
        else:
            offset -= base_offset
            if offset <= last:
                raise Malformed
            last = offset

        # Often the same for many records in a row.
        if record.timestamp != timestamp:
            timestamp = record.timestamp
            if timestamp > max_timestamp:
                max_timestamp = timestamp
            n = timestamp - base_timestamp
            if 0 <= n < size:
                prefix = b"\0" + table[n]
            else:
                if timestamp < INT64_MIN:
                    raise Malformed
                prefix = b"\0" + encode_varlong(n)

        key: Octets | None = record.key
        if key is None:
            key = b""
            key_size = b"\1"
        else:
            if key.__class__ is not bytes:
                key = as_bytes(key)
            n = len(key)
            key_size = table[n] if n < size else encode_varint(n)

        value: Octets | None = record.value
        if value is None:
            value = b""
            value_size = b"\1"
        else:
            if value.__class__ is not bytes:
                value = as_bytes(value)
            n = len(value)
            value_size = table[n] if n < size else encode_varint(n)

        # Joined for its length first and then again into the whole: 0.24 µs a record, with sums
        # of lengths instead 0.29, growing one bytearray 0.33.
        if record._headers:
            headers = as_list(record._headers)
            parts: list[Octets] = [
                prefix,
                table[last] if last < size else encode_varint(last),
                key_size,
                key,
                value_size,
                value,
                table[len(headers)] if len(headers) < size else encode_varint(len(headers)),
            ]
            for name, content in headers:
                try:
                    parts.append(names[name])
                except KeyError:
                    raw = encode(name)
                    parts.append(encode_varint(len(raw)) + raw)
                    names[name] = parts[-1]
                if content is None:
                    parts.append(b"\1")
                else:
                    if content.__class__ is not bytes:
                        content = as_bytes(content)
                    n = len(content)
                    parts.append(table[n] if n < size else encode_varint(n))
                    parts.append(content)
            body = join(parts)
        else:
            body = join(
                (
                    prefix,
                    table[last] if last < size else encode_varint(last),
                    key_size,
                    key,
                    value_size,
                    value,
                    b"\0",
                )
            )
        n = len(body)
        out.append(table[n] if n < size else encode_varint(n))
        out.append(body)
    if max_timestamp > INT64_MAX or base_offset + last > INT64_MAX:
        raise Malformed
    return join(out), last, max_timestamp


def _encode_fault(records: Sequence[Any], base_offset: int, base_timestamp: int) -> EncodeError:
    """What is wrong with ``records``."""
    path = ""

    def fault(field: str, text: str) -> EncodeError:
        where = path + field
        return EncodeError(f"{where}: {text}", path=where)

    def check_int64(field: str, value: Any) -> None:
        if not isinstance(value, int):
            raise fault(field, f"needs an int, not {_kind(value)}")
        if not INT64_MIN <= value <= INT64_MAX:
            raise fault(field, f"{value} is not within 64 bits")

    def check_bytes(field: str, value: Any) -> None:
        try:
            size = 0 if value is None else len(as_bytes(value))
        except Malformed:
            raise fault(field, f"needs bytes or None, not {_kind(value)}") from None
        if size > INT32_MAX:
            raise fault(field, f"{size} bytes are too many for its length field")

    last = -1
    for index, record in enumerate(records):
        path = f"records[{index}]"
        try:
            if not isinstance(record, Record):
                raise fault("", f"needs a Record, not {_kind(record)}")
            check_int64(".offset", record.offset)
            delta = last + 1 if record.offset == -1 else record.offset - base_offset
            if delta < 0:
                raise fault(".offset", f"{record.offset} is before base_offset, {base_offset}")
            if delta <= last:
                raise fault(
                    ".offset",
                    f"{record.offset} is not behind its predecessor's, {base_offset + last}",
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
            if not isinstance(record.headers, (list, tuple)):
                raise fault(".headers", f"needs a list, not {_kind(record.headers)}")
            for i, header in enumerate(record.headers):
                field = f".headers[{i}]"
                if not isinstance(header, (tuple, list)) or len(header) != 2:
                    raise fault(field, "needs a pair of str and bytes or None")
                if not isinstance(header[0], str):
                    raise fault(f"{field}.key", f"needs a str, not {_kind(header[0])}")
                try:
                    header[0].encode()
                except UnicodeEncodeError:
                    raise fault(f"{field}.key", "cannot be written as UTF-8") from None
                check_bytes(f"{field}.value", header[1])
        except EncodeError as error:
            return error
    return EncodeError("records: too large to be carried", path="records")


def _kind(value: object) -> str:
    return "None" if value is None else type(value).__name__
