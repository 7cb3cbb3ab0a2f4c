"""The errors of decoding and encoding.

Decoding raises only ``DecodeError`` and ``UnsupportedVersionError``, whatever the bytes are. Encoding raises
``EncodeError`` for values that the layout cannot represent.
"""

from __future__ import annotations

from typing import Any


class WireError(ValueError):
    """The base class of krammar.wire's errors."""


class DecodeError(WireError):
    """The bytes do not match the layout.

    ``path`` is the field (``topics[3].name``), or empty for the message itself. ``offset`` is the position in
    bytes, from the begin of the data, at which decoding failed; -1 if unknown. ``header`` is the header of the
    request if only its body is invalid, else None.
    """

    header: Any = None

    def __init__(self, message: str, *, path: str = "", offset: int = -1) -> None:
        super().__init__(message)
        self.path = path
        self.offset = offset

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.args, self.__dict__.copy()))


class CorruptRecordError(DecodeError):
    """The CRC of records does not match their bytes (Kafka's error CORRUPT_MESSAGE)."""


class BatchLimitError(DecodeError):
    """A batch is larger than a limit of ``krammar.wire.batches.bounds``. ``limit`` is its name."""

    def __init__(self, message: str, *, limit: str) -> None:
        super().__init__(message)
        self.limit = limit


class EncodeError(WireError):
    """The layout cannot represent a value. ``path`` is the field (``topics[3].name``)."""

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(message)
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.args, self.__dict__.copy()))


class UnsupportedVersionError(WireError):
    """The message does not have this version.

    ``header`` is the header of the request if it could be read, so that the request can be answered
    (KIP-511); else None.
    """

    def __init__(
        self,
        name: str,
        version: int,
        min_version: int,
        max_version: int,
        *,
        api_key: int | None = None,
        header: Any = None,
    ) -> None:
        key = "" if api_key is None else f" (api key {api_key})"
        super().__init__(
            f"{name}{key} has no version {version}: versions {min_version} to {max_version} are known"
        )
        self.name = name
        self.version = version
        self.min_version = min_version
        self.max_version = max_version
        self.api_key = api_key
        self.header = header

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.args, self.__dict__.copy()))


class UnknownApiKeyError(DecodeError):
    """No request of the protocol has this api key. ``header`` is as for UnsupportedVersionError."""

    def __init__(self, api_key: int, min_key: int, max_key: int, *, header: Any = None) -> None:
        super().__init__(
            f"unknown api key {api_key}: keys {min_key} to {max_key} are known", offset=0
        )
        self.api_key = api_key
        self.min_key = min_key
        self.max_key = max_key
        self.header = header


class HeaderError(DecodeError):
    """The header of a request is invalid.

    ``api_key`` is the best guess at the key, or None if the frame is too short for a key.
    """

    def __init__(
        self, message: str, *, api_key: int | None, path: str = "", offset: int = -1
    ) -> None:
        super().__init__(message, path=path, offset=offset)
        self.api_key = api_key


def _rebuild(cls: type[WireError], args: tuple[object, ...], state: dict[str, object]) -> WireError:
    """Unpickle without calling the constructor, whose arguments can differ from ``args``."""
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(state)
    return error
