"""Large responses that pass as they arrive, although the addresses of brokers can follow at their end.

Responses to Produce and Fetch have node endpoints in a tagged field at their end, after the records (KIP-951). The length
of a response is its first field, so bytes that have been passed on fix the length of the rest. Instead of an address that
may be longer, the client gets the same bytes under a tag that it does not know, and asks for metadata.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from krammar.proxy.errors import Refused
from krammar.proxy.heads import Data
from krammar.wire.framing import PREFIX
from krammar.wire.layout import Array, Layout, Nested, Scalar, Text
from krammar.wire.primitives import LENGTH_SIZES, Malformed, encode_uvarint, uvarint

# The tag of node endpoints in both responses.
ENDPOINTS_TAG = 0
# Tags of one byte, and bytes of tagged fields at most.
_SHORT_TAGS = 128
_LARGEST_TAGS = 64 * 1024

_Walk = Generator[None, None, None]


class PassingResponse:
    """Follows the fields of a response whose bytes arrive in pieces, without decoding them.

    Attributes:
        left: bytes of the frame from the place that was reached
        is_last: whether only the tagged fields at the end are left

    Args:
        headers: the class of the response's header and its version.
        body: the class of the response and its version. Versions with node endpoints are flexible (KIP-482).
        size: bytes of the frame, with its length prefix.
    """

    def __init__(self, headers: tuple[Any, int], body: tuple[Any, int], size: int) -> None:
        self.left = size
        self.is_last = False
        self._data: Data = b""
        self._position = self._size = 0
        self._walk = self._over_all(*(cls._layout(version) for cls, version in (headers, body)))

    def follow(self, data: Data, position: int, size: int) -> int:
        """Follow the bytes from ``position`` to ``size``. Returns the offset of the first byte that is needed next.

        It is after ``size`` if it has not arrived, and before ``size`` if a field has arrived in part.

        Raises:
            Refused: a field ends after the frame.
        """
        self._data, self._position = data, position
        self._size = min(size, position + self.left)
        try:
            self.is_last = next(self._walk, self) is self
        except Malformed:
            self._position = position + self.left + 1
        self._data = b""  # it may be the memory of all connections
        self.left -= self._position - position
        if self.left < self.is_last:
            raise Refused("a response has fields that are longer than the response")
        return self._position

    def _over_all(self, header: Layout, body: Layout) -> _Walk:
        """Follow the frame, without the tagged fields at its end."""
        self._position += PREFIX
        yield from self._over(header)
        yield from self._fields(body)

    def _over(self, layout: Layout) -> _Walk:
        yield from self._fields(layout)
        if layout.flexible:
            for _ in range((yield from self._number(0))):
                yield from self._number(0)
                size = yield from self._number(0)
                self._position += size

    def _fields(self, layout: Layout) -> _Walk:
        for item in layout.fields:
            match item.type:
                case Scalar(width=width):
                    self._position += width
                case Text(prefix=prefix):
                    size = yield from self._length(prefix)
                    self._position += max(size, 0)
                case Array(element, prefix):
                    yield from self._array(element, prefix)
                case Nested(inner, nullable):
                    if not nullable or (yield from self._number(1)) == 1:
                        yield from self._over(inner)

    def _array(self, element: Any, prefix: str) -> _Walk:
        count = yield from self._length(prefix)
        if isinstance(element, Scalar):
            self._position += max(count, 0) * element.width
            return
        for _ in range(count):
            if self._position >= self._size:
                yield
            yield from self._over(element.layout)

    def _length(self, prefix: str) -> Generator[None, None, int]:
        """Read a length or count, below 0 for null."""
        if prefix == "uvarint":
            return (yield from self._number(0)) - 1
        return (yield from self._number(LENGTH_SIZES[prefix]))

    def _number(self, width: int) -> Generator[None, None, int]:
        """Read an integer of ``width`` bytes, or with 0 an unsigned varint."""
        while True:
            begin, end = self._position, self._size
            if width and begin + width <= end:
                self._position += width
                return int.from_bytes(self._data[begin : begin + width], "big", signed=True)
            if not width and begin < end:
                try:
                    value, size = _uvarint(bytes(self._data[begin : min(begin + 5, end)]), 0)
                except IndexError:
                    pass
                else:
                    self._position += size
                    return value
            yield


def check_tags(size: int) -> None:
    """Raise Refused if the tagged fields at the end of a response have too many bytes to be collected."""
    if size > _LARGEST_TAGS:
        raise Refused(
            f"a response has {size} bytes of tagged fields at its end ({_LARGEST_TAGS} at most)"
        )


def hide_endpoints(tags: bytes) -> bytes:
    """Return the tagged fields at the end of a response in as many bytes, with node endpoints under an unused tag.

    Raises:
        Refused: the bytes are no tagged fields, or no tag of one byte is unused.
    """
    try:
        count, position = _uvarint(tags, 0)
        first = position
        fields = []
        for _ in range(count):
            tag, after = _uvarint(tags, position)
            size, begin = _uvarint(tags, after)
            fields.append((tag, tags[after : begin + size]))
            position = begin + size
        if position != len(tags):
            raise Malformed
    except (IndexError, Malformed):
        raise Refused("the tagged fields at the end of a response are invalid") from None
    if not fields or fields[0][0] != ENDPOINTS_TAG:
        return tags
    used = {tag for tag, _ in fields}
    unused = next((tag for tag in reversed(range(_SHORT_TAGS)) if tag not in used), None)
    if unused is None:
        raise Refused("the node endpoints of a response cannot be hidden: no tag is unused")
    hidden = sorted([*fields[1:], (unused, fields[0][1])])
    return tags[:first] + b"".join(encode_uvarint(tag) + field for tag, field in hidden)


def _uvarint(data: bytes, position: int) -> tuple[int, int]:
    return uvarint(data, position + 1, data[position])
