from collections.abc import Callable
from types import MemberDescriptorType
from typing import Any, TypeAlias, TypeVar

Buffer: TypeAlias = bytes | bytearray | memoryview
_R = TypeVar("_R")
# Validity, offsets, data, and the number of nulls.
_Column: TypeAlias = tuple[bytes | None, bytes, bytes, int]
# Their number, the offsets of the rows, those of the names, the names, and the column of values.
_Headers: TypeAlias = tuple[int, bytes, bytes, bytes, bytes | None, bytes, bytes, int]

FORMAT: int

class Program:
    def __new__(
        cls,
        format: int,
        of: type[Any],
        unknown_tags: MemberDescriptorType,
        flexible: bool,
        fields: tuple[tuple[Any, ...], ...],
        tags: tuple[tuple[Any, ...], ...],
        absent: tuple[tuple[Any, ...], ...],
        /,
    ) -> Program: ...
    def exceeds(self, data: bytes, position: int, limit: int, /) -> bool | None:
        """Return whether a struct has more elements than ``limit``; None if the engine declines."""

    def places(
        self, data: Buffer, begin: int, end: int, marks: tuple[str, ...], /
    ) -> tuple[int, list[tuple[str, int, int, int]]] | None:
        """Return the position after a struct and its places; None if the engine declines."""

    def change(
        self,
        header: Program,
        data: Buffer,
        begin: int,
        end: int,
        marks: tuple[str, ...],
        names: tuple[str, ...],
        prefix: bytes,
        adds: bool,
        compact: bool,
        /,
    ) -> tuple[list[tuple[str, int, int, int]], list[bytes | memoryview] | None] | None:
        """Return the places in a frame but those of names and of null, and the frame with other names.

        It returns None if the engine declines. The pieces are None if the header has tagged fields, or if the names cannot be changed.
        """

class Frames:
    def __new__(cls, request: type[Any], response: type[Any], /) -> Frames: ...
    def add(
        self, of_requests: bool, api_key: int, version: int, header: Program, body: Program, /
    ) -> None: ...
    def request(self, frame: bytes, allow_trailing: bool, views: Any, /) -> Any: ...
    def response(self, frame: bytes, api_key: int, version: int, copy: bool, /) -> Any: ...

def install(cls: type[Any], /) -> dict[str, Callable[..., Any]]: ...

# The loops over the records of a batch. Where they decline, they raise one of krammar.wire.primitives.FAILURES.

def decode_records(
    record_class: type[_R],
    buf: bytes,
    pos: int,
    count: int,
    base_offset: int,
    base_timestamp: int,
    own_timestamps: bool,
    /,
) -> tuple[list[_R], int]:
    """Return the records and the position after them. Without ``own_timestamps``, all have ``base_timestamp``."""

def decode_arrow(
    buf: bytes, parts: list[tuple[int, int, int, int, bool]], with_headers: bool, /
) -> tuple[list[int], _Column, _Column, bytes, bytes, _Headers | None]:
    """Decode records to the buffers of Arrow columns.

    Args:
        parts: for each stretch of records in a row, its position, how many records it has, the bases of offsets and
            timestamps, and whether the latter is the timestamp of all of them.

    Returns:
        Where each part ends, keys, values, offsets, timestamps, and headers, or None if there are none.
    """

def count_headers(buf: bytes, pos: int, count: int, most: int, /) -> int:
    """Return the number of headers of records. Stops above ``most``. The headers themselves are not read."""

def check_records(buf: bytes, pos: int, count: int, headers: int, /) -> tuple[int, int, int]:
    """Check that records, with offsets that count up from 0, fill ``buf`` from ``pos`` to its end.

    Returns:
        The lowest and the highest timestamp, and the number of a record without a key, or -1; there -2 if they have
        more than ``headers`` headers.
    """

def encode_records(
    record_class: type[_R], records: list[_R], base_offset: int, base_timestamp: int, /
) -> tuple[bytes, int, int]:
    """Return the bytes of records, the last one's distance from ``base_offset``, and the latest timestamp."""
