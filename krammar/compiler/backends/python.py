"""The Python backend: renders the classes, codecs and layouts of each definition file with templates/python.

A user's own templates get the same variables. docs/backends.md lists them.
"""

from __future__ import annotations

import keyword
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from krammar.compiler import ir, layout, names
from krammar.compiler.backends.interface import Source
from krammar.compiler.backends.templates import Filters, TemplateBackend


@dataclass(frozen=True, slots=True)
class StructItem:
    """A generated class: its struct, its base class, and facts for the template."""

    struct: ir.Struct
    base: str
    kinds: dict[str, str]
    table: layout.LayoutTable | None = None
    request: ir.Request | None = None
    throttle_from: int | None = None

    @property
    def function(self) -> str:
        """The part of function names that identifies this struct."""
        return names.snake_case(self.struct.name)

    @property
    def lengths(self) -> dict[str, tuple[str, int]]:
        """For each length field: the counted field, and the number that is added to its length."""
        return {
            member.type.length_field: (member.python_name, member.type.minus)
            for member in self.struct.fields
            if isinstance(member.type, ir.LengthFieldMinus)
        }

    @property
    def message(self) -> bool:
        """Whether it is a message of krammar.journal, which has a field ``UUID: uuid``."""
        return any(
            member.name == "UUID" and member.type == ir.PRIMITIVES["uuid"]
            for member in self.struct.fields
        )

    @property
    def versions(self) -> list[tuple[int, int]]:
        """Pairs of a version and the first version with the same layout, which is in function names."""
        assert self.table is not None
        return sorted((v, group.first) for group in self.table.layouts for v in group.versions)


@dataclass(slots=True)
class Context:
    """Lookups for the macros of codecs: the modules of classes, and names of functions."""

    module: str
    modules: dict[str, str]
    tag_names: dict[tuple[str, str], str] = field(default_factory=dict)

    def home(self, struct: ir.Struct) -> str | None:
        """Return the module of ``struct``, or None for the module that is being rendered."""
        module = self.modules[struct.name]
        return None if module == self.module else module

    def tags_name(self, of: layout.StructLayout, verb: str) -> str:
        """Return the name of the function that reads or writes the tagged fields of a layout."""
        return f"_{verb}_{self.tag_names[of.struct.name, of.key]}"


def shared_context(source: Source) -> dict[str, Any]:
    """Return the variables of all templates of a package."""
    protocol = source.protocol
    modules: dict[str, list[str]] = {}
    for file in protocol.files:
        inside = [enum.name for enum in file.enums]
        inside += [struct.name for named in file.structs for struct in ir.walk(named)]
        modules[file.module] = sorted(inside)
    if protocol.requests:
        modules["_api_keys"] = ["ApiKey"]
    return {
        "protocol": protocol,
        "title": source.title,
        "modules": dict(sorted(modules.items())),
        "names": sorted(name for inside in modules.values() for name in inside),
        "requests": [_request_context(request, protocol) for request in protocol.requests],
        "where": source.modules,
    }


def _request_context(request: ir.Request, protocol: ir.Protocol) -> dict[str, Any]:
    known = {struct.name: struct for file in protocol.files for struct in file.structs}
    tops = [
        known[name].max_version or 0 if name in known else 0
        for name in ("RequestHeader", "ResponseHeader")
    ]
    name = request.struct.name
    return {
        "key": request.key,
        "name": name,
        "constant": names.constant_name(name.removesuffix("Request") or name),
        "response": request.response.name if request.response is not None else None,
        "min_version": request.struct.min_version,
        "max_version": request.struct.max_version,
        "headers": layout.header_versions(request, *tops),
        "flexible_from": request.struct.flexible_from,
        "routing": request.routing,
    }


def module_context(source: Source, file: ir.DefinitionFile) -> dict[str, Any]:
    """Return the variables for the templates of a definition file."""
    items = [_item(struct, source.requests) for named in file.structs for struct in ir.walk(named)]
    layouts = [group.layout for item in items if item.table for group in item.table.layouts]
    context = Context(file.module, source.modules)
    tag_functions = list(_tag_functions(layouts, context))
    runs: list[layout.Run] = []
    arrays: dict[str, ir.Primitive] = {}
    for top in layouts:
        for part in _parts(top):
            if isinstance(part, layout.Run):
                runs.append(part)
            elif isinstance(part.element, layout.WireFixed) and part.element.type.name != "uuid":
                arrays[part.element.type.name] = part.element.type
    groups = {
        step.name: step
        for top in layouts
        for inner in nested_layouts(top)
        for step in inner.write_steps
        if isinstance(step, layout.Packed)
    }
    documented = {
        inner.struct.name: inner.struct
        for top in layouts
        for inner in nested_layouts(top)
        if any(member.doc for member in inner.struct.fields)
    }
    used = {struct.name for item in items for struct in _mentioned_structs(item)}
    return {
        "file": {
            "module": file.module,
            "doc": f"Structs and messages of the definition file ``{file.path.name}``.",
        },
        "enums": file.enums,
        "structs": items,
        "context": context,
        "home": context.home,
        "imports": sorted({source.modules[name] for name in used} - {file.module}),
        "tag_functions": tag_functions,
        "documented": [documented[name] for name in sorted(documented)],
        "groups": [groups[name] for name in sorted(groups)],
        "array_types": [arrays[name] for name in sorted(arrays)],
        "read_codes": sorted({run.codes for run in runs if run.codes not in ("", "B")}),
        "write_codes": sorted({run.write_codes for run in runs} - {"", "16s"}),
    }


def _item(struct: ir.Struct, by_struct: dict[str, ir.Request]) -> StructItem:
    kinds = {}
    throttle = None
    for item in struct.fields:
        kind = _kind(item.type)
        if kind:
            kinds[item.python_name] = kind
        if item.throttle_from is not None:
            throttle = item.throttle_from
    if not struct.encoding:
        return StructItem(struct, "Struct", kinds)
    table = layout.layout_table(struct)
    request = by_struct.get(struct.name)
    if request is None:
        base = "VersionedCodec" if struct.version_field else "Codec"
        return StructItem(struct, base, kinds, table)
    base = "Request" if request.struct is struct else "Response"
    return StructItem(struct, base, kinds, table, request, throttle)


def _kind(type_: ir.Type) -> str:
    """The kind of values of this type in ``Struct._kinds`` of the runtime; empty for plain JSON values."""
    while isinstance(type_, ir.Array):
        type_ = type_.element
    match type_:
        case ir.Primitive(name="uuid"):
            return ":uuid"
        case ir.Text(kind="bytes") | ir.LengthFieldMinus():
            return ":bytes"
        case ir.StructType(struct):
            return struct.name
        case ir.EnumType(enum):
            return enum.name
        case _:
            return ""


def _mentioned_structs(item: StructItem) -> Iterator[ir.Struct]:
    """Structs whose classes the module of ``item`` uses: in annotations, and in codecs."""

    def below(struct: ir.Struct) -> Iterator[ir.Struct]:
        for inner in struct.fields:
            held = ir.struct_of(inner.type)
            if held is not None:
                yield held
                yield from below(held)

    if item.table is not None:
        yield from below(item.struct)
    else:
        for inner in item.struct.fields:
            held = ir.struct_of(inner.type)
            if held is not None:
                yield held


def wires(top: layout.StructLayout) -> Iterator[layout.WireType]:
    """Yield the types on the wire of all fields, tagged fields last."""
    tagged = top.tags.known if top.tags is not None else ()
    for step in (*top.fields, *tagged):
        yield step.wire


def nested_layouts(top: layout.StructLayout) -> Iterator[layout.StructLayout]:
    """Yield a layout and the layouts of all structs in it."""
    yield top
    for wire in wires(top):
        while isinstance(wire, layout.WireArray):
            wire = wire.element
        if isinstance(wire, layout.WireStruct):
            yield from nested_layouts(wire.layout)


def _tag_functions(
    layouts: Sequence[layout.StructLayout], context: Context
) -> Iterator[tuple[str, layout.StructLayout]]:
    """Name the functions that read and write tagged fields, for each layout that has some."""
    taken: set[str] = set()
    for top in layouts:
        for inner in nested_layouts(top):
            key = (inner.struct.name, inner.key)
            if inner.tags is None or not inner.tags.known or key in context.tag_names:
                continue
            stem = f"tags_{names.snake_case(inner.struct.name)}_v{inner.version}"
            name, number = stem, 1
            while name in taken:
                number += 1
                name = f"{stem}_{number}"
            taken.add(name)
            context.tag_names[key] = name
            yield name, inner


def _parts(top: layout.StructLayout) -> Iterator[layout.Run | layout.WireArray]:
    """Every run and every array that a codec of this layout reads or writes."""
    for inner in nested_layouts(top):
        steps = list(inner.steps)
        for step in inner.tags.known if inner.tags is not None else ():
            steps += step.alone
        for part in steps:
            if isinstance(part, layout.Run):
                yield part
            elif isinstance(part, layout.Step):
                wire = part.wire
                while isinstance(wire, layout.WireArray):
                    yield wire
                    if wire.lead is not None:
                        yield wire.lead
                    wire = wire.element


# Names that Python's enum classes use.
_ENUM_NAMES = frozenset({"mro", "name", "value"})


# -- filters ---------------------------------------------------------------------------------


def _clean(doc: str) -> str:
    return doc.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')


def _docstring(doc: str, default: str = "") -> str:
    """Render a docstring. A space follows a quote at its end."""
    text = _clean(doc or default).strip()
    if "\n" in text:
        return f'"""{text}\n"""'
    return f'"""{text}{" " if text.endswith(chr(34)) else ""}"""'


def _comment(doc: str) -> str:
    return "\n".join(f"# {line}".rstrip() for line in doc.split("\n"))


def _member_name(name: str) -> str:
    return name + "_" if name in _ENUM_NAMES or keyword.iskeyword(name) else name


def _remark_name(remark: str) -> str:
    return names.python_name(remark, _ENUM_NAMES)


def _remarks(enum: ir.Enum) -> list[str]:
    return sorted({remark for member in enum.members for remark in member.remarks})


def _lengths(of: layout.StructLayout) -> dict[str, tuple[str, int]]:
    """For each length field: the counted field, and the number that is added to its length."""
    return {
        item.field.python_name: (item.length_of, item.plus)
        for step in of.steps
        if isinstance(step, layout.Run)
        for item in step.items
        if item.length_of is not None
    }


def _struct_doc(item: StructItem) -> str:
    """The docstring of a class: its documentation, versions and fields."""
    struct = item.struct
    lines = [struct.doc or f"{struct.name}."]
    table = item.table
    if table is not None:
        last = "and above" if table.open_ended else f"to {table.max_version}"
        facts = f"Versions {table.min_version} {last}"
        if struct.flexible_from is not None:
            facts += f", flexible from {struct.flexible_from}"
        if item.request is not None:
            facts = f"Api key {item.request.key}. {facts}"
        lines += ["", facts + "."]
    for name, (counted, plus) in item.lengths.items():
        size = f"len({counted}) + {plus}" if plus else f"len({counted})"
        lines += [
            "",
            f"Encoding writes {size} for ``{name}``, and ignores the field's value.",
            "``with_lengths()`` returns a copy with this value.",
        ]
    if struct.fields:
        lines += ["", "Attributes:"]
        for member in struct.fields:
            lines.append(_field_doc(member))
    return "\n".join(lines)


def _field_doc(member: ir.Field) -> str:
    facts = []
    if member.versions != ir.ALL_VERSIONS:
        facts.append(str(member.versions))
    if member.tag is not None:
        facts.append(f"tag {member.tag}")
    plain = not isinstance(member.type, ir.StructType) and not isinstance(member.default, uuid.UUID)
    if plain and (member.default is None or member.default not in (0, "", b"", (), False)):
        facts.append(f"default {member.default!r}")
    shown = f" ({', '.join(facts)})" if facts else ""
    doc = member.doc.replace("\n\n", "\n").replace("\n", "\n        ")
    return f"    {member.python_name}{shown}:{' ' + doc if doc else ''}".rstrip()


class PythonBackend(TemplateBackend):
    """Writes packages of typed Python."""

    FOLDER = "python"
    FILTERS: ClassVar[Filters] = {
        "docstring": _docstring,
        "comment": _comment,
        "constant": names.constant_name,
        "member_name": _member_name,
        "remarks": _remarks,
        "remark_name": _remark_name,
        "struct_doc": _struct_doc,
        "lengths": _lengths,
    }

    def context(self, source: Source) -> dict[str, Any]:
        return shared_context(source)

    def module_context(
        self, source: Source, file: ir.DefinitionFile, shared: dict[str, Any]
    ) -> dict[str, Any]:
        return module_context(source, file)

    def is_rendered(self, template: str, source: Source) -> bool:
        if template == "_api_keys.py.j2" and not source.protocol.requests:
            return False
        return super().is_rendered(template, source)
