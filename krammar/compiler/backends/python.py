"""The Python backend: renders the classes, codecs and layouts of each definition file with templates/python.

A user's own templates get the same variables. docs/backends.md lists them.
"""

from __future__ import annotations

import keyword
import re
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

from krammar.compiler import ir, names
from krammar.compiler.backends.interface import Source
from krammar.compiler.backends.packing import Packed, pack_steps
from krammar.compiler.backends.templates import Filters, TemplateBackend
from krammar.compiler.header_versions import header_versions
from krammar.compiler.layout_table import LayoutTable, SharedLayout, codecs, layout_table
from krammar.compiler.steps import (
    Branch,
    Choice,
    Run,
    Step,
    StructLayout,
    WireArray,
    WireStruct,
    WireType,
)
from krammar.compiler.tables import tables

# The types in annotations of fields.
_BUILTIN_TYPES = frozenset({"bool", "bytes", "float", "int", "list", "str"})


@dataclass(frozen=True)
class StructItem:
    """A generated class: its struct, its base class, and facts for the template.

    ``inner`` are the classes inside it. ``function`` is the part of function names that identifies the struct.
    """

    struct: ir.Struct
    base: str
    table: LayoutTable | None = None
    request: ir.Request | None = None
    throttle_from: int | None = None
    inner: tuple[StructItem, ...] = ()
    function: str = ""

    @property
    def lengths(self) -> dict[str, tuple[str, int]]:
        """For each length field: the counted field, and the number that is added to its length."""
        return {
            member.type.length_field: (member.python_name, member.type.minus)
            for member in self.struct.fields
            if isinstance(member.type, ir.LengthFieldMinus)
        }

    @property
    def facts(self) -> list[str]:
        """The keywords of the class statement: the class's versions, and its request."""
        found: list[str] = []
        if self.request is not None:
            found.append(f"api_key={self.request.key}")
            if self.request.struct is self.struct:
                if self.request.routing:
                    found.append(f"routing={_quoted(self.request.routing)}")
            elif self.throttle_from is not None:
                found.append(f"throttle_from={self.throttle_from}")
        if self.table is not None:
            found.append(f"versions=({self.table.min_version}, {self.table.max_version})")
            if self.struct.flexible_from is not None:
                found.append(f"flexible_from={self.struct.flexible_from}")
            if self.table.open_ended:
                found.append("_open_ended=True")
            if self.struct.version_field:
                found.append(f"_version_field={_quoted(self.struct.version_field)}")
        if self.lengths:
            pairs = (
                f"{_quoted(name)}: ({_quoted(counted)}, {plus})"
                for name, (counted, plus) in self.lengths.items()
            )
            found.append(f"_lengths={{{', '.join(pairs)}}}")
        return found

    @property
    def journal(self) -> bool:
        """Whether it is a message of krammar.journal, which has a field ``UUID: uuid``."""
        return any(
            member.name == "UUID" and member.type == ir.PRIMITIVES["uuid"]
            for member in self.struct.fields
        )

    @cached_property
    def codecs(self) -> list[tuple[str, SharedLayout]]:
        """The codecs, each with the part of function names that identifies it."""
        assert self.table is not None
        found = codecs(self.table)
        lone = len(found) == 1
        return [(self.function if lone else f"{self.function}_v{c.first}", c) for c in found]

    @property
    def shadowed(self) -> frozenset[str]:
        """Types of Python that the class cannot name, because fields have these names."""
        return _BUILTIN_TYPES & {member.python_name for member in self.struct.fields}


@dataclass(slots=True)
class ModuleContext:
    """Lookups for the macros of codecs: the modules of classes, and names of functions.

    ``aliases`` are the variables of classes inside of messages.
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


def shared_context(source: Source) -> dict[str, Any]:
    """Return the variables of all templates of a package."""
    protocol = source.protocol
    modules: dict[str, list[str]] = {}
    for file in protocol.files:
        inside = [enum.name for enum in file.enums]
        inside += [struct.name for struct in file.structs if struct.owner == struct.name]
        modules[file.module] = sorted(inside)
    if protocol.requests:
        modules["_api_keys"] = ["ApiKey"]
    return {
        "protocol": protocol,
        "title": source.title,
        "modules": dict(sorted(modules.items())),
        "names": sorted((name for inside in modules.values() for name in inside), key=_as_isort),
        "requests": [_request_context(request, protocol) for request in protocol.requests],
        "where": source.modules,
    }


def _as_isort(name: str) -> list[Any]:
    """A key that sorts ``__all__`` as isort: constants first, and numbers in names by their values."""
    parts = re.split(r"(\d+)", name)
    constant = len(name) > 1 and name.isupper()
    return [not constant, *(int(part) if part.isdigit() else part for part in parts)]


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
        "headers": header_versions(request, *tops),
        "own_headers": _own_headers(request, *tops),
        "flexible_from": request.struct.flexible_from,
        "routing": request.routing,
    }


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
    items = list(_items(file, source.requests))
    everything = [each for item in items for each in (item, *item.inner)]
    layouts = [codec.layout for item in items if item.table for _, codec in item.codecs]
    context = ModuleContext(file.module, source.modules, _aliases(everything))
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
    used = {struct.name for item in everything for struct in _mentioned_structs(item)}
    return {
        "file": {
            "module": file.module,
            "doc": f"Structs and messages of the definition file ``{file.path.name}``.",
        },
        "enums": file.enums,
        "structs": items,
        "tables": [table for item in items if item.table for table in tables(item.table)],
        "context": context,
        "home": context.home,
        "imports": sorted({source.modules[name] for name in used} - {file.module}),
        "tag_functions": tag_functions,
        "groups": [groups[name] for name in sorted(groups)],
        "types": ir.PRIMITIVES,
        "runtime": _RUNTIME,
        "read_codes": sorted({run.codes for run in runs if run.codes not in ("", "B")}),
        "write_codes": sorted({run.write_codes for run in runs} - {"", "16s"}),
    }


def _aliases(items: Sequence[StructItem]) -> dict[str, str]:
    """A variable for each class inside of a message: the name of the class, unless two messages have it."""
    inner = [item.struct for item in items if item.struct.owner != item.struct.name]
    used = Counter(struct.class_name for struct in inner)
    return {
        struct.name: (
            f"_{struct.name.replace('.', '_')}"
            if used[struct.class_name] > 1 or struct.class_name in _TAKEN
            else f"_{struct.class_name}"
        )
        for struct in inner
    }


def _items(file: ir.DefinitionFile, requests: dict[str, ir.Request]) -> Iterator[StructItem]:
    """The classes of a module, each with the classes inside it."""
    inner: dict[str, list[StructItem]] = {}
    for named in file.structs:
        for struct in ir.walk(named):
            if struct.owner != struct.name:
                inner.setdefault(struct.owner, []).append(_item(struct, requests))
    tops = [struct for struct in file.structs if struct.owner == struct.name]
    # `request` instead of `heartbeat_request`, in the module `heartbeat`.
    long = {struct.name: names.snake_case(struct.name) for struct in tops}
    short = {name: stem.removeprefix(f"{file.module}_") for name, stem in long.items()}
    stems = short if len(set(short.values())) == len(short) else long
    for struct in tops:
        classes = tuple(inner.get(struct.name, ()))
        yield replace(_item(struct, requests), inner=classes, function=stems[struct.name])


def _item(struct: ir.Struct, by_struct: dict[str, ir.Request]) -> StructItem:
    throttle = None
    for item in struct.fields:
        if item.throttle_from is not None:
            throttle = item.throttle_from
    if not struct.encoding:
        return StructItem(struct, "Struct")
    table = layout_table(struct)
    request = by_struct.get(struct.name)
    if request is None:
        base = "VersionedCodec" if struct.version_field else "Codec"
        return StructItem(struct, base, table)
    base = "Request" if request.struct is struct else "Response"
    return StructItem(struct, base, table, request, throttle)


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


def wires(top: StructLayout) -> Iterator[WireType]:
    """Yield the types on the wire of all fields, tagged fields last."""
    tagged = top.tags.known if top.tags is not None else ()
    for step in (*top.fields, *tagged):
        yield step.wire


def nested_layouts(top: StructLayout) -> Iterator[StructLayout]:
    """Yield a layout and the layouts of all structs in it."""
    yield top
    for wire in wires(top):
        while isinstance(wire, WireArray):
            wire = wire.element
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


def _branches(of: StructLayout) -> Iterator[Branch]:
    for step in of.steps:
        if isinstance(step, Choice):
            yield from step.branches


def _runs(top: StructLayout) -> Iterator[Run]:
    """Every run that a codec of this layout reads or writes."""
    for inner in nested_layouts(top):
        steps = [*inner.steps, *(step for branch in _branches(inner) for step in branch.steps)]
        for tagged in inner.tags.known if inner.tags is not None else ():
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


# Names that generated modules import, without the underscore.
_TAKEN = frozenset({"Any", "ClassVar", "IntEnum", "Iterable", "Malformed", "PackGroup", "Struct"})
# What codecs use of the runtime, by module of krammar.wire.
_RUNTIME = {
    "primitives": (
        "BOOL",
        "MAX_ZERO_WIDTH",
        "NULL_UUID",
        "PACK",
        "UNPACK",
        "UVARINT",
        "Malformed",
        "PackGroup",
        "as_bytes",
        "as_list",
        "count",
        "decode_uuid",
        "encode_varint",
        "encode_varlong",
        "read_tag",
        "read_unknown_tags",
        "unpack_compact",
        "uvarint",
        "varint",
        "varlong",
        "write_tags",
        "zigzag",
    ),
    "shared": (
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
}
_WORDS = re.compile(r"\w+")
_VARIABLES = re.compile(r"(?<![.\w])[a-z]+\b")
# Names that Python's enum classes use, and the property for the documentation of a member.
_ENUM_NAMES = frozenset({"meaning", "mro", "name", "value"})


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


def _one_line(doc: str) -> str:
    return " ".join(doc.split())


def _member_name(name: str) -> str:
    return name + "_" if name in _ENUM_NAMES or keyword.iskeyword(name) else name


def _remark_name(remark: str) -> str:
    return names.python_name(remark, _ENUM_NAMES)


def _remarks(enum: ir.Enum) -> list[str]:
    return sorted({remark for member in enum.members for remark in member.remarks})


def _used_in(names_: Sequence[str], text: str) -> list[str]:
    """The names that occur in a rendered text."""
    found = set(_WORDS.findall(text))
    return [name for name in names_ if f"_{name}" in found]


def _flexible(text: str, item: StructItem) -> str:
    """Add the variable ``flexible`` to the code of a codec that uses it."""
    if "flexible" not in _VARIABLES.findall(text):
        return text
    return f"flexible = version >= {item.struct.flexible_from}\n{text}"


def _quoted(value: object) -> str:
    """The literal of a value, with double quotes where black wants them."""
    text = repr(value)
    if isinstance(value, str) and '"' not in value:
        return '"' + repr('"' + value)[2:-1].replace("\\'", "'") + '"'
    if isinstance(value, bytes) and b'"' not in value:
        return 'b"' + repr(b'"' + value)[3:-1].replace("\\'", "'") + '"'
    return text


def _versions(versions: Sequence[int]) -> str:
    """A literal of versions: a range if there are no gaps."""
    first, last = versions[0], versions[-1]
    if last - first + 1 != len(versions):
        return str(versions)
    return f"range({first}, {last + 1})" if first else f"range({last + 1})"


def _struct_doc(item: StructItem) -> str:
    """The docstring of a class: its documentation, and its api key and versions in parentheses."""
    struct = item.struct
    lines = [struct.doc or f"{struct.name}."]
    table = item.table
    if table is not None:
        facts = [] if item.request is None else [f"api key {item.request.key}"]
        last = "+" if table.open_ended else f"-v{table.max_version}"
        facts.append(f"v{table.min_version}{last}")
        if struct.flexible_from is not None:
            facts.append(f"flexible v{struct.flexible_from}+")
        if facts != ["v0+"]:
            lines = [f"{lines[0]} ({', '.join(facts)})"]
    for name, (counted, plus) in item.lengths.items():
        size = f"len({counted}) + {plus}" if plus else f"len({counted})"
        lines += [
            "",
            f"Encoding writes {size} for ``{name}``, and ignores the field's value.",
            "``with_lengths()`` returns a copy with this value.",
        ]
    return "\n".join(lines)


def _field_doc(member: ir.Field) -> str:
    """The docstring of a field: its documentation, and its versions, tag and default in parentheses."""
    facts = []
    if member.versions != ir.ALL_VERSIONS:
        facts.append(str(member.versions))
    if member.tag is not None:
        facts.append(f"tag {member.tag}")
    plain = not isinstance(member.type, ir.StructType) and not isinstance(member.default, uuid.UUID)
    if plain and (member.default is None or member.default not in (0, "", b"", (), False)):
        facts.append(f"default {member.default!r}")
    return " ".join(part for part in (member.doc, f"({', '.join(facts)})" if facts else "") if part)


# Templates leave blank lines where they render nothing. black wants at most two, and one inside of a block.
_BLANK_LINES = re.compile(r"\n{4,}|\n{3,}(?= )")


def _tidy(text: str) -> str:
    """Reduce blank lines to what black leaves."""

    def reduced(match: re.Match[str]) -> str:
        return "\n\n" if text[match.end() : match.end() + 1] == " " else "\n\n\n"

    stripped = _BLANK_LINES.sub(reduced, text).strip("\n")
    return f"{stripped}\n" if stripped else ""


class PythonBackend(TemplateBackend):
    """Writes packages of typed Python."""

    FOLDER = "python"
    FILTERS: ClassVar[Filters] = {
        "docstring": _docstring,
        "comment": _comment,
        "one_line": _one_line,
        "constant": names.constant_name,
        "member_name": _member_name,
        "remarks": _remarks,
        "remark_name": _remark_name,
        "struct_doc": _struct_doc,
        "field_doc": _field_doc,
        "pack": lambda steps: list(pack_steps(steps)),
        "used_in": _used_in,
        "flexible": _flexible,
        "quoted": _quoted,
        "versions": _versions,
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
        return _tidy(super().text(name, context))

    def is_rendered(self, template: str, source: Source) -> bool:
        if template == "_api_keys.py.j2" and not source.protocol.requests:
            return False
        return super().is_rendered(template, source)
