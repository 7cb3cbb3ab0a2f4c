"""Where the headers of a protocol have the api key, the version and the correlation id."""

from __future__ import annotations

from struct import Struct, error
from typing import Any, NamedTuple


class HeaderPlace(NamedTuple):
    """A field of fixed width at a fixed offset of a header. ``code`` is its letter in ``struct``."""

    name: str
    offset: int
    code: str

    def read(self, data: bytes) -> int | None:
        """Return the number in the first bytes of a frame, or None if the frame is too short."""
        try:
            found: int = Struct(f">{self.code}").unpack_from(data, self.offset)[0]
        except error:
            return None
        return found

    @property
    def end(self) -> int:
        """The offset after the field."""
        return self.offset + Struct(f">{self.code}").size


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
