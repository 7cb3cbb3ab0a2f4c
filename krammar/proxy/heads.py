"""What the proxy reads of frames that it does not decode."""

from __future__ import annotations

import struct

from krammar.wire.framing import PREFIX

# The length, api key with version, and correlation id of a request; length and correlation id of a response.
REQUEST = struct.Struct(">iIi")
RESPONSE = struct.Struct(">ii")
# Bytes of a response's length and correlation id.
HEAD = 8

# Bytes of a request's head at most: a client id and a transactional id of 32 kB each.
LARGEST_HEAD = 80 * 1024

# The offset of a request's client id, after its length.
_CLIENT_ID = 14

# The first versions of Produce with a transactional id, and with compact lengths.
_TRANSACTIONAL = 3
_FLEXIBLE = 9

_ACKS = struct.Struct(">h")
_LARGEST_PORT = 65_535
_PORT = struct.Struct(">i")

Data = bytes | bytearray
Pieces = list[bytes | bytearray | memoryview]


class Incomplete(Exception):
    """More bytes of a frame are needed."""


def correlation_id_of(frame: bytes) -> int:
    """Return the correlation id of a request with its length prefix."""
    return int.from_bytes(frame[8:12], "big", signed=True)


def client_id(data: Data, begin: int, end: int) -> tuple[str | None, int]:
    """Return the client id of a request, and the offset after it.

    Args:
        begin: the offset of the frame with its length prefix.
        end: the offset after the bytes that have arrived.

    Raises:
        Incomplete: it has not arrived.
    """
    position = begin + _CLIENT_ID
    after = _after_client_id(data, begin, end)
    if data[position - 2] & 0x80:
        return None, after
    return data[position:after].decode("utf-8", "replace"), after


def _after_client_id(data: Data, begin: int, end: int) -> int:
    position = begin + _CLIENT_ID
    if end < position:
        raise Incomplete
    if not data[position - 2] & 0x80:  # otherwise it is null
        position += data[position - 2] << 8 | data[position - 1]
    if end < position:
        raise Incomplete
    return position


def acks(data: Data, begin: int, end: int, version: int) -> int:
    """Return ``acks`` of a Produce request: -1, 0 or 1. Arguments and errors are as for ``client_id``."""
    position = _after_client_id(data, begin, end)
    if end < position + 4:  # a complete request has more
        raise Incomplete
    if version >= _FLEXIBLE:
        if data[position] or data[position + 1]:
            position = _after_transactional_id(data, position, end)
        else:  # no tagged fields, and no transactional id
            position += 2
    elif version >= _TRANSACTIONAL:
        size = int.from_bytes(data[position : position + 2], "big", signed=True)
        position += 2 + max(size, 0)
    if end < position + 2:
        raise Incomplete
    return int(_ACKS.unpack_from(data, position)[0])


def _after_transactional_id(data: Data, position: int, end: int) -> int:
    count, position = _varint(data, position, end)
    for _ in range(count):
        _, position = _varint(data, position, end)
        size, position = _varint(data, position, end)
        position += size
    size, position = _varint(data, position, end)
    return position + max(size - 1, 0)


def _varint(data: Data, position: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while position < end:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 28:
            return value, position  # invalid: the broker refuses the request
    raise Incomplete


def has_no_endpoints(data: Data, begin: int, end: int) -> bool:
    """Return whether a response certainly has no node endpoints at its end, without decoding it.

    Responses to Produce and Fetch have them in a tagged field (KIP-951). The last one ends with its port, a rack and a byte
    0 for no tags. The rack is a byte 0 for null, or text, which does not end with a byte 0. So a frame that ends
    otherwise has none. False means: decode it.

    Args:
        begin: the offset of the frame with its length prefix.
        end: the offset after it.
    """
    if data[end - 1] or data[end - 2] or end - begin < PREFIX + 12:
        return False
    return not 0 < _PORT.unpack_from(data, end - 6)[0] <= _LARGEST_PORT
