"""Pure-Python methods, which compiled methods call for values and bytes that they do not support.

``krammar.wire.native`` does not import this module. Importing a compiled package would otherwise import the codecs,
although no message has been used yet.
"""

from __future__ import annotations

from typing import Any

from krammar.wire.message import Codec
from krammar.wire.versioned import VersionedCodec


def decode_slowly(cls: Any, data: Any, version: Any, copy: Any) -> Any:
    """Decode with pure Python, for buffers other than bytes and for invalid bytes, which raise an error."""
    if hasattr(cls, "_version_field"):
        version = VersionedCodec._peek_version.__func__(cls, data, 0, version)  # type: ignore[attr-defined]
    return Codec.decode.__func__(cls, data, version, copy)  # type: ignore[attr-defined]


def decode_from_slowly(cls: Any, data: Any, offset: Any, version: Any, copy: Any) -> Any:
    """Decode as ``cls.decode_from`` with pure Python."""
    if hasattr(cls, "_version_field"):
        version = VersionedCodec._peek_version.__func__(cls, data, offset, version)  # type: ignore[attr-defined]
    return Codec.decode_from.__func__(cls, data, offset, version, copy)  # type: ignore[attr-defined]


def encode_slowly(value: Any, version: Any) -> bytes:
    """Encode with pure Python, which accepts more values than compiled code, or raises a precise error."""
    if hasattr(value, "_version_field"):
        version = VersionedCodec._own_version(value, version)
    parts: list[bytes] = []
    Codec._encode_parts(value, version, parts)
    return b"".join(parts)
