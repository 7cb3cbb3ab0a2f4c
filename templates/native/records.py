"""What mypyc compiles for record batches of format v2; see krammar.wire.batches.records and krammar.wire.batches.arrow.

Whatever is not right raises, without a word: the pure form then walks the same bytes and says what is
wrong. Positions and sizes are compared with what is there before anything is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from librt.strings import BytesWriter

from krammar.wire.primitives import Malformed

if TYPE_CHECKING:
    import krammar_ops as ops
    from mypy_extensions import i64

INT32_MAX: i64 = 0x7FFFFFFF
# A first pass over the records finds their numbers, and the positions of keys and values. Then keys and values
# are copied to columns of known size. This takes 0.1 µs per record of 100 bytes; growing columns take 0.14 µs.


def long_number(buf: bytes, pos: i64) -> tuple[i64, i64]:
    size = ops.varint_size_at(buf, pos, 64)
    if size < 0:
        raise Malformed
    value: i64 = 0
    i: i64
    for i in range(size):
        value |= (ops.byte_at(buf, pos + i) & 127) << (7 * i)
    # Shift without the sign: the number has none before the zig-zag is decoded.
    return ((value >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(value & 1), pos + size


def number(buf: bytes, pos: i64) -> tuple[i64, i64]:
    """Return a zig-zag varint of 64 bits, and the position after it."""
    if pos < len(buf):
        byte = ops.byte_at(buf, pos)
        if byte < 128:
            return (byte >> 1) ^ -(byte & 1), pos + 1
        if pos + 1 < len(buf):
            more = ops.byte_at(buf, pos + 1)
            if more < 128:
                value = (byte & 127) | (more << 7)
                return (value >> 1) ^ -(value & 1), pos + 2
    return long_number(buf, pos)


def length(buf: bytes, pos: i64) -> tuple[i64, i64]:
    """Return a zig-zag varint of 32 bits, and the position after it."""
    value, behind = number(buf, pos)
    if behind - pos > 5 or value > 0x7FFFFFFF or value < -0x80000000:
        raise Malformed
    return value, behind


def chunk(buf: bytes, pos: i64) -> tuple[i64, i64]:
    """Return the length at ``pos``, which is -1 for null, and the position after it."""
    size, pos = length(buf, pos)
    if size < -1 or size > len(buf) - pos:
        raise Malformed
    return size, pos


def skip_headers(buf: bytes, pos: i64, count: i64) -> i64:
    if count < 0 or count > (len(buf) - pos) >> 1:
        raise Malformed
    for _ in range(count):
        size, pos = chunk(buf, pos)
        if size < 0:
            raise Malformed
        size, pos = chunk(buf, pos + size)
        if size > 0:
            pos += size
    return pos


def plus(a: i64, b: i64) -> i64:
    """Return the sum, if it fits in 64 bits."""
    total = a + b
    if ((a ^ total) & (b ^ total)) < 0:
        raise Malformed
    return total


def minus(a: i64, b: i64) -> i64:
    """Return the difference, if it fits in 64 bits."""
    left = a - b
    if ((a ^ b) & (a ^ left)) < 0:
        raise Malformed
    return left


class Chunks:
    """A column of bytes: the position of each value in the source, and Arrow's offsets in the finished column."""

    def __init__(self, count: i64) -> None:
        self.count: i64 = count
        self.at: bytes = ops.new_bytes(count * 8)
        self.offsets: bytes = ops.new_bytes(count * 4 + 4)
        self.total: i64 = 0
        self.nulls: i64 = 0
        ops.store32(self.offsets, 0, 0)

    def add(self, row: i64, at: i64, size: i64) -> None:
        if size < 0:
            self.nulls += 1
            at = -1
        else:
            self.total += size
            if self.total > INT32_MAX:
                raise Malformed
        ops.store64(self.at, row, at)
        ops.store32(self.offsets, row + 1, self.total)

    def finish(self, buf: bytes) -> tuple[object, bytes, bytes, int]:
        """Arrow's buffers, and how many nulls there are: validity (None where all are there), offsets
        and data."""
        data = ops.new_bytes(self.total)
        validity: object = None
        i: i64
        begin: i64 = 0
        if self.nulls:
            bits = ops.new_zeros((self.count + 7) >> 3)
            for i in range(self.count):
                if ops.load64(self.at, i) >= 0:
                    ops.set_bit(bits, i)
            validity = bits
        at_all = self.at
        offsets = self.offsets
        for i in range(self.count):
            end = ops.load32(offsets, i + 1)
            if end > begin:
                ops.copy(data, begin, buf, ops.load64(at_all, i), end - begin)
                begin = end
        return validity, offsets, data, self.nulls


class Headers:
    """The headers of all records, for Arrow's list of structs."""

    def __init__(self, count: i64) -> None:
        self.rows: bytes = ops.new_bytes(count * 4 + 4)
        self.count: i64 = 0
        self.nulls: i64 = 0
        self.name_offsets: BytesWriter = BytesWriter()
        self.names: BytesWriter = BytesWriter()
        self.value_offsets: BytesWriter = BytesWriter()
        self.values: BytesWriter = BytesWriter()
        self.null: BytesWriter = BytesWriter()
        ops.store32(self.rows, 0, 0)
        ops.put_offset(self.name_offsets, 0)
        ops.put_offset(self.value_offsets, 0)

    def add(self, buf: bytes, pos: i64, count: i64) -> i64:
        if count < 0 or count > (len(buf) - pos) >> 1:
            raise Malformed
        for _ in range(count):
            size, pos = chunk(buf, pos)
            if size < 0 or not ops.is_utf8(buf, pos, size):
                raise Malformed
            ops.put_slice(self.names, buf, pos, size)
            ops.put_offset(self.name_offsets, len(self.names))
            size, pos = chunk(buf, pos + size)
            if size < 0:
                self.nulls += 1
                ops.put_byte(self.null, 1)
            else:
                ops.put_byte(self.null, 0)
                ops.put_slice(self.values, buf, pos, size)
                pos += size
            ops.put_offset(self.value_offsets, len(self.values))
        self.count += count
        if self.count > INT32_MAX:
            raise Malformed
        return pos

    def finish(self) -> tuple[int, bytes, bytes, bytes, object, bytes, bytes, int]:
        """Return the number of headers, the offsets of the rows, and the buffers of names and values."""
        validity: object = None
        if self.nulls:
            bits = ops.new_zeros((self.count + 7) >> 3)
            null = self.null.getvalue()
            i: i64
            for i in range(self.count):
                if ops.byte_at(null, i) == 0:
                    ops.set_bit(bits, i)
            validity = bits
        return (
            self.count,
            self.rows,
            self.name_offsets.getvalue(),
            self.names.getvalue(),
            validity,
            self.value_offsets.getvalue(),
            self.values.getvalue(),
            self.nulls,
        )


def decode_arrow(
    buf: bytes, parts: list[tuple[int, int, int, int, bool]], with_headers: bool
) -> tuple[list[int], Any, Any, bytes, bytes, Any]:
    """Records as the buffers of Arrow columns.

    ``parts`` are stretches of records in a row: where they begin in ``buf``, how many they are, what their
    offsets and timestamps are differences to, and whether that is the timestamp of all of them. Returns
    where each part ends, keys, values, offsets, timestamps, and the headers, None where there are none.
    """
    count: i64 = 0
    for part in parts:
        many: i64 = part[1]
        count += many
    offsets = ops.new_bytes(count * 8)
    timestamps = ops.new_bytes(count * 8)
    keys = Chunks(count)
    values = Chunks(count)
    headers = Headers(count)
    ends: list[int] = []
    row: i64 = 0
    for part in parts:
        pos: i64 = part[0]
        left: i64 = part[1]
        base_offset: i64 = part[2]
        base_timestamp: i64 = part[3]
        appended: bool = part[4]
        if pos < 0:
            raise Malformed
        for _ in range(left):
            size, pos = length(buf, pos)
            if size < 1 or size > len(buf) - pos:
                raise Malformed
            end = pos + size
            timestamp, pos = number(buf, pos + 1)
            ops.store64(timestamps, row, base_timestamp if appended else plus(base_timestamp, timestamp))
            offset, pos = length(buf, pos)
            ops.store64(offsets, row, plus(base_offset, offset))
            size, pos = chunk(buf, pos)
            keys.add(row, pos, size)
            if size > 0:
                pos += size
            size, pos = chunk(buf, pos)
            values.add(row, pos, size)
            if size > 0:
                pos += size
            size, pos = length(buf, pos)
            if size != 0:
                pos = headers.add(buf, pos, size) if with_headers else skip_headers(buf, pos, size)
            row += 1
            ops.store32(headers.rows, row, headers.count)
            if pos != end:
                raise Malformed
        ends.append(pos)
    found: object = None
    if headers.count:
        found = headers.finish()
    return ends, keys.finish(buf), values.finish(buf), offsets, timestamps, found


def slots(record_class: Any) -> tuple[i64, i64, i64, i64, i64]:
    """The positions of a record's slots: offset, timestamp, key, value and headers."""
    return (
        ops.slot(record_class, "offset"),
        ops.slot(record_class, "timestamp"),
        ops.slot(record_class, "key"),
        ops.slot(record_class, "value"),
        ops.slot(record_class, "_headers"),
    )


def decode_records(
    record_class: Any,
    buf: bytes,
    pos: i64,
    count: i64,
    base_offset: i64,
    base_timestamp: i64,
    own_timestamps: bool,
) -> tuple[object, int]:
    """Return the records, whose slots are filled in place, and the position after them. Without
    ``own_timestamps``, the timestamp of each is ``base_timestamp``."""
    if pos < 0 or count < 0 or count > len(buf) - pos:
        raise Malformed
    at_offset, at_timestamp, at_key, at_value, at_headers = slots(record_class)
    records = ops.new_tracked_list(count)
    # Successive records often have the same timestamps and names of headers: they share one object. A name is
    # first compared with the name at the same position in the previous record.
    before: i64 = 0
    stamp: object = base_timestamp
    names: dict[object, object] = {}
    guesses: list[object] = [None] * 8
    i: i64
    for _ in range(count):
        size, pos = length(buf, pos)
        if size < 1 or size > len(buf) - pos:
            raise Malformed
        end = pos + size
        record = ops.new_object(record_class)
        timestamp, pos = number(buf, pos + 1)
        if timestamp != before and own_timestamps:
            before = timestamp
            total: int = plus(base_timestamp, timestamp)
            stamp = total
        ops.set_slot(record, at_timestamp, stamp)
        offset, pos = length(buf, pos)
        place: int = plus(base_offset, offset)
        ops.set_slot(record, at_offset, place)
        size, pos = chunk(buf, pos)
        if size < 0:
            ops.set_slot(record, at_key, None)
        else:
            ops.set_slot(record, at_key, ops.bytes_at(buf, pos, size))
            pos += size
        size, pos = chunk(buf, pos)
        if size < 0:
            ops.set_slot(record, at_value, None)
        else:
            ops.set_slot(record, at_value, ops.bytes_at(buf, pos, size))
            pos += size
        left, pos = length(buf, pos)
        if left == 0:
            ops.set_slot(record, at_headers, None)
        else:
            if left < 0 or left > (len(buf) - pos) >> 1:
                raise Malformed
            headers = ops.new_list(left)
            ops.set_slot(record, at_headers, headers)
            for i in range(left):
                size, pos = chunk(buf, pos)
                if size < 0:
                    raise Malformed
                name = ops.element(guesses, i & 7)
                if not ops.is_string_at(name, buf, pos, size):
                    raw = ops.bytes_at(buf, pos, size)
                    name = names.get(raw)
                    if name is None:
                        name = names[raw] = ops.string_at(buf, pos, size)
                    guesses[i & 7] = name
                size, pos = chunk(buf, pos + size)
                if size < 0:
                    ops.fill(headers, ops.new_pair(name, None))
                else:
                    ops.fill(headers, ops.new_pair(name, ops.bytes_at(buf, pos, size)))
                    pos += size
        if pos != end:
            raise Malformed
        ops.fill(records, record)
    behind: int = pos
    return records, behind


def count_headers(buf: bytes, pos: i64, count: i64, most: i64) -> int:
    """Return the number of headers of records, which are not read. Stops above ``most``."""
    if pos < 0:
        raise Malformed
    found: i64 = 0
    for _ in range(count):
        size, pos = length(buf, pos)
        if size < 1 or size > len(buf) - pos:
            raise Malformed
        end = pos + size
        _timestamp, pos = number(buf, pos + 1)
        _offset, pos = length(buf, pos)
        size, pos = chunk(buf, pos)
        if size > 0:
            pos += size
        size, pos = chunk(buf, pos)
        if size > 0:
            pos += size
        many, pos = length(buf, pos)
        if many > 0:
            found += many
        if found > most:
            break
        pos = end
    result: int = found
    return result


def check(buf: bytes, pos: i64, count: i64, headers: i64) -> tuple[int, int, int]:
    """Check that records fill ``buf`` from ``pos`` to its end. Returns the lowest and the highest timestamp,
    and the number of a record without a key, or -1; -2 if there are more than ``headers`` headers."""
    if pos < 0:
        raise Malformed
    lowest: i64 = 0x7FFFFFFFFFFFFFFF
    highest: i64 = -0x8000000000000000
    without_key: i64 = -1
    i: i64
    for i in range(count):
        size, pos = length(buf, pos)
        if size < 1 or size > len(buf) - pos:
            raise Malformed
        end = pos + size
        timestamp, pos = number(buf, pos + 1)
        if timestamp < lowest:
            lowest = timestamp
        if timestamp > highest:
            highest = timestamp
        offset, pos = length(buf, pos)
        if offset != i:
            raise Malformed
        size, pos = chunk(buf, pos)
        if size < 0:
            without_key = i
        else:
            pos += size
        size, pos = chunk(buf, pos)
        if size > 0:
            pos += size
        size, pos = length(buf, pos)
        if size != 0:
            if size < 0 or size > (end - pos) >> 1:
                raise Malformed
            headers -= size
            if headers < 0:
                return 0, 0, -2
            pos = skip_headers(buf, pos, size)
        if pos != end:
            raise Malformed
    if pos != len(buf):
        raise Malformed
    return lowest, highest, without_key


def encode(
    record_class: Any, records: list[Any], base_offset: i64, base_timestamp: i64
) -> tuple[bytes, int, int]:
    """The bytes of records, the last one's distance from ``base_offset`` and the latest timestamp."""
    at_offset, at_timestamp, at_key, at_value, at_headers = slots(record_class)
    w = BytesWriter()
    hw = BytesWriter()
    last: i64 = -1
    # A subclass may override iteration, which a loop over a list ignores.
    if type(records) is not list:
        raise Malformed
    latest: i64 = ops.int64(records[0].timestamp)
    for record in records:
        if type(record) is not record_class:
            raise Malformed
        # Reading attributes takes 1.6 times as long.
        offset: i64 = ops.int64(ops.get_slot(record, at_offset))
        if offset == -1:
            last += 1
        else:
            offset = minus(offset, base_offset)
            if offset <= last:
                raise Malformed
            last = offset
        if last > INT32_MAX:
            raise Malformed
        timestamp: i64 = ops.int64(ops.get_slot(record, at_timestamp))
        if timestamp > latest:
            latest = timestamp
        delta = minus(timestamp, base_timestamp)
        key = ops.get_slot(record, at_key)
        key_size = ops.octets(key)
        value = ops.get_slot(record, at_value)
        value_size = ops.octets(value)
        if key_size < -1 or value_size < -1 or key_size > INT32_MAX or value_size > INT32_MAX:
            raise Malformed
        size = 1 + ops.zigzag_size(delta) + ops.zigzag_size(last)
        size += ops.zigzag_size(key_size) + ops.zigzag_size(value_size)
        if key_size > 0:
            size += key_size
        if value_size > 0:
            size += value_size
        headers = ops.get_slot(record, at_headers)
        if headers:
            hw.truncate(0)
            if type(headers) is not list:
                raise Malformed
            many: i64 = len(headers)
            ops.put_zigzag(hw, many)
            for header in headers:
                if type(header) is not tuple or len(header) != 2:
                    raise Malformed
                ops.put_string(hw, header[0], 3, 0)
                ops.put_bytes(hw, header[1], 3, 1, None)
            size += len(hw)
        else:
            size += 1
        if size > INT32_MAX:
            raise Malformed
        ops.put_zigzag(w, size)
        ops.put_byte(w, 0)
        ops.put_zigzag(w, delta)
        ops.put_zigzag(w, last)
        ops.put_zigzag(w, key_size)
        if key_size > 0:
            ops.put_octets(w, key)
        ops.put_zigzag(w, value_size)
        if value_size > 0:
            ops.put_octets(w, value)
        if headers:
            ops.put_writer(w, hw)
        else:
            ops.put_byte(w, 0)
    plus(base_offset, last)
    return w.getvalue(), last, latest
