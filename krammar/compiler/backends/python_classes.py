"""The text of generated modules, and their classes: a ``StructItem`` for each struct, with facts for the templates."""

from __future__ import annotations

import keyword
import re
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from krammar.compiler import ir, names
from krammar.compiler.layout_table import (
    LayoutTable,
    SharedLayout,
    codecs,
    has_empty_elements,
    layout_table,
)

# Text: literals, docstrings, comments and names.

_WORDS = re.compile(r"\w+")


# Names that Python's enum classes use, and the property for the documentation of a member.
_ENUM_NAMES = frozenset(
    {"meaning", "mro", "name", "value"}
    # Attributes of int.
    | {"as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator", "from_bytes"}
    | {"imag", "is_integer", "numerator", "real", "to_bytes"}
)
# What the bodies of enum classes use of Python.
_ENUM_BUILTINS = frozenset({"bool", "property", "str"})


def _clean(doc: str) -> str:
    return doc.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')


def docstring(doc: str, default: str = "") -> str:
    """Render a docstring. A space follows a quote at its end."""
    text = _clean(doc or default).strip()
    if "\n" in text:
        return f'"""{text}\n"""'
    return f'"""{text}{" " if text.endswith(chr(34)) else ""}"""'


def comment(doc: str) -> str:
    return "\n".join(f"# {line}".rstrip() for line in doc.split("\n"))


def on_one_line(doc: str) -> str:
    return " ".join(doc.split())


def member_name(name: str) -> str:
    return name + "_" if name in _ENUM_NAMES or keyword.iskeyword(name) else name


def shadowed(enum: ir.Enum) -> frozenset[str]:
    """Names of Python that the class of an enum cannot use, because members or properties have them."""
    return _ENUM_BUILTINS & {*(member.name for member in enum.members), *remarks_of(enum)}


def remark_name(remark: str) -> str:
    return names.python_name(remark, _ENUM_NAMES)


def remarks_of(enum: ir.Enum) -> list[str]:
    return sorted({remark for member in enum.members for remark in member.remarks})


def used_in(names_: Sequence[str], text: str) -> list[str]:
    """The names that occur in a rendered text."""
    found = _words_in(text)
    return [name for name in names_ if f"_{name}" in found]


def words_in(names_: Sequence[str], text: str) -> list[str]:
    """The names that occur as words in a rendered text."""
    found = _words_in(text)
    return [name for name in names_ if name in found]


@lru_cache(maxsize=4)
def _words_in(text: str) -> frozenset[str]:
    """The words of a text. A template asks several times for the names in one text."""
    return frozenset(_WORDS.findall(text))


def quoted(value: object) -> str:
    """The literal of a value, with double quotes where black wants them."""
    text = repr(value)
    if isinstance(value, str) and '"' not in value:
        return '"' + repr('"' + value)[2:-1].replace("\\'", "'") + '"'
    if isinstance(value, bytes) and b'"' not in value:
        return 'b"' + repr(b'"' + value)[3:-1].replace("\\'", "'") + '"'
    return text


def versions_literal(versions: Sequence[int]) -> str:
    """A literal of versions: a range if there are no gaps."""
    first, last = versions[0], versions[-1]
    if last - first + 1 != len(versions):
        return str(versions)
    return f"range({first}, {last + 1})" if first else f"range({last + 1})"


def field_doc(member: ir.Field) -> str:
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


def tidy(text: str) -> str:
    """Reduce blank lines to what black leaves."""

    def reduced(match: re.Match[str]) -> str:
        return "\n\n" if text[match.end() : match.end() + 1] == " " else "\n\n\n"

    stripped = _BLANK_LINES.sub(reduced, text).strip("\n")
    return f"{stripped}\n" if stripped else ""


# Classes.

# What the body of a class uses of Python.
_BUILTINS = frozenset(
    {"bool", "bytes", "float", "int", "isinstance", "list", "str", "tuple", "type"}
)


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
                    found.append(f"routing={quoted(self.request.routing)}")
            elif self.throttle_from is not None:
                found.append(f"throttle_from={self.throttle_from}")
        if self.table is not None:
            found.append(f"versions=({self.table.min_version}, {self.table.max_version})")
            if self.struct.flexible_from is not None:
                found.append(f"flexible_from={self.struct.flexible_from}")
            if self.table.open_ended:
                found.append("_open_ended=True")
            if self.struct.version_field:
                found.append(f"_version_field={quoted(self.struct.version_field)}")
            if self.struct.reads_newer:
                found.append("_reads_newer=True")
        if self.lengths:
            pairs = (
                f"{quoted(name)}: ({quoted(counted)}, {plus})"
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

    @cached_property
    def has_empty_elements(self) -> bool:
        """Whether a version has arrays whose elements can take no bytes."""
        return self.table is not None and has_empty_elements(self.table)

    @property
    def shadowed(self) -> frozenset[str]:
        """Names that mean something else in the class: names of Python by its fields, and of its inner classes."""
        fields = _BUILTINS & {member.python_name for member in self.struct.fields}
        return fields | {item.struct.class_name for item in self.inner}


def aliases(items: Sequence[StructItem], taken: frozenset[str]) -> dict[str, str]:
    """A variable for each class inside of a message, and for each other class that has the name of such a class.

    Args:
        taken: names that the module has otherwise, without their underscores.
    """
    inner = [item.struct for item in items if item.struct.owner != item.struct.name]
    used = Counter(struct.class_name for struct in inner)
    given = set(taken)
    found = {}
    for struct in inner:
        name = struct.class_name
        if used[name] > 1 or name in given:
            name = struct.name.replace(".", "_")
        found[struct.name] = f"_{_unique(name, given)}"
    # Definitions begin with a capital letter, so no variable above is like these.
    tops = (item.struct.name for item in items if item.struct.owner == item.struct.name)
    return found | {name: f"_top_{name}" for name in tops if used[name]}


def _unique(name: str, taken: set[str]) -> str:
    """The name, with a number if it is taken, which it is from now on."""
    found, number = name, 1
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    taken.add(found)
    return found


def struct_items(file: ir.DefinitionFile, requests: dict[str, ir.Request]) -> Iterator[StructItem]:
    """The classes of a module, each with the classes inside it."""
    inner: dict[str, list[StructItem]] = {}
    for named in file.structs:
        for struct in ir.walk(named):
            if struct.owner != struct.name:
                inner.setdefault(struct.owner, []).append(_item(struct, requests))
    tops = [struct for struct in file.structs if struct.owner == struct.name]
    # `request` instead of `heartbeat_request`, in the module `heartbeat`.
    long = {struct.name: names.function_name(struct.name) for struct in tops}
    short = {name: stem.removeprefix(f"{file.module}_") for name, stem in long.items()}
    stems = short if len(set(short.values())) == len(short) else long
    taken: set[str] = set()
    for struct in tops:
        item = replace(_item(struct, requests), inner=tuple(inner.get(struct.name, ())))
        yield replace(item, function=_unique(stems[struct.name], taken))


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
    if request.push:
        base = "Push"
    return StructItem(struct, base, table, request, throttle)


def mentioned_structs(item: StructItem) -> Iterator[ir.Struct]:
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


_VARIABLES = re.compile(r"(?<![.\w])[a-z]+\b")


def with_flexible(text: str, item: StructItem) -> str:
    """Add the variable ``flexible`` to the code of a codec that uses it."""
    if "flexible" not in _VARIABLES.findall(text):
        return text
    return f"flexible = version >= {item.struct.flexible_from}\n{text}"


def struct_doc(item: StructItem) -> str:
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
    if struct.reads_newer:
        lines += [
            "",
            f"Newer versions are decoded as v{struct.max_version}, without the bytes after its fields.",
        ]
    for name, (counted, plus) in item.lengths.items():
        size = f"len({counted}) + {plus}" if plus else f"len({counted})"
        lines += [
            "",
            f"Encoding writes {size} for ``{name}``, and ignores the field's value.",
            "``with_lengths()`` returns a copy with this value.",
        ]
    return "\n".join(lines)
