"""The base class of generated structs whose first field is the version."""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

from krammar.wire.errors import DecodeError, EncodeError
from krammar.wire.message import Buffer, Codec

V = TypeVar("V", bound="VersionedCodec")


class VersionedCodec(Codec):
    """The base class of structs whose first field is the version, which selects the layout."""

    __slots__ = ()

    _version_field: ClassVar[str] = "version"
    # Whether versions above max_version are decoded like it.
    _reads_newer: ClassVar[bool] = False

    def encode(self, version: int | None = None) -> bytes:
        """Return the bytes, at the version in the version field.

        Raises:
            EncodeError: the layout cannot represent a value, or ``version`` differs from the field.
            UnsupportedVersionError: the class does not have this version.
        """
        return super().encode(self._own_version(version))

    def encode_into(self, out: bytearray, version: int | None = None) -> None:
        """Append the bytes to ``out``. Arguments and errors are as for ``encode``."""
        super().encode_into(out, self._own_version(version))

    def _own_version(self, version: int | None) -> int:
        own = getattr(self, self._version_field)
        if not isinstance(own, int) or not -32768 <= own <= 32767:
            raise EncodeError(
                f"{type(self).__name__}: {self._version_field}: {own!r} is not an int16",
                path=self._version_field,
            )
        if version is not None and version != own:
            raise EncodeError(
                f"{type(self).__name__}: the version field says {own}, not {version}",
                path=self._version_field,
            )
        return own

    @classmethod
    def decode(cls: type[V], data: Buffer, version: int | None = None, copy: bool = True) -> V:
        """Decode ``data``, at the version in its first two bytes.

        If ``version`` is given and differs, DecodeError is raised. Otherwise as ``Codec.decode``.

        If the definition says so, a newer version is decoded like the last one. The result has the last version, and
        the bytes after its fields are ignored.
        """
        found = cls._peek_version(data, 0, version)
        if cls._reads_newer and found > cls.max_version:
            return cls._decode_newer(data, 0, copy)
        return super().decode(data, found, copy)

    @classmethod
    def decode_from(
        cls: type[V],
        data: Buffer,
        offset: int = 0,
        version: int | None = None,
        copy: bool = True,
    ) -> tuple[V, int]:
        """Decode one message at ``offset``, in bytes. Returns it and the offset after it.

        Where a message in a newer version ends is unknown, so all bytes belong to it.
        """
        found = cls._peek_version(data, offset, version)
        if cls._reads_newer and found > cls.max_version:
            return cls._decode_newer(data, offset, copy), len(data)
        return super().decode_from(data, offset, found, copy)

    @classmethod
    def _decode_newer(cls: type[V], data: Buffer, offset: int, copy: bool) -> V:
        value, _ = super().decode_from(data, offset, cls.max_version, copy)
        setattr(value, cls._version_field, cls.max_version)
        return value

    @classmethod
    def _peek_version(cls, data: Buffer, offset: int, expected: int | None) -> int:
        left = len(data) - offset
        if offset < 0 or left < 2:
            raise DecodeError(
                f"{cls.__name__}: {cls._version_field}: needs 2 bytes at offset {offset}, "
                f"{max(0, left)} left",
                path=cls._version_field,
                offset=offset,
            )
        version = int.from_bytes(data[offset : offset + 2], "big", signed=True)
        if expected is not None and version != expected:
            raise DecodeError(
                f"{cls.__name__}: the version field says {version}, not {expected}",
                path=cls._version_field,
                offset=offset,
            )
        return version

    def _encode_inside(self, parts: list[bytes]) -> None:
        """Encode the value inside another struct's codec."""
        version = self._own_version(None)
        self._encoder(version)(self, parts, version)


def decode_inside(cls: type[V], buf: bytes, pos: int, view: Any) -> tuple[V, int]:
    """Decode a value with a version of its own inside another struct's codec."""
    version = int.from_bytes(buf[pos : pos + 2], "big", signed=True)
    return cls._decoder(version)(buf, pos, view, version)
