"""The fields of a layout, their defaults, and their values in dictionaries and messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any

from krammar.wire.layout.scalars import Type
from krammar.wire.layout.writer import Writer, value_text


class _Default(Enum):
    DEFAULTS = auto()
    NO_DEFAULT = auto()

    def __repr__(self) -> str:
        return self.name


# The default of a field that is a struct with default values.
DEFAULTS = _Default.DEFAULTS
# The default of a field that every dictionary must contain. Generated layouts have no such fields, because
# definitions have the default 0, false or empty for every field.
NO_DEFAULT = _Default.NO_DEFAULT


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a layout: its attribute, its type, and the versions of its definition.

    ``default`` is a value, () for an empty array, ``DEFAULTS`` or ``NO_DEFAULT``. ``tag`` is the number of a tagged
    field; it is written only if its value is not the default. For a length field, ``length_of`` is the counted
    field, and ``plus`` is added to its length in bytes. ``index`` is the place in the layout, tagged fields last; -1
    outside of a layout. ``ignorable`` is whether a version without the field may drop its value. ``entity`` is what
    the value names, such as ``topicName``. ``described`` returns the documentation of the definition.
    """

    name: str
    type: Type
    versions: str
    default: Any = NO_DEFAULT
    tag: int | None = None
    length_of: str = ""
    plus: int = 0
    index: int = -1
    ignorable: bool = False
    entity: str = ""
    described: Callable[[str], str] | None = field(default=None, compare=False, repr=False)

    @property
    def doc(self) -> str:
        """The documentation in the definition; empty if there is none, or no source file of the class."""
        return "" if self.described is None else self.described(self.name)


def default_of(item: Field) -> Any:
    """Return the default of a field for a dictionary: a new list, or a dictionary with default values."""
    if item.default is DEFAULTS:
        return item.type.defaults()
    return [] if item.default == () else item.default


def is_default(item: Field, value: Any) -> bool:
    """Return whether a value is the default of a field."""
    default = item.default
    if default is DEFAULTS:
        return item.type.holds_defaults(value)
    if default == () and default is not None:
        return isinstance(value, list | tuple) and not value
    if default is None or value is None:
        return default is value
    return bool(value == default)


def check_fields(
    title: str, fields: Sequence[Field], tags: Sequence[Field], absent: Sequence[Field]
) -> None:
    """Raise ValueError if two fields have the same name or tag, or a tagged field has no default."""
    names: set[str] = set()
    for item in (*fields, *tags, *absent):
        if item.name in names:
            raise ValueError(f"{title}: two fields have the name {item.name!r} (rename one)")
        names.add(item.name)
    numbers: set[int | None] = set()
    for item in tags:
        if item.tag in numbers:
            raise ValueError(
                f"{title}: another field has the tag {item.tag} of {item.name!r} too (give it another tag)"
            )
        numbers.add(item.tag)
        if item.default is NO_DEFAULT:
            raise ValueError(
                f"{title}: the tagged field {item.name!r} needs a default, for when it is not written"
            )


def with_index(item: Field, index: int) -> Field:
    """Return the field with its index in a layout: a copy if it already has another index in another layout."""
    if item.index not in (-1, index):
        item = replace(item)
    if item.index != index:
        # Set it in place although fields are frozen, because copies of all fields would double the time to
        # build a layout.
        object.__setattr__(item, "index", index)
    return item


class FieldValues:
    """The values of a struct that is to be written: those of a dictionary, or of a message."""

    __slots__ = ("given", "is_mapping", "writer")

    def __init__(self, given: Any, writer: Writer) -> None:
        self.given = given
        self.is_mapping = isinstance(given, Mapping)
        self.writer = writer

    def get(self, item: Field) -> Any:
        """Return the value of a field. The writer's path must contain the field, for errors."""
        if self.is_mapping:
            if item.name in self.given:
                return self.given[item.name]
            if item.default is NO_DEFAULT:
                raise self.writer.error("needs a value, since the field has no default")
            return default_of(item)
        try:
            return getattr(self.given, item.name)
        except AttributeError:
            raise self.writer.error(f"{value_text(self.given)} has no such field") from None

    @property
    def unknown_tags(self) -> Any:
        """The tagged fields that the layout does not know."""
        return self.given.get("unknown_tags") if self.is_mapping else self.given._unknown_tags

    def check(self, name: str, title: str, known: Sequence[Field]) -> None:
        """Raise EncodeError unless this is a message of the class ``name``, or a dictionary of its fields."""
        writer = self.writer
        if self.is_mapping and writer.plain:
            strange = set(self.given) - {item.name for item in known} - {"unknown_tags"}
            if strange:
                with writer.at(f".{min(map(str, strange))}"):
                    raise writer.error(f"{title} has no such field")
            return
        # Codecs accept every object with the right attributes. Here, another class is probably a mistake.
        names = [c.__qualname__ for c in type(self.given).__mro__]
        if not hasattr(self.given, "_fields") or (writer.plain and name not in names):
            raise writer.error(f"needs {name}, not {value_text(self.given)}")
