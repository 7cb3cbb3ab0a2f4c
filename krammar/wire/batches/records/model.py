"""A record, records by column, and the keys of headers."""

from __future__ import annotations

import re
from itertools import repeat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Self, TypeAlias

    Header: TypeAlias = tuple[str, bytes | None]

# Bytes. The smallest record has a length, attributes and five numbers of one byte each.
MIN_RECORD_SIZE = 7

INT32_MAX = 0x7FFFFFFF
INT64_MIN = -0x8000000000000000
INT64_MAX = 0x7FFFFFFFFFFFFFFF


# A surrogate in UTF-8. Java replaces it as a whole, Python byte by byte.
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


class HeaderKey(str):
    """A header's key that is not UTF-8: as text what Java's client reads, with U+FFFD for malformed bytes.

    Attributes:
        raw: the bytes. They are written if the record is encoded again.
    """

    __slots__ = ("raw",)
    raw: bytes

    def __new__(cls, raw: bytes) -> Self:
        text = _SURROGATE.sub("\ufffd".encode(), raw).decode(errors="replace")
        key = super().__new__(cls, text)
        key.raw = bytes(raw)
        return key

    def __reduce__(self) -> tuple[type[HeaderKey], tuple[bytes]]:
        return (HeaderKey, (self.raw,))


def header_key(raw: bytes) -> str:
    """Return the key of a header; see ``HeaderKey``."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return HeaderKey(raw)


def header_key_bytes(key: str) -> bytes:
    """Return the bytes of a header's key.

    Raises:
        UnicodeEncodeError: it has lone surrogates.
    """
    return key.raw if isinstance(key, HeaderKey) else key.encode()


class Record:
    """A record.

    Attributes:
        offset: in its partition; -1 means the offset after the previous record
        timestamp: in milliseconds since 1970; -1 if it has none
        key, value: bytes or None
        headers: list of (str, bytes or None); keys that are not UTF-8 are ``HeaderKey``
    """

    # The list of headers is created on first access. Most records have no headers, and without lists a batch
    # of records costs the garbage collector half as much (decoding takes 10 % less).
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
    """Decoded records by column. ``headers`` contains only the rows that have headers.

    Creating records from columns takes no longer than creating them one by one (both 0.75 µs per record), so one
    loop serves callers that want records and callers that want Arrow.
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
