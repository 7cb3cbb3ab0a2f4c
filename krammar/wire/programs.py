"""The programs of generated classes, which the engine runs: what a struct puts on the wire at one version.

A program is made of the layout of the class on first use. Its vocabulary is that of layouts:

======================================================  ==============================================================
``"int32"``                                             a scalar: ``bool``, ``int8`` to ``int64``, ``uint8`` to
                                                        ``uint64``, ``float32``, ``float64``, ``uuid``, ``varint``,
                                                        ``varlong``, ``uvarint``, ``uvarlong``
``("string", prefix, nullable)``, ``("bytes", …)``      a text; prefixes are those of ``krammar.wire.layout.Text``
``("array", element, prefix, nullable)``                an array
``("struct", program, nullable, null)``                 a struct; ``null`` is the byte before it for null, otherwise 1
``("versioned", programs, nullable, null)``             a struct that begins with its version, and its programs by
                                                        version
``("sized", length, minus)``                            bytes; the number in the slot ``length`` minus ``minus`` is
                                                        their size
======================================================  ==============================================================

A field is ``(slot, type, default, tag, ignorable, counted, plus, entity)``. The default is a value, ``()`` for a new
list, or the program of a struct whose fields have their defaults. A length field has the slot of the bytes that it
counts, and what is added to their size. The entity is empty if the definition names none.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from types import MemberDescriptorType
from typing import Any

from krammar.wire._engine import Program
from krammar.wire.engine_loading import FORMAT
from krammar.wire.errors import UnsupportedVersionError
from krammar.wire.layout import (
    DEFAULTS,
    Array,
    Field,
    Layout,
    Nested,
    Scalar,
    Sized,
    Text,
    VarInteger,
    Versioned,
)
from krammar.wire.layout import Type as LayoutType
from krammar.wire.representation import named
from krammar.wire.tables import table_of


class _NoProgram(Exception):
    """The class or its layout is beyond the engine. Pure Python encodes it."""


def program_for(cls: Any, version: int) -> Program | None:
    """Return the program of a class at a version, or None if pure Python has to encode it.

    The class remembers it, for versions that exist.
    """
    try:
        known = cls._known_version(version)
    except UnsupportedVersionError:
        return None
    programs: dict[int, Program | None] = cls._programs
    if known not in programs:
        try:
            programs[known] = _program(cls, table_of(cls).layout(known))
        except _NoProgram:
            programs[known] = None
    return programs[known]


def _program(cls: Any, layout: Layout) -> Program:
    slots = _Slots(cls)
    groups = (
        [slots.field(item) for item in part] for part in (layout.fields, layout.tags, layout.absent)
    )
    fields, tags, absent = map(tuple, groups)
    try:
        return Program(
            FORMAT, cls, slots.find("_unknown_tags"), layout.flexible, fields, tags, absent
        )
    except ValueError as error:  # it is too deep
        raise _NoProgram from error


class _Slots:
    """The slots of a class, whose objects programs read and write."""

    def __init__(self, cls: Any) -> None:
        self._cls = cls
        for name in ("__new__", "__setattr__", "__getattribute__"):
            if getattr(cls, name) is not getattr(object, name):
                raise _NoProgram  # code of the user makes objects, or sees each access to them

    def find(self, name: str) -> MemberDescriptorType:
        found = inspect.getattr_static(self._cls, name)
        if not isinstance(found, MemberDescriptorType):
            raise _NoProgram  # a subclass has an attribute of its own in its place
        return found

    def field(self, item: Field) -> tuple[Any, ...]:
        default = self._default(item)
        counted = self.find(item.length_of) if item.length_of else None
        type_ = self._type(item.type)
        return (
            self.find(item.name),
            type_,
            default,
            item.tag or 0,
            item.ignorable,
            counted,
            item.plus,
            item.entity,
        )

    def _default(self, item: Field) -> Any:
        if item.default is not DEFAULTS:
            return item.default
        match item.type:
            case Nested(layout):
                return _program(named(self._cls, layout.name), layout)
            case Versioned(name):
                cls = named(self._cls, name)
                found = program_for(cls, getattr(cls(), cls._version_field))
                if found is not None:
                    return found
        raise _NoProgram

    def _type(self, type_: LayoutType) -> Any:
        match type_:
            case Scalar(name) | VarInteger(name):
                return name
            case Text(kind, prefix, nullable):
                return kind, prefix, nullable
            case Array(element, prefix, nullable):
                return "array", self._type(element), prefix, nullable
            case Nested(layout, nullable, tagged):
                program = _program(named(self._cls, layout.name), layout)
                return "struct", program, nullable, 0 if tagged else 255
            case Versioned(name, nullable=nullable, tagged=tagged):
                programs = _all(named(self._cls, name))
                return "versioned", programs, nullable, 0 if tagged else 255
            case Sized(length, minus):
                return "sized", self.find(length), minus
        raise _NoProgram


def _all(cls: Any) -> dict[int, Program | None]:
    """Return the programs of a struct with a version of its own, at all versions that are known."""
    versions: Iterable[int] = range(cls.min_version, cls.max_version + 1)
    for version in versions:
        program_for(cls, version)
    programs: dict[int, Program | None] = cls._programs
    return programs
