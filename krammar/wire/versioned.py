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
        """
        return super().decode(data, cls._peek_version(data, 0, version), copy)

    @classmethod
    def decode_from(
        cls: type[V],
        data: Buffer,
        offset: int = 0,
        version: int | None = None,
        copy: bool = True,
    ) -> tuple[V, int]:
        """Decode one message at ``offset``, in bytes. Returns it and the offset after it."""
        return super().decode_from(data, offset, cls._peek_version(data, offset, version), copy)

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
        self._encoders[self._known_version(version)](self, parts, version)


def decode_inside(cls: type[V], buf: bytes, pos: int, view: Any) -> tuple[V, int]:
    """Decode a value with a version of its own inside another struct's codec."""
    version = int.from_bytes(buf[pos : pos + 2], "big", signed=True)
    decoder = cls._decoders.get(version) or cls._decoders[cls._known_version(version)]
    return decoder(buf, pos, view, version)
