"""Base classes of generated structs and messages.

A generated module defines the slots and the constructor of each class, and a table of codecs by version for
classes that can be encoded alone. The base classes contain everything that all classes share.
Every generated module imports this file, so representations, layouts and precise errors are imported on first use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from krammar.wire.engine_loading import ENGINE
from krammar.wire.errors import DecodeError, EncodeError, UnsupportedVersionError
from krammar.wire.primitives import FAILURES, Malformed, as_bytes

if TYPE_CHECKING:
    from krammar.wire._engine import Program
    from krammar.wire.layout import Layout

# Arguments: the bytes, a position, the bytes or a memoryview from which fields of bytes are sliced, the version.
Decoder = Callable[[bytes, int, Any, int], tuple[Any, int]]
Encoder = Callable[[Any, list[bytes], int], None]
Buffer = bytes | bytearray | memoryview
_D = TypeVar("_D", bound=Decoder)
_E = TypeVar("_E", bound=Encoder)
S = TypeVar("S", bound="Struct")
C = TypeVar("C", bound="Codec")


class Struct:
    """The base class of generated structs: attributes in slots, equality by value, dictionaries for JSON.

    ``_fields`` are the attributes in the order of the definition. ``_lengths`` are the length fields
    (``length-field-minus``), each with the counted field and the number that is added to its length in bytes.
    """

    __slots__ = ("_unknown_tags",)

    def __init_subclass__(cls, **facts: Any) -> None:
        """Set class facts, such as ``api_key`` and the first and last of ``versions``, from keywords."""
        cls._fields = vars(cls).get("__match_args__", cls._fields)
        if "versions" in facts:
            cls.min_version, cls.max_version = facts.pop("versions")  # type: ignore[attr-defined]
            cls._decoders, cls._encoders, cls._programs = {}, {}, {}  # type: ignore[attr-defined]
        elif "_decoders" not in vars(cls) and "__match_args__" not in vars(cls):
            # A class of the user: what decodes to its objects is made on first use.
            cls._decoders, cls._programs = {}, {}  # type: ignore[attr-defined]
        for name, value in facts.items():
            setattr(cls, name, value)

    _fields: ClassVar[tuple[str, ...]] = ()
    _lengths: ClassVar[dict[str, tuple[str, int]]] = {}
    _unknown_tags: dict[int, bytes] | None

    @property
    def unknown_tags(self) -> dict[int, bytes]:
        """Tagged fields that the definition does not know, by tag. Encoding writes them back."""
        tags = self._unknown_tags
        if tags is None:
            tags = self._unknown_tags = {}
        return tags

    @unknown_tags.setter
    def unknown_tags(self, tags: dict[int, bytes]) -> None:
        self._unknown_tags = tags

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        assert isinstance(other, Struct)
        if (self._unknown_tags or None) != (other._unknown_tags or None):
            return False
        fields = self._fields
        if not fields:
            return True
        values = attrgetter(*fields)
        return bool(values(self) == values(other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        from krammar.wire.representation import text_of

        return text_of(self)

    def __copy__(self: S) -> S:
        cls = type(self)
        result = cls.__new__(cls)
        for name in self._fields:
            setattr(result, name, getattr(self, name))
        return result.with_unknown_tags(self._unknown_tags)

    def __replace__(self: S, /, **changes: Any) -> S:
        """Return a copy with other values of some fields, for ``copy.replace`` of Python 3.13."""
        values = {name: getattr(self, name) for name in self._fields}
        return type(self)(**{**values, **changes}).with_unknown_tags(self._unknown_tags)

    def __setstate__(self, state: Any) -> None:
        """Restore a pickle. Fields that the definition has got since have their defaults."""
        others, values = state if isinstance(state, tuple) else (None, state)
        for name, value in (others or {}).items():
            setattr(self, name, value)
        for name, value in values.items():
            setattr(self, name, value)
        missing = {*self._fields, "_unknown_tags"} - values.keys()
        if missing:
            usual = type(self)()
            for name in missing:
                setattr(self, name, getattr(usual, name))

    def with_unknown_tags(self: S, tags: Mapping[int, bytes] | None) -> S:
        """Set the tagged fields that the definition does not know, and return this struct."""
        self._unknown_tags = dict(tags) if tags else None
        return self

    def with_lengths(self: S) -> S:
        """Return a copy whose length fields have the values that encoding writes, in nested structs too.

        Encoding ignores the values of length fields and writes the actual lengths. So ``decode(encode(x))``
        equals ``x.with_lengths()``. Only classes with a ``length-field-minus`` have length fields.

        Raises:
            EncodeError: the counted field is not a bytes object.
        """
        result = copy(self)
        for name in self._fields:
            setattr(result, name, _with_lengths(getattr(self, name)))
        for name, (counted, plus) in self._lengths.items():
            try:
                setattr(result, name, len(as_bytes(getattr(self, counted))) + plus)
            except Malformed:
                raise EncodeError(
                    f"{type(self).__name__}: {counted}: needs bytes, not "
                    f"{type(getattr(self, counted)).__name__}",
                    path=counted,
                ) from None
        return result

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON: bytes as base64, uuids as text, structs as dictionaries."""
        from krammar.wire.representation import to_dict

        return to_dict(self)

    @classmethod
    def from_dict(cls: type[S], values: dict[str, Any]) -> S:
        """Build a struct from a dictionary, as the inverse of ``to_dict``. Absent fields get their defaults.

        Raises:
            EncodeError: a key is not a field, or a value has the wrong type.
        """
        from krammar.wire.representation import from_dict

        return from_dict(cls, values)  # type: ignore[no-any-return]


class Codec(Struct):
    """The base class of structs that can be encoded alone. The caller passes the version."""

    __slots__ = ()

    min_version: ClassVar[int] = 0
    max_version: ClassVar[int] = 0
    flexible_from: ClassVar[int | None] = None
    _decoders: ClassVar[dict[int, Decoder]] = {}
    _encoders: ClassVar[dict[int, Encoder]] = {}
    # What the engine runs instead. None: it cannot.
    _programs: ClassVar[dict[int, Program | None]] = {}
    # Whether versions above max_version exist and share its layout, because the definition has no last version.
    _open_ended: ClassVar[bool] = False

    def encode(self, version: int) -> bytes:
        """Return the bytes at ``version``.

        Values of fields that the version lacks are refused, unless they are the default, or the field is
        ignorable, as Kafka calls it: those are left out.

        Raises:
            EncodeError: the version cannot carry a value. It names the field and the versions that have it.
            UnsupportedVersionError: the class does not have this version.
        """
        parts: list[bytes] = []
        self._encode_parts(version, parts)
        return b"".join(parts)

    def encode_into(self, out: bytearray, version: int) -> None:
        """Append the bytes at ``version`` to ``out``. An error leaves ``out`` unchanged."""
        parts: list[bytes] = []
        self._encode_parts(version, parts)
        out += b"".join(parts)

    def _encode_parts(self, version: int, parts: list[bytes]) -> None:
        encoder = self._encoder(version)
        began = len(parts)
        try:
            encoder(self, parts, version)
        except FAILURES as cause:
            del parts[began:]
            raise self._explain_encode(version, cause) from None

    def _explain_encode(self, version: int, cause: BaseException) -> EncodeError:
        from krammar.wire.layout.explain import explain_encode

        return explain_encode(self, self._layout(version), cause)

    @classmethod
    def decode(cls: type[C], data: Buffer, version: int, copy: bool = True) -> C:
        """Decode ``data`` at ``version``. Bytes after the message are an error.

        Args:
            copy: False makes fields of bytes memoryviews of ``data``, which stays in memory as long as they do.
                Such a message cannot be pickled. If ``data`` is not ``bytes``, it is copied first.

        Raises:
            DecodeError: the bytes do not match the layout. It contains the path and the offset.
            UnsupportedVersionError: the class does not have this version.
        """
        if data.__class__ is not bytes:
            data = bytes(memoryview(data))
        decoder = cls._decoder(version)
        try:
            value, end = decoder(data, 0, data if copy else memoryview(data), version)
            if end == len(data):
                return value  # type: ignore[no-any-return]
        except FAILURES:
            pass
        raise cls._explain_decode(data, version, 0, whole=True) from None

    @classmethod
    def decode_from(
        cls: type[C], data: Buffer, offset: int, version: int, copy: bool = True
    ) -> tuple[C, int]:
        """Decode one message at ``offset``, in bytes. Returns it and the offset after it.

        If ``data`` is not ``bytes``, the part from ``offset`` on is copied first. ``copy`` and errors are as for
        ``decode``.
        """
        if not 0 <= offset <= len(data):
            raise DecodeError(f"offset {offset} is outside of {len(data)} bytes", offset=offset)
        shift = 0
        if data.__class__ is not bytes:
            shift = offset
            data = bytes(memoryview(data)[offset:])
            offset = 0
        decoder = cls._decoder(version)
        try:
            value, end = decoder(data, offset, data if copy else memoryview(data), version)
            if end <= len(data):
                return value, end + shift
        except FAILURES:
            pass
        raise cls._explain_decode(data, version, offset, whole=False, shift=shift) from None

    @classmethod
    def _decode_quietly(
        cls: type[C], data: bytes, offset: int, version: int, copy: bool = True
    ) -> tuple[C, int] | None:
        """Decode as ``decode_from``. Returns None for bytes that do not match, without the work of finding out where.

        Raises:
            UnsupportedVersionError: the class does not have this version.
        """
        decoder = cls._decoder(version)
        try:
            value, end = decoder(data, offset, data if copy else memoryview(data), version)
        except FAILURES:
            return None
        return (value, end) if end <= len(data) else None

    @classmethod
    def _explain_decode(
        cls, data: bytes, version: int, offset: int, *, whole: bool, shift: int = 0
    ) -> DecodeError:
        from krammar.wire.layout.explain import explain_decode

        return explain_decode(cls._layout(version), data, offset, whole, shift)

    @classmethod
    def _known_version(cls, version: int) -> int:
        """The version whose codecs are used for ``version``. Raises UnsupportedVersionError."""
        if isinstance(version, int):
            if cls.min_version <= version <= cls.max_version:
                return version
            if cls._open_ended and version > cls.max_version:
                return cls.max_version
            if cls._open_ended and cls.max_version == 0 and hasattr(cls, "_version_field"):
                return 0  # the definition mentions no versions, so all share one layout
        raise UnsupportedVersionError(
            cls.__name__,
            version,
            cls.min_version,
            cls.max_version,
            api_key=getattr(cls, "api_key", None),
        )

    @classmethod
    def _decoder(cls, version: int) -> Decoder:
        """The decoder of a version. Raises UnsupportedVersionError."""
        found = cls._decoders.get(version)
        if found is None:
            known = cls._known_version(version)
            if known not in cls._decoders:
                cls._load_codecs()
            found = cls._decoders[known]
        return found

    @classmethod
    def _encoder(cls, version: int) -> Encoder:
        """The encoder of a version. Raises UnsupportedVersionError."""
        found = cls._encoders.get(version)
        if found is None:
            known = cls._known_version(version)
            if known not in cls._encoders:
                cls._load_codecs()
            found = cls._encoders[known]
        return found

    @classmethod
    def _load_codecs(cls) -> None:
        """Import the codecs in pure Python.

        Modules that another version of krammar generated contain them themselves.
        """
        base: Any = next(each for each in cls.__mro__ if "__match_args__" in vars(each))
        if not base._decoders:
            package, _, module = base.__module__.rpartition(".")
            import_module(f"{package}._codecs.{module}")
        if base is not cls:
            cls._decoders.update({v: _decoder_of(cls, f) for v, f in base._decoders.items()})

    @classmethod
    def _load_program(cls, version: int) -> Program | None:
        """Return what the engine runs for a version, or None. The module with programs is imported on first use."""
        from krammar.wire.programs import program_for

        return program_for(cls, version)

    @classmethod
    def _layout(cls, version: int) -> Layout:
        """The layout at ``version``. The module with tables is imported on first use."""
        from krammar.wire.tables import table_of

        return table_of(cls).layout(cls._known_version(version)).at(version)


class Request(Codec):
    """The base class of requests.

    ``routing`` is where the request is sent: "" (any broker), "admin" (the controller), "group coordinator",
    "txn coordinator" or "share coordinator".
    """

    __slots__ = ()

    api_key: ClassVar[int] = -1
    routing: ClassVar[str] = ""
    response_class: ClassVar[Any] = None


class Push(Codec):
    """The base class of messages that a server sends by itself."""

    __slots__ = ()

    api_key: ClassVar[int] = -1


class Response(Codec):
    """The base class of responses.

    ``throttle_from`` is the version from which the broker throttles after it has sent the response (KIP-219),
    or None.
    """

    __slots__ = ()

    api_key: ClassVar[int] = -1
    request_class: ClassVar[Any] = None
    throttle_from: ClassVar[int | None] = None


def decoder(cls: type[Codec], versions: Iterable[int]) -> Callable[[_D], _D]:
    """Make a function the decoder of a generated class for some versions."""

    def register(function: _D) -> _D:
        cls._decoders.update(dict.fromkeys(versions, function))
        return function

    return register


def encoder(cls: type[Codec], versions: Iterable[int]) -> Callable[[_E], _E]:
    """Make a function the encoder of a generated class for some versions."""

    def register(function: _E) -> _E:
        cls._encoders.update(dict.fromkeys(versions, function))
        return function

    return register


def _decoder_of(cls: Any, base: Decoder) -> Decoder:
    """Return a decoder of a generated class that returns objects of the class ``cls``, which inherits from it."""

    def decode(data: bytes, pos: int, view: Any, version: int) -> tuple[Any, int]:
        value, end = base(data, pos, view, version)
        result = cls.__new__(cls)
        for name in (*value._fields, "_unknown_tags"):
            setattr(result, name, getattr(value, name))
        return result, end

    return decode


def _with_lengths(value: Any) -> Any:
    if isinstance(value, Struct):
        return value.with_lengths()
    if isinstance(value, (list, tuple)):
        return [_with_lengths(element) for element in value]
    return value


# The methods of Codec in pure Python that the engine has replaced, by name. It calls them for what it declines.
REPLACED: dict[str, Callable[..., Any]] = {} if ENGINE is None else ENGINE.install(Codec)
