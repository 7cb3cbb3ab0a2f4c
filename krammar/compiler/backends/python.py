"""The Python backend: renders the classes, codecs and layouts of each definition file with templates/python.

A user's own templates get the same variables. docs/backends.md lists them.
"""

from __future__ import annotations

import re
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from krammar.compiler import ir, names
from krammar.compiler.backends.interface import Source
from krammar.compiler.backends.python_classes import (
    StructItem,
    aliases,
    comment,
    docstring,
    field_doc,
    member_name,
    mentioned_structs,
    on_one_line,
    quoted,
    remark_name,
    remarks_of,
    shadowed,
    struct_doc,
    struct_items,
    tidy,
    used_in,
    versions_literal,
    with_flexible,
    words_in,
)
from krammar.compiler.backends.templates import Filters, TemplateBackend
from krammar.compiler.header_places import has_kafkas_heads, heads
from krammar.compiler.header_versions import header_versions
from krammar.compiler.layout_table import layout_table, module_tables
from krammar.compiler.steps import (
    AnyStep,
    Branch,
    Choice,
    Prefix,
    Run,
    Step,
    StructLayout,
    WireArray,
    WireFixed,
    WireStruct,
    WireType,
    innermost,
)

# Packing: alternating runs and arrays of integers that Python writes with one call of `struct`.

_S = TypeVar("_S", bound=AnyStep)


@dataclass(frozen=True, slots=True)
class Packed:
    """Alternating runs and arrays of integers that are written with one call of ``struct``.

    The lengths of the arrays select the compiled format. Packing saves a fifth of the time to encode a
    Metadata response, whose partitions contain three such arrays. A single array would not be faster, so
    there are at least two.
    """

    steps: tuple[Run | Step, ...]

    @property
    def arrays(self) -> tuple[Step, ...]:
        """The arrays without the runs."""
        return tuple(step for step in self.steps if isinstance(step, Step))

    @property
    def segments(self) -> tuple[tuple[str, str, str], ...]:
        """For each array: the letters of the fields before it, of its count, and of its elements."""
        found = []
        for run, step in zip(self.steps[::2], self.steps[1::2], strict=False):
            assert isinstance(run, Run) and run.prefix is not None
            assert isinstance(step, Step) and isinstance(step.wire, WireArray)
            assert isinstance(step.wire.element, WireFixed)
            codes = "".join(item.type.code for item in run.items)
            found.append((codes, run.prefix.code, step.wire.element.type.code))
        return tuple(found)

    @property
    def name(self) -> str:
        """A distinct name for each list of segments."""
        return "_".join("".join(segment) for segment in self.segments).replace("?", "t")


def pack_steps(steps: Sequence[_S]) -> Iterator[_S | Packed]:
    """Yield steps, with runs and arrays packed where possible."""
    index = 0
    while index < len(steps):
        end = index
        while end + 1 < len(steps) and isinstance(steps[end], Run) and _is_packable(steps[end + 1]):
            end += 2
        if end - index >= 4:
            yield Packed(tuple(s for s in steps[index:end] if isinstance(s, (Run, Step))))
            index = end
        else:
            yield steps[index]
            index += 1


def _is_packable(step: AnyStep) -> bool:
    """Whether a step is an array of integers that is never null."""
    return (
        isinstance(step, Step)
        and isinstance(step.wire, WireArray)
        and not step.wire.nullable
        and step.wire.prefix in (Prefix.UVARINT, Prefix.INT32)
        and isinstance(step.wire.element, WireFixed)
        and step.wire.element.type.is_integer
    )


# Modules.


@dataclass(slots=True)
class ModuleContext:
    """Lookups for the macros of codecs: the modules of classes, and names of functions.

    ``aliases`` are the variables of classes inside of messages, and of those that such a class hides.
    """

    module: str
    modules: dict[str, str]
    aliases: dict[str, str]
    tag_names: dict[tuple[str, str], str] = field(default_factory=dict)
    used: Counter[str] = field(default_factory=Counter)

    def home(self, struct: ir.Struct) -> str | None:
        """Return the module of ``struct``, or None for the module that is being rendered."""
        module = self.modules[struct.name]
        return None if module == self.module else module

    def begin(self) -> str:
        """Begin a function, in which no variables are used yet. Returns nothing to render."""
        self.used.clear()
        return ""

    def fresh(self, stem: str) -> str:
        """Return a variable that the function does not use yet, because type checkers want one type for each."""
        self.used[stem] += 1
        return f"{stem}{self.used[stem] - 1}"

    def tags_name(self, of: StructLayout, verb: str) -> str:
        """Return the name of the function that reads or writes the tagged fields of a layout."""
        return f"_{verb}_{self.tag_names[of.struct.name, of.key]}"


def _as_they_are(*names_: str) -> dict[str, str]:
    return {name: name for name in names_}


def shared_context(source: Source) -> dict[str, Any]:
    """Return the variables of all templates of a package."""
    protocol = source.protocol
    modules: dict[str, list[str]] = {}
    for file in protocol.files:
        inside = [enum.name for enum in file.enums]
        inside += [struct.name for struct in file.structs if struct.owner == struct.name]
        modules[file.module] = sorted(inside, key=_as_isort)
    if protocol.requests:
        modules["_api_keys"] = ["ApiKey"]
    return {
        "protocol": protocol,
        "title": source.title,
        "modules": dict(sorted(modules.items())),
        "names": sorted((name for inside in modules.values() for name in inside), key=_as_isort),
        "requests": [_request_context(request, protocol) for request in protocol.requests],
        "pushes": [_push_context(push, protocol) for push in protocol.pushes],
        "heads": [] if has_kafkas_heads(protocol) else heads(protocol),
        "where": source.modules,
    }


def _as_isort(name: str) -> list[Any]:
    """A key that sorts ``__all__`` as isort: constants first, and numbers in names by their values."""
    parts = re.split(r"(\d+)", name)
    constant = len(name) > 1 and name.isupper()
    return [not constant, *(int(part) if part.isdigit() else part for part in parts)]


def _push_context(push: ir.Request, protocol: ir.Protocol) -> dict[str, Any]:
    found = _request_context(push, protocol)
    return {**found, "pairs": found["headers"].response}


def _request_context(request: ir.Request, protocol: ir.Protocol) -> dict[str, Any]:
    known = {struct.name: struct for file in protocol.files for struct in file.structs}
    tops = [
        layout_table(known[name]).max_version if name in known else 0
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
        "headers": header_versions(request, *tops),
        "own_headers": _own_headers(request, *tops),
        "flexible_from": request.struct.flexible_from,
        "routing": request.routing,
        "response_key": request.response_key,
        "cluster_action": request.cluster_action,
        "endpoints_from": _endpoints_from(request),
    }


def _endpoints_from(request: ir.Request) -> int | None:
    """The first version whose response has addresses of brokers, or None."""

    def found(struct: ir.Struct, versions: ir.VersionRange) -> Iterator[int]:
        for item in struct.fields:
            there = item.versions.intersect(versions)
            if there is None:
                continue
            inner = ir.struct_of(item.type)
            if inner is not None and inner.version_field is None:
                yield from found(inner, there)
            elif item.entity == "brokerHost":
                yield there.min

    if request.response is None:
        return None
    response = request.response
    versions = ir.VersionRange(response.min_version, response.max_version)
    return min(found(response, versions), default=None)


def _own_headers(request: ir.Request, *tops: int) -> list[Any]:
    """The header versions of a request and its response; empty if flexible versions alone decide (KIP-482)."""
    found = header_versions(request, *tops)
    low, flexible = request.struct.min_version, request.struct.flexible_from
    usual: list[Any] = [((low, 1),), ((low, 0),)]
    if flexible is not None:
        start = max(low, flexible)
        usual = [((low, 1), (start, 2)), ((low, 0), (start, 1))]
    pairs = [found.request, found.response]
    return [] if pairs == usual else pairs


def module_context(source: Source, file: ir.DefinitionFile) -> dict[str, Any]:
    """Return the variables for the templates of a definition file."""
    items = list(struct_items(file, source.requests))
    everything = [each for item in items for each in (item, *item.inner)]
    layouts = [codec.layout for item in items if item.table for _, codec in item.codecs]
    context = ModuleContext(file.module, source.modules, aliases(everything, _TAKEN))
    tag_functions = list(_tag_functions(layouts, context))
    runs = [run for top in layouts for run in _runs(top)]
    groups = {
        step.name: step
        for top in layouts
        for inner in nested_layouts(top)
        for steps in (inner.steps, *(branch.steps for branch in _branches(inner)))
        for step in pack_steps(steps)
        if isinstance(step, Packed)
    }
    used = {struct.name for item in everything for struct in mentioned_structs(item)}
    return {
        "file": {
            "module": file.module,
            "doc": f"Structs and messages of the definition file ``{file.path.name}``.",
        },
        "enums": file.enums,
        "structs": items,
        "tables": module_tables(file.structs),
        "context": context,
        "home": context.home,
        "imports": sorted({source.modules[name] for name in used} - {file.module}),
        "tag_functions": tag_functions,
        "groups": [groups[name] for name in sorted(groups)],
        "types": ir.PRIMITIVES,
        "runtime": _RUNTIME,
        "uuids": sorted(_uuids(everything)),
        "read_codes": sorted(
            {run.codes for run in runs if run.items or run.codes not in ("", "B")}
        ),
        "write_codes": sorted({run.write_codes for run in runs} - {"", "16s"}),
    }


def wires(top: StructLayout) -> Iterator[WireType]:
    """Yield the types on the wire of all fields, tagged fields last."""
    for step in top.all_fields:
        yield step.wire


def nested_layouts(top: StructLayout) -> Iterator[StructLayout]:
    """Yield a layout and the layouts of all structs in it."""
    yield top
    for wire in map(innermost, wires(top)):
        if isinstance(wire, WireStruct):
            yield from nested_layouts(wire.layout)


def _tag_functions(
    layouts: Sequence[StructLayout], context: ModuleContext
) -> Iterator[tuple[str, StructLayout]]:
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


def _uuids(items: Sequence[StructItem]) -> set[uuid.UUID]:
    """The defaults of the fields of classes, and of the structs that are created with them."""
    found: set[uuid.UUID] = set()
    done: set[str] = set()
    todo = [item.struct for item in items]
    while todo:
        struct = todo.pop()
        if struct.name in done:
            continue
        done.add(struct.name)
        for member in struct.fields:
            if isinstance(member.default, uuid.UUID) and member.default.int:
                found.add(member.default)
            inner = ir.struct_of(member.type)
            todo += [] if inner is None else [inner]
    return found


def _branches(of: StructLayout) -> Iterator[Branch]:
    for step in of.steps:
        if isinstance(step, Choice):
            yield from step.branches


def _runs(top: StructLayout) -> Iterator[Run]:
    """Every run that a codec of this layout reads or writes."""
    for inner in nested_layouts(top):
        steps = [*inner.steps, *(step for branch in _branches(inner) for step in branch.steps)]
        for tagged in inner.tagged:
            steps += tagged.alone
        for part in steps:
            if isinstance(part, Run):
                yield part
            elif isinstance(part, Step):
                wire = part.wire
                while isinstance(wire, WireArray):
                    if wire.lead is not None:
                        yield wire.lead
                    wire = wire.element


# What codecs use of the runtime, by module of krammar.wire. Each name gets an underscore in generated modules. No name
# there begins with `decode_` or `encode_`, because the names of codecs do, and end with that of their struct.
_RUNTIME = {
    "primitives": _as_they_are(
        "BOOL",
        "NULL_UUID",
        "PACK",
        "UNPACK",
        "UVARINT",
        "Malformed",
        "PackGroup",
        "as_bytes",
        "as_list",
        "count",
    )
    | {
        "decode_uuid": "read_uuid",
        "encode_uvarint": "uvarint_bytes",
        "encode_uvarlong": "uvarlong_bytes",
        "encode_varint": "varint_bytes",
        "encode_varlong": "varlong_bytes",
    }
    | _as_they_are(
        "read_tag",
        "read_unknown_tags",
        "read_uvarint",
        "read_uvarlong",
        "unpack_compact",
        "uvarint",
        "varint",
        "varlong",
        "write_tags",
        "zigzag",
    ),
    "shared": _as_they_are(
        "read_bytes",
        "read_count",
        "read_nullable_bytes",
        "read_nullable_count",
        "read_nullable_string",
        "read_string",
        "read_tags",
        "write_bytes",
        "write_count",
        "write_nullable_bytes",
        "write_nullable_count",
        "write_nullable_string",
        "write_string",
        "write_unknown_tags",
    ),
    "skip": _as_they_are("check_empty"),
    "versioned": {"VersionedCodec": "VersionedCodec", "decode_inside": "read_inside"},
}
# What modules import, of the runtime and of Python, with a name that could be that of a class.
_TAKEN = frozenset(
    name
    for name in (
        *("Any", "ClassVar", "IntEnum", "Iterable", "Struct", "UUID"),
        *(own for names_ in _RUNTIME.values() for own in names_.values()),
    )
    if name[0].isupper()
)


# -- filters ---------------------------------------------------------------------------------


class PythonBackend(TemplateBackend):
    """Writes packages of typed Python."""

    FOLDER = "python"
    FILTERS: ClassVar[Filters] = {
        "docstring": docstring,
        "comment": comment,
        "one_line": on_one_line,
        "constant": names.constant_name,
        "member_name": member_name,
        "shadowed": shadowed,
        "remarks": remarks_of,
        "remark_name": remark_name,
        "struct_doc": struct_doc,
        "field_doc": field_doc,
        "pack": lambda steps: list(pack_steps(steps)),
        "used_in": used_in,
        "words_in": words_in,
        "sort_names": lambda names_: sorted(names_, key=_as_isort),
        "flexible": with_flexible,
        "quoted": quoted,
        "versions": versions_literal,
    }

    def __init__(self, options: Mapping[str, str] | None = None) -> None:
        super().__init__(options)
        self.format_whole = "templates" in self.options

    def context(self, source: Source) -> dict[str, Any]:
        return shared_context(source)

    def module_context(
        self, source: Source, file: ir.DefinitionFile, shared: dict[str, Any]
    ) -> dict[str, Any]:
        return module_context(source, file)

    def text(self, name: str, context: dict[str, Any]) -> str:
        return tidy(super().text(name, context))

    def is_rendered(self, template: str, source: Source) -> bool:
        if template == "_api_keys.py.j2" and not source.protocol.requests:
            return False
        return super().is_rendered(template, source)
