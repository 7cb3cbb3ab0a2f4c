"""The form of encrypted values and headers in records.

::

    bytes  content
    4      93 4B 52 45 (no text in UTF-8 begins with them)
    1      version: 1
    1      kind: 0 for a value, 1 for headers
    1      length of the id of the key that wraps the data key
    n      this id, in UTF-8
    2      length of the wrapped data key, big-endian
    n      the wrapped data key
    12     nonce
    rest   AES-256-GCM: the ciphertext, then its tag of 16 bytes

GCM authenticates, beside the ciphertext, the additional data: all bytes before the nonce, then the topic's name after its
length (2 bytes), then the record's key after its length (4 bytes; FF FF FF FF for null). So neither a value nor headers can be
moved to another topic or key, or replace each other.

Each record has its data key, because any record can be the first one that a consumer reads, and compaction can remove all
others of its batch.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from krammar.util.extras import require
from krammar.wire.batches.records.model import header_key, header_key_bytes

try:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
except ModuleNotFoundError:
    require("the filter Encrypt", "encrypt")
    raise

MAGIC = b"\x93KRE"
VERSION = 1
VALUE = 0
HEADERS = 1
NONCE = 12  # bytes

_HEAD = struct.Struct(">4sBB")
_TAG = 16
_NULL = b"\xff\xff\xff\xff"
_NULL_SIZE = -1

Headers = Sequence[tuple[str, bytes | None]]


class EnvelopeError(Exception):
    """An envelope is malformed, or its content was changed or moved."""


class WrappedKey(NamedTuple):
    """A data key that was encrypted with another key, and the id of that key."""

    key_id: str
    data: bytes


class Sealed(NamedTuple):
    """The parts of an envelope. ``wrapped`` are the bytes of id and wrapped data key, with their lengths."""

    head: bytes
    wrapped: bytes
    nonce: bytes
    content: bytes


def pack_wrapped(key: WrappedKey) -> bytes:
    """Return the bytes of a wrapped key in envelopes. Raises ValueError if a part is too long."""
    key_id = key.key_id.encode()
    if len(key_id) > 255 or len(key.data) > 65_535:
        raise ValueError(
            f"an id of {len(key_id)} bytes or a wrapped key of {len(key.data)} bytes is too long "
            "(at most 255 and 65535)"
        )
    return b"".join(
        (bytes((len(key_id),)), key_id, len(key.data).to_bytes(2, "big"), bytes(key.data))
    )


def unpack_wrapped(data: bytes) -> WrappedKey:
    """Return the wrapped key of ``Sealed.wrapped``."""
    size = data[0]
    return WrappedKey(data[1 : 1 + size].decode("utf-8", "replace"), data[3 + size :])


def context(topic: str, key: bytes | None) -> bytes:
    """Return what binds an envelope to its topic and to the key of its record."""
    name = topic.encode()
    size = _NULL if key is None else len(key).to_bytes(4, "big")
    return b"".join((len(name).to_bytes(2, "big"), name, size, key or b""))


def seal(
    cipher: AESGCM, wrapped: bytes, kind: int, nonce: bytes, content: bytes, bound: bytes
) -> bytes:
    """Encrypt a value or headers.

    Args:
        wrapped: the data key of ``cipher``, from ``pack_wrapped``.
        nonce: must never be used twice with this cipher.
        bound: from ``context``.
    """
    head = _HEAD.pack(MAGIC, VERSION, kind) + wrapped
    return b"".join((head, nonce, cipher.encrypt(nonce, content, head + bound)))


def is_sealed(data: bytes) -> bool:
    """Return whether bytes are an envelope of any version."""
    return data[:4] == MAGIC


def unpack_sealed(data: bytes, kind: int) -> Sealed:
    """Return the parts of an envelope. Raises EnvelopeError."""
    if len(data) < _HEAD.size + 1:
        raise EnvelopeError("it is cut off")
    _, version, found = _HEAD.unpack_from(data)
    if version != VERSION:
        raise EnvelopeError(f"its version {version} is unknown")
    if found != kind:
        raise EnvelopeError("a value is in the place of headers, or headers of a value")
    begin = _HEAD.size
    at = begin + 1 + data[begin]
    end = at + 2 + int.from_bytes(data[at : at + 2], "big")
    if len(data) < end + NONCE + _TAG:
        raise EnvelopeError("it is cut off")
    return Sealed(data[:begin], data[begin:end], data[end : end + NONCE], data[end + NONCE :])


def unseal(cipher: AESGCM, sealed: Sealed, bound: bytes) -> bytes:
    """Decrypt a value or headers. Raises EnvelopeError."""
    try:
        return cipher.decrypt(sealed.nonce, sealed.content, sealed.head + sealed.wrapped + bound)
    except InvalidTag:
        raise EnvelopeError(
            "it was changed, or moved from another topic or key, or its data key is wrong"
        ) from None


def pack_headers(headers: Headers) -> bytes:
    """Return headers as bytes: each name and value after its length (4 bytes; -1 for null)."""
    parts = []
    for name, value in headers:
        text = header_key_bytes(name)
        parts += [struct.pack(">i", len(text)), text]
        parts += [struct.pack(">i", _NULL_SIZE if value is None else len(value)), value or b""]
    return b"".join(parts)


def unpack_headers(data: bytes) -> list[tuple[str, bytes | None]]:
    """Return the headers of ``pack_headers``. Raises EnvelopeError."""
    found: list[tuple[str, bytes | None]] = []
    at = 0

    def piece() -> bytes | None:
        nonlocal at
        if len(data) - at < 4:
            raise EnvelopeError("its headers are cut off")
        size = int.from_bytes(data[at : at + 4], "big", signed=True)
        begin, at = at + 4, at + 4 + max(size, 0)
        if at > len(data):
            raise EnvelopeError("its headers are cut off")
        return None if size < 0 else data[begin:at]

    while at < len(data):
        name = piece() or b""
        found.append((header_key(name), piece()))
    return found


__all__ = [
    "HEADERS",
    "NONCE",
    "VALUE",
    "EnvelopeError",
    "Sealed",
    "WrappedKey",
    "context",
    "is_sealed",
    "pack_headers",
    "pack_wrapped",
    "seal",
    "unpack_headers",
    "unpack_sealed",
    "unpack_wrapped",
    "unseal",
]
