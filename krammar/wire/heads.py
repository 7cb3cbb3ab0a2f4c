"""Where the headers of a protocol have the api key, the version and the correlation id."""

from __future__ import annotations

from struct import Struct, error
from typing import Any, NamedTuple


class HeaderPlace:
    """A field of fixed width at a fixed offset of a header. ``code`` is its letter in ``struct``."""

    __slots__ = ("_unpack", "code", "end", "name", "offset")

    def __init__(self, name: str, offset: int, code: str) -> None:
        self.name = name
        self.offset = offset
        self.code = code
        number = Struct(f">{code}")
        self._unpack = number.unpack_from
        # The offset after the field.
        self.end = offset + number.size

    def read(self, data: bytes) -> int | None:
        """Return the number in the first bytes of a frame, or None if the frame is too short."""
        try:
            found: int = self._unpack(data, self.offset)[0]
        except error:
            return None
        return found

    @property
    def largest(self) -> int:
        """The largest number that the field can have."""
        bits = 8 * (self.end - self.offset)
        return (1 << (bits if self.code.isupper() else bits - 1)) - 1


class HeaderPlaces(NamedTuple):
    """The places in all versions of a header. A field that no version has, or that is not in place, is None."""

    key: HeaderPlace | None
    version: HeaderPlace | None
    correlation_id: HeaderPlace | None

    def values(self, *numbers: int) -> dict[str, int]:
        """Return the attributes of a header for key, version and correlation id."""
        return {place.name: number for place, number in zip(self, numbers, strict=False) if place}


def header_places(*places: tuple[Any, ...] | None) -> HeaderPlaces:
    """Return a head from its places, as generated packages write them."""
    return HeaderPlaces(*(None if place is None else HeaderPlace(*place) for place in places))


# The headers of Kafka.
REQUEST_HEAD = header_places(
    ("request_api_key", 0, "h"), ("request_api_version", 2, "h"), ("correlation_id", 4, "i")
)
RESPONSE_HEAD = header_places(None, None, ("correlation_id", 0, "i"))
