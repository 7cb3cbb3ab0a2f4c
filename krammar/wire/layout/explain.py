"""Finds the invalid field after a codec has failed: a layout walks the same bytes or the same value again."""

from __future__ import annotations

from typing import Any

from krammar.wire.errors import DecodeError, EncodeError
from krammar.wire.layout.reader import Reader
from krammar.wire.layout.structs import Layout
from krammar.wire.layout.writer import Writer
from krammar.wire.primitives import FAILURES, Malformed


def explain_decode(
    layout: Layout, data: bytes, offset: int, whole: bool, shift: int = 0
) -> DecodeError:
    """Return the error for ``data`` that a codec could not decode, by decoding it again field by field."""
    reader = Reader(layout.title, data, offset)
    reader.keep = False
    try:
        layout.read_fields(reader)
    except DecodeError as error:
        if shift and error.offset >= 0:
            error.offset += shift
        return error
    except (Malformed, ValueError) as error:
        return DecodeError(f"{reader.title}: {error}", offset=reader.pos + shift)
    if whole and reader.pos != len(data):
        return DecodeError(layout.trailing(len(data), reader.pos), offset=reader.pos)
    return DecodeError(f"{reader.title}: the bytes do not match the layout", offset=offset + shift)


def explain_encode(value: Any, layout: Layout, cause: BaseException) -> EncodeError:
    """Return the error for ``value`` that a codec could not encode, by encoding it again field by field."""
    writer = Writer(layout.title)
    writer.plain = False
    try:
        layout.write_fields(value, writer)
    except EncodeError as error:
        return error
    except FAILURES as error:
        return writer.error(f"cannot be encoded: {error}")
    return EncodeError(f"{writer.title}: cannot be encoded: {cause!r}")
