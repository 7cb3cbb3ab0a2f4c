"""What the definitions say about the fields of generated classes, and walkers to the values of an entity.

An *entity* is the kind of thing that a value names, in the words of Kafka's schemas (``entityType``), such as
``topicName``, or in words of the definitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import cache, partial
from typing import Any

from krammar.wire.documentation import docs_of
from krammar.wire.errors import UnsupportedVersionError
from krammar.wire.layout import Array, Layout, Nested, Scalar, Sized, Text, Type, Versioned
from krammar.wire.message import Codec, Struct
from krammar.wire.representation import named
from krammar.wire.tables import FieldForms, StructTable, table_of

# A version is an int16.
_ENDLESS = 1 << 15
# Names for annotations in FieldInfo, which has an attribute ``type``.
StructClass = type[Struct]
EnumClass = type[IntEnum]
Visit = Callable[[Any], Any]
Walker = Callable[[Any, Visit], None]
_Step = Callable[[Any, Visit], Any]

# An entity of ``walker``: the dictionaries of tagged fields that the definitions do not have. No field has this one.
UNKNOWN_TAGS = "unknown tags"


@dataclass(frozen=True, slots=True)
class FieldInfo:
    """A field of a generated class, in all versions.

    Attributes:
        name: the attribute
        type: the type in the notation of the definitions, such as ``[int32]``, of the newest version
            that has the field
        versions: the versions with the field; empty if no version has it
        nullable_versions: those in which its value can be None; empty if it never can
        default: the value if none is given: ``()`` for an empty array, a struct of defaults for a struct
        tag: the number of a tagged field, or None
        entity: what the value names, such as ``topicName``; empty if that is not defined
        ignorable: whether versions without the field drop its value instead of raising EncodeError
        struct, enum: the class of the struct or of the enum in the type, or None
        owner: the class with the field
    """

    owner: StructClass
    name: str
    type: str
    versions: range
    nullable_versions: range
    default: Any
    tag: int | None
    entity: str
    ignorable: bool
    struct: StructClass | None
    enum: EnumClass | None

    @property
    def doc(self) -> str:
        """The documentation in the definition; empty if there is none, or no source file of the class."""
        return docs_of(self.owner.__module__).get(self.owner.__qualname__, {}).get(self.name, "")


def fields(cls: type[Any]) -> tuple[FieldInfo, ...]:
    """Return the fields of a generated class, in the order of the definition.

    ``fields(MetadataResponse)`` describes the message, ``fields(MetadataResponse.Topic)`` a struct inside it.

    Raises:
        TypeError: the class is not generated.
    """
    key: Any = cls  # mypy takes instances, which have no hash, for their class
    return _fields(key)


@cache
def _fields(cls: Any) -> tuple[FieldInfo, ...]:
    table = _table(cls)
    message: Any = named(cls, cls.__qualname__.split(".")[0])
    last = _ENDLESS
    if issubclass(message, Codec) and not message._open_ended:
        last = message.max_version + 1
    fresh = cls()
    return tuple(_info(cls, item, last, fresh) for item in table.fields)


def _info(cls: type[Struct], item: FieldForms, last: int, fresh: Struct) -> FieldInfo:
    present = [(first, form) for first, form in item.forms.items() if form is not None]
    begin, type_ = (present[0][0], present[-1][1]) if present else (0, item.unused)
    ends = [first for first, form in item.forms.items() if form is None and first > begin]
    end = min([*ends, last]) if present else 0
    nullable = [first for first, form in present if form.nullable]
    inner = _element(type_)
    struct = inner.name if isinstance(inner, Versioned) else ""
    if isinstance(inner, Nested):
        struct = inner.layout.name
    enum = inner.enum if isinstance(inner, Scalar) else ""
    default = item.options["default"]
    return FieldInfo(
        owner=cls,
        name=item.name,
        type=_notation(type_),
        versions=range(begin, end),
        nullable_versions=range(nullable[0], end) if nullable else range(0),
        default=getattr(fresh, item.name) if struct and default not in (None, ()) else default,
        tag=item.options.get("tag"),
        entity=item.options.get("entity", ""),
        ignorable=item.options.get("ignorable", False),
        struct=named(cls, struct) if struct else None,
        enum=named(cls, enum) if enum else None,
    )


def walker(cls: type[Codec], version: int, *entities: str) -> Walker:
    """Return a function that visits all values of some entities in a message of a version.

    The function takes a message and a function that gets each value, in the order of the definition. What that one
    returns replaces the value, unless it is None. So ``walk(message, names.add)`` collects, and
    ``walk(message, lambda name: f"test-{name}")`` renames. Null is not visited, nor are fields that the version
    lacks. ``UNKNOWN_TAGS`` visits the dictionaries of unknown tagged fields, if they are not empty::

        walk = walker(MetadataResponse, 12, "topicName")
        walk(response, names.add)

    Raises:
        TypeError: the class is not generated, or cannot be encoded alone.
        UnsupportedVersionError: the class does not have this version.
        ValueError: no entity is given.
    """
    if not entities:
        raise ValueError("walker needs at least one entity, such as 'topicName'")
    key: Any = cls  # as in fields
    return _walker(key, version, frozenset(entities))


def entity_paths(cls: type[Codec], version: int, *entities: str) -> tuple[str, ...]:
    """Return where a message of a version has values of some entities, such as ``topics[].name``.

    The paths in a struct with a version of its own are those of all its versions.

    Errors are as for ``walker``.
    """
    return tuple(_paths(_layout(cls, version), frozenset(entities)))


@cache
def _walker(cls: type[Codec], version: int, entities: frozenset[str]) -> Walker:
    return _struct(_layout(cls, version), entities) or _visit_nothing


def _visit_nothing(message: Any, visit: Visit) -> None:
    """Walk over a message that has no values of the entities."""


def _struct(layout: Layout, entities: frozenset[str]) -> Walker | None:
    """Return a walker over a struct, or None if it has nothing to visit."""
    steps = [
        (item.name, step)
        for item in (*layout.fields, *layout.tags)
        if (step := _value(item.type, item.entity in entities, entities)) is not None
    ]
    tags = layout.flexible and UNKNOWN_TAGS in entities

    def walk(struct: Any, visit: Visit) -> None:
        for name, step in steps:
            value = getattr(struct, name)
            if value is not None and (new := step(value, visit)) is not None:
                setattr(struct, name, new)
        if tags and struct._unknown_tags and (new := visit(struct._unknown_tags)) is not None:
            struct._unknown_tags = new

    return walk if steps or tags else None


def _value(type_: Type, wanted: bool, entities: frozenset[str]) -> _Step | None:
    """Return a function that visits the values in a field's value, and returns what replaces that value, or None."""
    if isinstance(type_, Array):
        step = _value(type_.element, wanted, entities)
        return None if step is None else partial(_visit_elements, step)
    if isinstance(type_, Nested):
        return _struct(type_.layout, entities)
    if isinstance(type_, Versioned):
        return partial(_follow, entities)
    return _visit if wanted else None


def _visit(value: Any, visit: Visit) -> Any:
    return visit(value)


def _visit_elements(step: _Step, values: Any, visit: Visit) -> None:
    for index, value in enumerate(values):
        if value is not None and (new := step(value, visit)) is not None:
            values[index] = new


def _follow(entities: frozenset[str], value: Any, visit: Visit) -> None:
    """Visit a struct whose version field selects its layout."""
    cls: Any = type(value)
    try:
        walk = _walker(cls, getattr(value, cls._version_field), entities)
    except UnsupportedVersionError:
        return  # a default whose version does not exist has no fields
    walk(value, visit)


def _paths(layout: Layout, entities: frozenset[str]) -> Iterator[str]:
    for item in (*layout.fields, *layout.tags):
        place, type_ = item.name, item.type
        while isinstance(type_, Array):
            place, type_ = f"{place}[]", type_.element
        if item.entity in entities:
            yield place
        elif isinstance(type_, Nested):
            yield from (f"{place}.{path}" for path in _paths(type_.layout, entities))
        elif isinstance(type_, Versioned):
            # Its version is known only from a message, so these are the paths of all versions.
            versions = range(type_.cls.min_version, type_.cls.max_version + 1)
            paths = (_paths(type_.cls._layout(version), entities) for version in versions)
            yield from dict.fromkeys(f"{place}.{path}" for each in paths for path in each)


def _layout(cls: type[Codec], version: int) -> Layout:
    _table(cls)
    if not hasattr(cls, "_layout"):
        raise TypeError(f"{cls.__qualname__} cannot be encoded alone: walk the message around it")
    return cls._layout(version)


def _table(cls: type[Any]) -> StructTable:
    try:
        return table_of(cls)
    except (AttributeError, ImportError, KeyError):
        raise TypeError(f"{cls!r} is not a class that krammar generated") from None


def _element(type_: Any) -> Any:
    while isinstance(type_, Array):
        type_ = type_.element
    return type_


def _notation(type_: Any) -> str:
    """Return a type as in definitions, without what depends on the version: nulls, and the form of lengths."""
    if isinstance(type_, Array):
        return f"[{_notation(type_.element)}]"
    if isinstance(type_, Nested):
        return type_.layout.name
    if isinstance(type_, Text):
        return type_.kind
    if isinstance(type_, Scalar):
        return f"enum-{type_.enum}" if type_.enum else type_.name
    if isinstance(type_, Sized):
        return "bytes"
    return str(type_.name)
