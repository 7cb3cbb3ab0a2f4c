"""What reading and writing bytes can raise.

Bytes from outside, however hostile, raise ``DecodeError`` or ``UnsupportedVersionError`` and nothing
else; values that a layout cannot carry raise ``EncodeError``.
"""

from __future__ import annotations

from typing import Any


class WireError(ValueError):
    """Base of everything that this package raises on purpose."""


class DecodeError(WireError):
    """Bytes that do not follow the layout.

    ``path`` is the field (``topics[3].name``; empty for the message itself) and ``offset`` the
    position in bytes at which reading failed, counted from where the data began; -1 if unknown.
    ``header`` is the request's header where the body of a request could not be read, else None.
    """

    header: Any = None

    def __init__(self, message: str, *, path: str = "", offset: int = -1) -> None:
        super().__init__(message)
        self.path = path
        self.offset = offset

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.args, self.__dict__.copy()))


class CorruptRecordError(DecodeError):
    """Records whose checksum is not the one they came with: Kafka's error CORRUPT_MESSAGE."""


class EncodeError(WireError):
    """A value that the layout cannot carry. ``path`` is the field (``topics[3].name``)."""

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(message)
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.args, self.__dict__.copy()))


class UnsupportedVersionError(WireError):
    """A version outside of what a message has.

    ``header`` is the request's header where one was read (so that it can still be answered, as
    KIP-511 asks for ApiVersions), else None.
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
    """An api key that no request of the protocol has. ``header`` as in UnsupportedVersionError."""

    def __init__(self, api_key: int, min_key: int, max_key: int, *, header: Any = None) -> None:
        super().__init__(
            f"unknown api key {api_key}: keys {min_key} to {max_key} are known", offset=0
        )
        self.api_key = api_key
        self.min_key = min_key
        self.max_key = max_key
        self.header = header


class HeaderError(DecodeError):
    """A request header that cannot be read. ``api_key`` is the best guess at the key, or None
    where the frame is too short to hold one."""

    def __init__(
        self, message: str, *, api_key: int | None, path: str = "", offset: int = -1
    ) -> None:
        super().__init__(message, path=path, offset=offset)
        self.api_key = api_key


def _rebuild(cls: type[WireError], args: tuple[object, ...], state: dict[str, object]) -> WireError:
    """Unpickle without calling a constructor whose arguments differ from ``args``."""
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(state)
    return error
