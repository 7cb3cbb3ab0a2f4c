"""Tables of generated structs: each field with its type in every version.

A module of tables belongs to each generated module, and is imported on first use: for the layout of a struct at
a version, and for facts about its fields (``krammar.wire.reflection``).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cached_property
from importlib import import_module
from typing import Any

from krammar.wire import layout
from krammar.wire.documentation import docs_of
from krammar.wire.layout import DEFAULTS as DEFAULTS
from krammar.wire.layout import Array as Array
from krammar.wire.layout import Layout, Nested, Scalar, Type
from krammar.wire.layout import Sized as Sized
from krammar.wire.layout import Text as Text
from krammar.wire.layout import Versioned as Versioned
from krammar.wire.primitives import NULL_UUID as NULL_UUID

# Short names for the modules of tables, as in Kafka's protocol guide.
BOOL, UUID = layout.BOOL, layout.UUID_
FLOAT32, FLOAT64 = layout.FLOAT32, layout.FLOAT64
INT8, INT16, INT32, INT64 = layout.INT8, layout.INT16, layout.INT32, layout.INT64
UINT8, UINT16 = layout.UINT8, layout.UINT16
UINT32, UINT64 = layout.UINT32, layout.UINT64
VARINT, VARLONG = layout.VARINT, layout.VARLONG
UVARINT, UVARLONG = layout.UVARINT, layout.UVARLONG
STRING, NULLABLE_STRING = Text("string", "int16", False), Text("string", "int16", True)
BYTES, NULLABLE_BYTES = Text("bytes", "int32", False), Text("bytes", "int32", True)
RECORDS, NULLABLE_RECORDS = Text("bytes", "int32", False, True), Text("bytes", "int32", True, True)
COMPACT_STRING = Text("string", "uvarint", False)
COMPACT_NULLABLE_STRING = Text("string", "uvarint", True)
COMPACT_BYTES = Text("bytes", "uvarint", False)
COMPACT_NULLABLE_BYTES = Text("bytes", "uvarint", True)
COMPACT_RECORDS = Text("bytes", "uvarint", False, True)
COMPACT_NULLABLE_RECORDS = Text("bytes", "uvarint", True, True)
VARINT_STRING, VARINT_NULLABLE_STRING = Text("string", "varint", False), Text(
    "string", "varint", True
)
VARINT_BYTES, VARINT_NULLABLE_BYTES = Text("bytes", "varint", False), Text("bytes", "varint", True)


def enum(name: str, type_: Scalar) -> Scalar:
    """Return the type of an integer with the values of an enum."""
    return Scalar(type_.name, type_.code, type_.width, name)


def struct(table: StructTable) -> Any:
    """Return the type of a struct in place."""
    return Nested(table, False)  # type: ignore[arg-type]


def nullable_struct(table: StructTable) -> Any:
    """Return the type of a struct after an int8, which is -1 for null."""
    return Nested(table, True)  # type: ignore[arg-type]


def tagged_nullable_struct(table: StructTable) -> Any:
    """Return the type of a struct in a tagged field, after a varint, which is 0 for null."""
    return Nested(table, True, True)  # type: ignore[arg-type]


def _arrays(prefix: str, nullable: bool) -> Callable[[Any], Array]:
    return lambda element: Array(element, prefix, nullable)


def _arrays_of_structs(of: Callable[[Any], Array]) -> Callable[[StructTable], Array]:
    return lambda table: of(struct(table))


# Arrays after an int32, which is -1 for null; an unsigned varint, which is 0 for null; or a zig-zag varint, which is
# negative for null.
array, nullable_array = _arrays("int32", False), _arrays("int32", True)
compact_array, compact_nullable_array = _arrays("uvarint", False), _arrays("uvarint", True)
varint_array, varint_nullable_array = _arrays("varint", False), _arrays("varint", True)
structs, nullable_structs = _arrays_of_structs(array), _arrays_of_structs(nullable_array)
compact_structs = _arrays_of_structs(compact_array)
compact_nullable_structs = _arrays_of_structs(compact_nullable_array)
varint_structs = _arrays_of_structs(varint_array)
varint_nullable_structs = _arrays_of_structs(varint_nullable_array)


class FieldForms:
    """A field in all versions.

    ``forms`` are its types, each with the first version that has it, in ascending order. None is a version without
    the field, as are those before the first one. ``unused`` is the type of a field that no version has. A struct in a
    type is a ``StructTable``, because its layout depends on the version. The other attributes are as in ``Field``.
    """

    __slots__ = ("forms", "name", "options", "unused")

    def __init__(
        self,
        name: str,
        forms: Mapping[int, Any],
        default: Any,
        unused: Any = None,
        **options: Any,
    ) -> None:
        self.name = name
        self.forms = forms
        self.unused = unused
        self.options = {"default": default, **options}

    @property
    def type(self) -> Any:
        """The type in the first version that has the field."""
        return next(filter(None, self.forms.values()), self.unused)

    def form(self, version: int) -> Any:
        """Return the type at a version, or None if the field does not exist there."""
        found = None
        for first, form in self.forms.items():
            if first > version:
                break
            found = form
        return found

    @property
    def versions(self) -> str:
        """The versions with the field, such as ``v3+`` or ``v0-v12``; ``none`` if no version has it."""
        if not self.forms:
            return "none"
        firsts = list(self.forms)
        ends = [first - 1 for first, form in self.forms.items() if form is None]
        low = next(first for first, form in self.forms.items() if form is not None)
        return f"v{low}-v{ends[-1]}" if ends and self.forms[firsts[-1]] is None else f"v{low}+"

    def field(self, type_: Type, described: Callable[[str], str]) -> layout.Field:
        """Return the field of a layout. ``described`` returns the documentation of the fields of its struct."""
        return layout.Field(self.name, type_, self.versions, described=described, **self.options)


class StructTable:
    """A struct in all versions. ``flexible_from`` is its first flexible version, or None."""

    def __init__(
        self,
        name: str,
        flexible_from: int | None,
        fields: tuple[FieldForms, ...],
        package: Callable[[], str],
    ) -> None:
        self.name = name
        self._package = package
        self.flexible_from = flexible_from
        self.fields = fields
        self._layouts: dict[int, Layout] = {}

    @cached_property
    def kinds(self) -> dict[str, str]:
        """The types that a JSON value does not show, as ``krammar.wire.representation.kinds_of`` returns them."""
        found = {item.name: _kind(item.type) for item in self.fields}
        return {name: kind for name, kind in found.items() if kind}

    def doc(self, field: str) -> str:
        """Return the documentation of a field; empty if there is none, or no source file of the class."""
        # A shared struct has tables in the modules that use it, and its class in another one.
        cls = getattr(import_module(self._package()), self.name.partition(".")[0])
        return docs_of(cls.__module__).get(self.name, {}).get(field, "")

    def layout(self, version: int) -> Layout:
        """Return the layout at a version that the struct has."""
        found = self._layouts.get(version)
        if found is None:
            found = self._layouts[version] = self._build(version)
        return found

    def _build(self, version: int) -> Layout:
        present: list[layout.Field] = []
        tagged: list[layout.Field] = []
        absent: list[layout.Field] = []
        for item in self.fields:
            form = item.form(version)
            if form is None:
                # A field that no version has keeps its default, and so do the fields of a struct in it.
                first = next((v for v, form in item.forms.items() if form is not None), version)
                absent.append(item.field(_bound(item.type, first), self.doc))
            else:
                part = item.field(_bound(form, version), self.doc)
                (present if part.tag is None else tagged).append(part)
        tagged.sort(key=lambda part: part.tag or 0)
        flexible = self.flexible_from is not None and version >= self.flexible_from
        return Layout(self.name, version, flexible, (*present,), (*tagged,), (*absent,))


_TABLES: dict[type[Any], StructTable] = {}


class Tables(dict[str, StructTable]):
    """The tables of a module, by the names of structs."""

    def package(self) -> str:
        """Return the generated package: ``kafka_wire`` for the tables of ``kafka_wire.layouts.fetch``."""
        return self._package

    @cached_property
    def _package(self) -> str:
        # Tables do not know their module, whose text names no package, so it is looked for once.
        modules = tuple(sys.modules.items())
        places = (name for name, m in modules if getattr(m, "__dict__", {}).get("TABLES") is self)
        return next(places).rpartition(".layouts.")[0]

    def struct(self, name: str, flexible_from: int | None, *fields: FieldForms) -> StructTable:
        """Add the table of a class. Modules of older releases add several; the first one counts."""
        table = self.inner(name, flexible_from, *fields)
        self.setdefault(name, table)
        return table

    def inner(self, name: str, flexible_from: int | None, *fields: FieldForms) -> StructTable:
        """Return the table of a struct inside of a message, at the versions of the message."""
        return StructTable(name, flexible_from, fields, self.package)


def generated_base(cls: type[Any]) -> type[Any]:
    """Return the generated class itself, or the one that a class of the user inherits from."""
    return next((base for base in cls.__mro__ if "__match_args__" in vars(base)), cls)


def table_of(cls: type[Any]) -> StructTable:
    """Return the table of a generated class.

    Raises:
        KeyError: the class is not generated.
    """
    found = _TABLES.get(cls)
    if found is None:
        base = generated_base(cls)
        if "__match_args__" not in vars(base):
            raise KeyError(cls)
        package, _, module = base.__module__.rpartition(".")
        tables: Tables = import_module(f"{package}.layouts.{module}").TABLES
        found = _TABLES[cls] = tables[base.__qualname__]
    return found


def _kind(type_: Any) -> str:
    """The kind of the values of a type; empty for plain JSON values."""
    match type_:
        case Array(element):
            return _kind(element)
        case Nested(table):
            return table.name
        case Versioned(name):
            return name
        case Scalar(code="16s"):
            return ":uuid"
        case Scalar(enum=enum):
            return enum
        case Text(kind="bytes") | Sized():
            return ":bytes"
        case _:
            return ""


def _bound(form: Any, version: int) -> Type:
    """Replace the table of a struct in a type by its layout at a version."""
    if isinstance(form, Nested):
        return Nested(form.layout.layout(version), form.nullable, form.tagged)  # type: ignore[attr-defined]
    if isinstance(form, Array):
        return Array(_bound(form.element, version), form.prefix, form.nullable)
    return form  # type: ignore[no-any-return]
