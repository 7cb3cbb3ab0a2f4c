"""The layout of a struct at a version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any

from krammar.wire.errors import DecodeError
from krammar.wire.layout.fields import (
    NO_DEFAULT,
    Field,
    FieldValues,
    check_fields,
    default_of,
    is_default,
    with_index,
)
from krammar.wire.layout.reader import Node, Reader
from krammar.wire.layout.scalars import Type
from krammar.wire.layout.types import Array, Sized, Text, null_word, read_presence
from krammar.wire.layout.writer import Writer, value_text

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Nested(Type):
    """A struct in place.

    A byte precedes a nullable struct: 1, or an int8 of -1 for null. If ``tagged``, null is 0: in a tagged field, an
    unsigned varint, or a bool elsewhere.
    """

    layout: Layout
    nullable: bool
    tagged: bool = False

    def __str__(self) -> str:
        return f"{'NULLABLE ' if self.nullable else ''}{self.layout.name}"

    @property
    def min_size(self) -> int:
        return 1 if self.nullable else self.layout.min_size

    def read(self, reader: Reader) -> dict[str, Any] | None:
        if self.nullable and not read_presence(reader, self.tagged):
            return None
        return self.layout.read_fields(reader)

    def write(self, value: Any, writer: Writer) -> None:
        if self.nullable:
            if value is None:
                writer.out += b"\x00" if self.tagged else b"\xff"
                return
            writer.out += b"\x01"
        self.layout.write_fields(value, writer)

    def word(self, name: str) -> str:
        return null_word(name, self.tagged) if self.nullable else name

    def defaults(self) -> dict[str, Any]:
        fields = (*self.layout.fields, *self.layout.tags)
        return {f.name: default_of(f) for f in fields if f.default is not NO_DEFAULT}

    def holds_defaults(self, value: Any) -> bool:
        return self.layout.holds_defaults(value)


@dataclass(frozen=True)
class Layout:
    """The bytes of a struct at a version: its fields in order, then its tagged fields.

    ``flexible`` is whether tagged fields follow (KIP-482). ``absent`` are the fields that other versions have, with
    their types there.

    Raises:
        ValueError: two fields have the same name or tag, or a tagged field has no default.
    """

    name: str
    version: int
    flexible: bool
    fields: tuple[Field, ...]
    tags: tuple[Field, ...] = ()
    absent: tuple[Field, ...] = ()

    def __post_init__(self) -> None:
        check_fields(self.title, self.fields, self.tags, self.absent)
        first = len(self.fields)
        fields = tuple(with_index(item, i) for i, item in enumerate(self.fields))
        tags = tuple(with_index(item, i) for i, item in enumerate(self.tags, first))
        object.__setattr__(self, "fields", fields)
        object.__setattr__(self, "tags", tags)

    @property
    def title(self) -> str:
        """The name and the version, for errors."""
        return f"{self.name} v{self.version}"

    def trailing(self, size: int, end: int) -> str:
        """Return the error for ``size`` bytes if the value ends at ``end``."""
        return f"{self.title}: {size - end} bytes left over at offset {end}"

    def field(self, key: str | int) -> Field:
        """Return a field by its attribute or by its ``index``.

        Raises:
            KeyError: no field has that name.
            IndexError: no field has that index.
        """
        fields = (*self.fields, *self.tags)
        if isinstance(key, int):
            if not 0 <= key < len(fields):
                raise IndexError(
                    f"{self.title} has no field {key}: it has {len(fields)} fields, from 0"
                )
            return fields[key]
        for item in fields:
            if item.name == key:
                return item
        raise KeyError(
            f"{self.title} has no field {key!r}: it has {', '.join(f.name for f in fields)}"
        )

    def at(self, version: int) -> Layout:
        """Return the layout with the number of another version that shares it."""
        if version == self.version:
            return self
        # Elements of an array can each have a version, so the checks of a new layout would take too long.
        other = copy(self)
        object.__setattr__(other, "version", version)
        return other

    @property
    def min_size(self) -> int:
        """The minimum number of bytes of a value."""
        return sum(f.type.min_size for f in self.fields) + (1 if self.flexible else 0)

    def __str__(self) -> str:
        return self.notation(f"{self.name} (Version: {self.version})")

    def notation(self, title: str, tags: str = "_tagged_fields") -> str:
        """Return the layout in the notation of Kafka's protocol guide, one line per field.

        The guide does not show which arrays and structs can be null. Here they are ``nullable[topics]`` and
        ``nullable(cursor)``, and ``[nullable(topics)]`` an array of such structs. ``{}`` is a struct without fields. In
        flexible versions, ``classic[sizes]`` and ``classic(cursor)`` are arrays and structs with classic encoding. A
        tagged field has a line that begins with its tag.

        Args:
            tags: the word at the end of structs with tagged fields; ``TAG_BUFFER`` in older guides.
        """
        return "\n".join(_notation_lines(title, self, "", tags))

    def read(self, data: Buffer, copy: bool = True) -> dict[str, Any]:
        """Decode ``data`` to dictionaries with attributes as keys.

        Unknown tagged fields are under ``"unknown_tags"``.

        Args:
            copy: False makes fields of bytes memoryviews, as for ``Codec.decode``.

        Raises:
            DecodeError: the bytes do not match the layout, or bytes are left over.
        """
        value, end = self.read_from(data, 0, copy)
        if end != len(data):
            raise DecodeError(self.trailing(len(data), end), offset=end)
        return value

    def read_from(self, data: Buffer, offset: int, copy: bool = True) -> tuple[dict[str, Any], int]:
        """Decode one value at ``offset``, in bytes. Returns it and the offset after it."""
        reader = Reader(self.title, bytes(data), offset, copy)
        return self.read_fields(reader), reader.pos

    def write(self, values: Mapping[str, Any]) -> bytes:
        """Encode a dictionary as ``read`` returns it. Absent fields get their defaults.

        Raises:
            EncodeError: a value is invalid. It contains the path.
        """
        writer = Writer(self.title)
        self.write_fields(values, writer)
        return bytes(writer.out)

    def validate(self, values: Any) -> Any:
        """Return ``values``, a dictionary or a message of this class, if they can be written.

        Raises:
            EncodeError: a value is invalid. It contains the path.
        """
        self.write(values)
        return values

    def size_of(self, values: Any) -> int:
        """Return the number of bytes of ``values``. Raises EncodeError as ``validate`` does."""
        return len(self.write(values))

    def trace(self, data: Buffer, *, whole: bool = True) -> Node:
        """Decode ``data`` to a tree of nodes, which contain the bytes of each value.

        Args:
            whole: False allows bytes after the value.

        Raises:
            DecodeError: the bytes do not match the layout. Its attribute ``node`` is the tree up to the error.
        """
        reader = Reader(self.title, bytes(data), 0)
        root = Node(self.name, self.name, 0, 0)
        reader.nodes = [root]
        try:
            root.value = self.read_fields(reader)
            if whole and reader.pos != len(data):
                raise DecodeError(self.trailing(len(data), reader.pos), offset=reader.pos)
        except DecodeError as error:
            error.node = root  # type: ignore[attr-defined]
            raise
        finally:
            root.end = reader.pos
        return root

    def read_fields(self, reader: Reader) -> dict[str, Any]:
        """Read the values of all fields."""
        values: dict[str, Any] = {}
        for item in self.fields:
            with reader.at(f".{item.name}", item.type):
                if isinstance(item.type, Sized):
                    length = values[item.type.length_field] - item.type.minus
                    if length < 0:
                        raise reader.error(
                            f"{item.type.length_field} is {values[item.type.length_field]}, "
                            f"less than {item.type.minus}"
                        )
                    value: Any = reader.slice(length)
                else:
                    value = item.type.read(reader)
                reader.note(value)
            values[item.name] = value
        if self.flexible:
            for item in self.tags:
                values[item.name] = default_of(item)
            self._read_tags(reader, values)
        return values

    def _read_tags(self, reader: Reader, values: dict[str, Any]) -> None:
        known = {item.tag: item for item in self.tags}
        unknown: dict[int, bytes] = {}
        for tag, size in reader.tag_heads():
            end = reader.pos + size
            item = known.get(tag)
            if item is None:
                with reader.at(f".unknown_tags[{tag}]", None):
                    unknown[tag] = reader.take(size)
                    reader.note(unknown[tag])
                continue
            with reader.at(f".{item.name}", item.type):
                values[item.name] = item.type.read(reader)
                reader.note(values[item.name])
                if reader.pos != end:
                    raise reader.error(
                        f"tag {tag} takes {reader.pos - end + size} bytes, but its size says {size}",
                        reader.pos,
                    )
        if unknown:
            values["unknown_tags"] = unknown

    def write_fields(self, value: Any, writer: Writer) -> None:
        """Write a dictionary, or a message of this class."""
        values = FieldValues(value, writer)
        values.check(self.name, self.title, (*self.fields, *self.tags, *self.absent))
        for item in self.absent:
            found = values.get(item)
            if not item.ignorable and not is_default(item, found):
                with writer.at(f".{item.name}"):
                    raise writer.error(_lost(self, item, found))
        for item in self.fields:
            if not item.length_of:
                with writer.at(f".{item.name}"):
                    item.type.write(values.get(item), writer)
                continue
            counted = next(each for each in self.fields if each.name == item.length_of)
            with writer.at(f".{counted.name}"):
                data = values.get(counted)
                if not hasattr(data, "__len__"):
                    raise writer.error(f"needs bytes, not {value_text(data)}")
            with writer.at(f".{item.name}"):
                item.type.write(len(data) + item.plus, writer)
        if not self.flexible:
            return
        fields: dict[int, bytes] = {}
        for item in self.tags:
            with writer.at(f".{item.name}"):
                found = values.get(item)
                if (writer.plain or not isinstance(found, Mapping)) and is_default(item, found):
                    continue
                inner = writer.inner()
                item.type.write(found, inner)
                assert item.tag is not None
                fields[item.tag] = bytes(inner.out)
        names = {item.tag: item.name for item in self.tags if item.tag is not None}
        writer.tags(names, fields, values.unknown_tags)

    def holds_defaults(self, value: Any) -> bool:
        """Return whether a dictionary or a message has the default values of all fields."""
        fields = (*self.fields, *self.tags, *self.absent)
        if isinstance(value, Mapping):
            return not value.get("unknown_tags") and all(
                f.name not in value or is_default(f, value[f.name]) for f in fields
            )
        if not hasattr(value, "_fields"):
            return False
        return not value._unknown_tags and all(
            is_default(f, getattr(value, f.name, None)) for f in fields
        )


def _lost(layout: Layout, item: Field, value: Any) -> str:
    """Return the error for a value of a field that the layout does not have."""
    if item.versions == "none":
        return (
            f"no version of {layout.name} has this field, so it cannot carry {value_text(value)} "
            "(leave the default)"
        )
    return (
        f"version {layout.version} has no such field, so it cannot carry {value_text(value)} "
        f"(the field exists in {item.versions}; encode such a version, or leave the default)"
    )


def _word(item: Field, layout: Layout) -> str:
    """Return a field in the line of its struct.

    In a flexible version, a mark shows that the field is not flexible, or that only its count is an int32.
    """
    word, type_ = item.type.word(item.name), item.type
    if item.tag is not None and not isinstance(type_, Array):
        # The byte before a nullable struct in a tagged field is always 0 or 1.
        word = word.replace("nullable-bool(", "nullable(")
    if not layout.flexible:
        return word
    classic = isinstance(type_, Array) and type_.prefix == "int32"
    while isinstance(type_, Array):
        type_ = type_.element
    compact = isinstance(type_, Text) and type_.prefix == "uvarint"
    compact = compact or (isinstance(type_, Nested) and type_.layout.flexible)
    if classic and (compact or item.tag is not None):
        return word.replace("nullable[", "nullable-int32[") if word[0] == "n" else f"int32{word}"
    if not classic and not (isinstance(type_, Nested) and not type_.layout.flexible):
        return word
    if word == item.name:
        return f"classic({word})"
    return f"classic{'' if word.startswith('[') else '-'}{word}"


def _notation_lines(label: str, layout: Layout, indent: str, tags: str) -> Iterator[str]:
    """Yield the lines of a layout in the notation of Kafka's protocol guide."""
    words = [_word(item, layout) for item in layout.fields]
    if layout.flexible:
        words.append(tags)
    elif not words and indent:
        words.append("{}")
    yield f"{indent}{label} => {' '.join(words)}".rstrip()
    indent += "  "
    for item in (*layout.fields, *layout.tags):
        label = item.name
        if item.tag is not None:
            label = f"<tag {item.tag}> {_word(item, layout)}"
        type_ = item.type
        while isinstance(type_, Array):
            type_ = type_.element
        if isinstance(type_, Nested):
            yield from _notation_lines(label, type_.layout, indent, tags)
        else:
            yield f"{indent}{label} => {type_}"
