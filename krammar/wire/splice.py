"""Adds a prefix to names in the bytes of a frame, or removes it, at the places that ``krammar.wire.skip`` has found."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from krammar.wire.framing import PREFIX
from krammar.wire.primitives import encode_uvarint
from krammar.wire.skip import TAGGED, Place, program_of, walk_of

Pieces = list[bytes | bytearray | memoryview]
# Copying so many bytes takes no longer than making a view of them.
_SMALL = 4096
_int16 = struct.Struct(">h").pack


def splice(
    data: bytes | bytearray,
    begin: int,
    end: int,
    places: list[Place],
    names: tuple[str, ...],
    prefix: bytes,
    adds: bool,
    compact: bool,
) -> Pieces | None:
    """Return a frame with other names, in pieces. A long rest after the last name is a view of ``data``.

    Args:
        data: the frame, from ``begin`` to ``end``, with its length of four bytes.
        places: those that a walk has found in the frame.
        names: the marks of names. Other places do not change, nor do nulls.
        adds: add the prefix; otherwise remove it.
        compact: lengths are unsigned varints of the number plus one; otherwise they are int16.

    Returns:
        None if a name is without the prefix, or becomes too long.
    """
    parts: list[bytes | bytearray] = [b""]
    start = begin + PREFIX
    for mark, at, content, after in places:
        if mark not in names or content < 0:
            continue
        length = after - content
        if adds:
            length += len(prefix)
            rest = content
        else:
            length -= len(prefix)
            rest = content + len(prefix)
            if data[content:rest] != prefix or rest > after:
                return None
        if length > 0x7FFF and not compact:
            return None
        size = encode_uvarint(length + 1) if compact else _int16(length)
        parts += (data[start:at], size, prefix if adds else b"")
        start = rest
    size_ = sum(map(len, parts)) + end - start
    parts[0] = size_.to_bytes(PREFIX, "big")
    view = memoryview(data)[start:end]
    if end - start <= _SMALL:
        return [b"".join((*parts, view))]
    return [b"".join(parts), view]


# Places in a frame, and its pieces, or None if the header has tagged fields or the names cannot be changed.
Changed = tuple[list[Place], Pieces | None] | None


def change_of(
    header: tuple[Any, int],
    body: tuple[Any, int],
    marks: tuple[str, ...],
    names: tuple[str, ...],
    adds: bool,
    compact: bool,
) -> Callable[[bytes | bytearray, int, int, bytes], Changed]:
    """Return a function that walks over a frame and writes it with a prefix added to names, or removed.

    ``change(data, begin, end, prefix)`` returns the places in the body but those of names and of null, and the pieces
    of the frame. It returns None if the bytes are not those of such a frame.

    Args:
        header, body: the classes and versions of header and message.
        marks: as for ``walk_of``; ``names`` are among them.
        adds, compact: as for ``splice``.

    Raises:
        UnsupportedVersionError: a class does not have this version.
    """
    walk_header, walk_body = walk_of(*header, (TAGGED,)), walk_of(*body, marks)
    programs = program_of(*header), program_of(*body)
    engine = None if None in programs else programs[1].change

    def change(data: bytes | bytearray, begin: int, end: int, prefix: bytes) -> Changed:
        if engine is not None:
            found: Changed = engine(
                programs[0], data, begin, end, marks, names, prefix, adds, compact
            )
            if found is not None:
                return found
        head = walk_header(data, begin + PREFIX, end)
        if head is None or head[1]:
            return head and (head[1], None)
        inside = walk_body(data, head[0], end)
        if inside is None or inside[0] != end:
            return None
        pieces = splice(data, begin, end, inside[1], names, prefix, adds, compact)
        return [place for place in inside[1] if place[0] not in names and place[2] >= 0], pieces

    return change
