"""Formats a record for ``krammar consume``, with a format text or as JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from krammar.cli.decoding import Part, Undecodable
from krammar.cli.options import unescape
from krammar.util.printable import escape

if TYPE_CHECKING:
    from krammar.client import Record, TopicPartition


@dataclass(frozen=True, slots=True)
class Shown:
    """A record, with its key and value as they are printed."""

    record: Record
    key: Part
    value: Part


Shower = Callable[["TopicPartition", Shown], bytes]


def shower(
    format_: str | None,
    json_: bool,
    delimiter: str | None,
    key_delimiter: str | None,
    null: bool,
    *,
    on_terminal: bool,
) -> Shower:
    """Return the function that formats a record.

    Args:
        null: print NULL for a null key or value.
        on_terminal: escape control characters.

    Raises:
        UsageError: the format is invalid, or the options exclude each other.
    """
    if json_:
        if format_ is not None or delimiter is not None or key_delimiter is not None or null:
            raise click.UsageError("-J cannot be combined with -f, -D, -K or -Z")
        return _json_line_for_terminal if on_terminal else _json_line
    null_text = b"NULL" if null else b""
    clean = _for_terminal if on_terminal else None
    if format_ is not None:
        if delimiter is not None or key_delimiter is not None:
            raise click.UsageError("-f cannot be combined with -D or -K")
        return partial(_formatted, _pieces(format_), null_text, clean)
    pieces: list[bytes | str] = []
    if key_delimiter is not None:
        pieces += ["k", unescape("-K", key_delimiter)]
    pieces += ["s", b"\n" if delimiter is None else unescape("-D", delimiter)]
    return partial(_formatted, pieces, null_text, clean)


def _pieces(format_: str) -> list[bytes | str]:
    """Parse a format: bytes that are printed unchanged, and letters of fields."""
    pieces: list[bytes | str] = []
    texts = format_.split("%")
    pieces.append(unescape("-f", texts[0]))
    rest = iter(texts[1:])
    for text in rest:
        if text:
            if text[0] not in _FIELDS:
                raise click.UsageError(
                    f"-f: unknown field %{text[0]} (fields: {_FIELD_NAMES}; %% is a percent sign)"
                )
            pieces += [text[0], unescape("-f", text[1:])]
            continue
        # An empty part follows a percent sign that is doubled or at the end.
        after = next(rest, None)
        if after is None:
            raise click.UsageError("-f: a field must follow the last % (%% is a percent sign)")
        pieces.append(b"%" + unescape("-f", after))
    return pieces


def _formatted(
    pieces: Sequence[bytes | str],
    null: bytes,
    clean: Callable[[bytes], bytes] | None,
    at: TopicPartition,
    shown: Shown,
) -> bytes:
    out = []
    for piece in pieces:
        if isinstance(piece, bytes):
            out.append(piece)
            continue
        field = _FIELDS[piece](at, shown, null)
        out.append(field if clean is None else clean(field))
    return b"".join(out)


def _for_terminal(data: bytes) -> bytes:
    text = data.decode(errors="backslashreplace")
    return escape(text, keep="\n\t").encode()


def _text(part: Part, null: bytes) -> bytes:
    if part is None:
        return null
    if isinstance(part, bytes):
        return part
    if isinstance(part, Undecodable):
        return f"<cannot be decoded: {part.error}: 0x{part.data.hex()}>".encode()
    import json

    return json.dumps(part, ensure_ascii=False).encode()


def _headers_text(shown: Shown) -> bytes:
    return b",".join(
        name.encode() + b"=" + (b"NULL" if value is None else value)
        for name, value in shown.record.headers
    )


def _size(data: bytes | None) -> bytes:
    return b"-1" if data is None else b"%d" % len(data)


_FIELDS: dict[str, Callable[[TopicPartition, Shown, bytes], bytes]] = {
    "t": lambda at, shown, null: at.topic.encode(),
    "p": lambda at, shown, null: b"%d" % at.partition,
    "o": lambda at, shown, null: b"%d" % shown.record.offset,
    "k": lambda at, shown, null: _text(shown.key, null),
    "s": lambda at, shown, null: _text(shown.value, null),
    "h": lambda at, shown, null: _headers_text(shown),
    "T": lambda at, shown, null: b"%d" % shown.record.timestamp,
    "K": lambda at, shown, null: _size(shown.record.key),
    "S": lambda at, shown, null: _size(shown.record.value),
}
_FIELD_NAMES = ", ".join(f"%{name}" for name in _FIELDS)


def _json_line(at: TopicPartition, shown: Shown) -> bytes:
    """Format a record with kcat's names. Bytes that are not UTF-8 become ``{"base64": …}``."""
    import json

    record = shown.record
    value = {
        "topic": at.topic,
        "partition": at.partition,
        "offset": record.offset,
        "ts": record.timestamp,
        "headers": [part for name, data in record.headers for part in (name, _plain(data))],
        "key": _plain(shown.key),
        "payload": _plain(shown.value),
    }
    return json.dumps(value, ensure_ascii=False).encode() + b"\n"


def _json_line_for_terminal(at: TopicPartition, shown: Shown) -> bytes:
    import json

    text = _json_line(at, shown).decode()
    return escape(text, keep="\n", spell=lambda c: json.dumps(c)[1:-1]).encode()


def _plain(part: Part) -> Any:
    from base64 import b64encode

    if isinstance(part, Undecodable):
        return {"error": part.error, "base64": b64encode(part.data).decode()}
    if not isinstance(part, bytes):
        return part
    try:
        return part.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(part).decode()}
