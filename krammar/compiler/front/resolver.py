"""Builds the IR from syntax: resolves names, parses defaults and versions, names anonymous structs.

It reports diagnostics about names (E2xx), versions (E3xx), types and defaults (E4xx), and headers (E5xx).
``checks`` reports those that need the complete IR.
"""

from __future__ import annotations

import keyword
import math
import re
import struct
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from krammar.compiler import ir, names
from krammar.compiler.front.declarations import Declarations
from krammar.compiler.front.headers import Header, check_version_field, highest_mentioned
from krammar.compiler.front.reporter import Reporter
from krammar.compiler.front.syntax import (
    AnonymousNode,
    ArrayNode,
    FieldNode,
    LengthFieldMinusNode,
    NamedNode,
    StructNode,
    SyntaxFile,
    TypeNode,
    Word,
    anonymous_of,
    is_message_uuid,
    type_word,
)
from krammar.compiler.front.types import MILLIS, NamedTypes, array_prefix
from krammar.util.diagnostics import Diagnostics, Position, meant, most_similar

# Default values of fields: diagnostic E402.

_NUMBER = re.compile(r"-?(0x[0-9a-fA-F]{1,16}|0|[1-9][0-9]{0,19})")
_QUOTED = re.compile("""(["'`])(.*)\\1""")
_NULL_UUID = uuid.UUID(int=0)


def build_default(node: FieldNode, type_: ir.Type, report: Reporter) -> ir.Default:
    word = node.default
    if word is None:
        return _zero(type_)
    text = word.text[1:-1]
    nullable = getattr(type_, "nullable", None)
    if text == "null" and (nullable not in (None, False)):
        return None
    value = _read_default(type_, text)
    quoted = _QUOTED.fullmatch(text) if isinstance(value, str) else None
    if quoted is not None:
        report.error(
            "E402",
            f"the default {text} has quotes, which would be part of the value",
            word,
            f"write `({quoted[2]})`",
            f"({quoted[2]})",
        )
        return quoted[2]
    if value is not None:
        return value
    hint, right = "", None
    if text == "null":
        hint = "only a nullable type can have the default null"
    elif isinstance(type_, ir.EnumType):
        name = type_.enum.name
        value = next((m.value for m in type_.enum.members if m.name == text), None)
        if not _NUMBER.fullmatch(text):
            hint = "write the number of a member, as in `enum-Name(2)`"
        if value is not None:
            hint, right = (
                f"write the number of the member: `enum-{name}({value})`",
                f"({value})",
            )
    elif isinstance(type_, (ir.Primitive, ir.Varint)) and hasattr(type_, "bounds"):
        if not isinstance(type_, ir.Primitive) or type_.is_integer:
            hint = "the value must be between {} and {}".format(*type_.bounds)
        elif type_.name == "bool":
            hint = "write `(true)` or `(false)`"
    elif isinstance(type_, ir.Array):
        hint = "an array can only have the default `()`, or `(null)` if it is nullable"
    elif isinstance(type_, ir.StructType) and type_.nullable:
        hint = "write `(null)`, or `()` for a struct with default values"
    report.error("E402", f'the default "{text}" does not fit {describe(type_)}', word, hint, right)
    return _zero(type_)


def _zero(type_: ir.Type) -> ir.Default:
    match type_:
        case ir.Primitive(name="bool"):
            return False
        case ir.Primitive(name="float32" | "float64"):
            return 0.0
        case ir.Primitive(name="uuid"):
            return _NULL_UUID
        case ir.Text(kind="string"):
            return ""
        case ir.Text() | ir.LengthFieldMinus():
            return b""
        case ir.Array():
            return ()
        case ir.StructType():
            return None
        case _:
            return 0


def _read_default(type_: ir.Type, text: str) -> ir.Default:
    """Parse a default. None if it is not a value of the type."""
    match type_:
        case ir.Primitive(name="bool"):
            return {"true": True, "false": False}.get(text)
        case ir.Primitive(name="float32" | "float64", code=code):
            try:
                # The nearest value of the type, so that a field that is read can equal its default.
                value: float = struct.unpack(code, struct.pack(code, float(text)))[0]
            except (ValueError, OverflowError):
                return None
            return value if math.isfinite(value) else None
        case ir.Primitive(name="uuid"):
            try:
                return uuid.UUID(text)
            except ValueError:
                return None
        case ir.Primitive() | ir.Varint() | ir.EnumType():
            bounds = type_.enum.type.bounds if isinstance(type_, ir.EnumType) else type_.bounds
            if not _NUMBER.fullmatch(text):
                return None
            number = int(text, 0)
            return number if bounds[0] <= number <= bounds[1] else None
        case ir.Text(kind="string"):
            return None if text == "null" else text
        case ir.Text():
            return b"" if text == "" else None
        case ir.Array() | ir.StructType(nullable=True):
            return () if text == "" else None
        case _:
            return None


def describe(type_: ir.Type) -> str:
    match type_:
        case ir.Primitive(name=name) | ir.Varint(name=name):
            return name
        case ir.EnumType(enum):
            return f"enum-{enum.name} ({enum.type.name})"
        case ir.Text(kind=kind):
            return kind
        case ir.Array():
            return "an array"
        case ir.StructType(struct):
            return f"the struct {struct.name}"
        case _:
            return "a `length-field-minus` field"


# Annotations of fields: diagnostics E302 to E308 and E404.


@dataclass(slots=True)
class Annotations:
    """The annotations of a field, as ``ir.Field`` describes them."""

    versions: ir.VersionRange = ir.ALL_VERSIONS
    tag: int | None = None
    flexible: bool = True
    ignorable: bool = False
    entity: str = ""
    tag_position: Position | None = None


@dataclass(slots=True)
class Enclosing:
    """The struct that a field belongs to, and the message or named struct ``owner`` around it.

    ``holders`` are the version ranges of the fields that contain the struct, outermost first.
    """

    owner: str
    header: Header
    holders: tuple[ir.VersionRange, ...] = ()
    reserved: frozenset[str] = names.STRUCT_NAMES


def read_annotations(node: FieldNode, report: Reporter) -> Annotations:
    found = Annotations()
    seen: set[str] = set()
    for kind, word in node.annotations:
        if kind in seen:
            report.error("E304", f"a second annotation of the same kind: {word.text or kind}", word)
        seen.add(kind)
        match kind:
            case "versions":
                low, _, high = word.text.partition("-")
                first = report.in_range(int(low.strip("v+")), word, "version")
                last = report.in_range(int(high[1:]), word, "version") if high else None
                if last is not None and first > last:
                    report.error("E302", f"v{first} is higher than v{last}", word)
                    last = first
                found.versions = ir.VersionRange(first, last)
            case "tag":
                found.tag = _tag(word, report)
                at, before = word.position, len("tag ")
                found.tag_position = replace(
                    at, column=at.column - before, length=at.length + before
                )
            case "entity":
                found.entity = word.text
            case "ignorable":
                found.ignorable = True
            case _:
                found.flexible = False
    return found


def _tag(word: Word, report: Reporter) -> int:
    tag = int(word.text, 0)
    if tag < 0:
        report.error("E305", f"the tag {tag} is negative", word, "number tags from 0")
    return tag


def reserved_tags(node: StructNode | FieldNode, report: Reporter) -> tuple[ir.ReservedTag, ...]:
    return tuple(ir.ReservedTag(_tag(word, report), word.position) for word in node.reserved)


def check_range(
    node: FieldNode, written: Annotations, context: Enclosing, report: Reporter
) -> None:
    """Check that a field exists in a version of its struct, and ends no later than the struct."""
    versions = written.versions
    if versions == ir.ALL_VERSIONS:
        _check_tag_versions(written, context, report)
        return
    header = context.header
    word = next(word for kind, word in node.annotations if kind == "versions")
    highest = header.max_version
    if highest is not None and (versions.min > highest or (versions.max or 0) > highest):
        report.error(
            "E306",
            f"{versions} exceeds the last version of {header.node.name.text}, {highest}",
            word,
            "raise `max version`, or lower the versions of the field",
        )
        return
    for holder in context.holders:
        if versions.intersect(holder) is None:
            report.error(
                "E306",
                f"{versions} has no version in common with {holder} of the field that contains it",
                word,
            )
            return
    _check_tag_versions(written, context, report)


def _check_tag_versions(written: Annotations, context: Enclosing, report: Reporter) -> None:
    """Check that a tagged field, and the fields that contain it, have a flexible version in common."""
    flexible = context.header.flexible_from
    if written.tag_position is None or flexible is None:
        return
    for versions in (written.versions, *context.holders):
        if versions.max is not None and versions.max < flexible:
            name = context.header.node.name.text
            report.diagnostics.add(
                "E308",
                f"a tag in {versions}, but {name} is flexible only from v{flexible}",
                written.tag_position,
            )
            return


def check_nullable(
    node: FieldNode, type_: ir.Type, versions: ir.VersionRange, context: Enclosing, report: Reporter
) -> None:
    nullable = getattr(type_, "nullable", None)
    if not isinstance(nullable, ir.VersionRange) or nullable == ir.ALL_VERSIONS:
        return
    highest = context.header.max_version
    exists = versions if versions.max is not None else ir.VersionRange(versions.min, highest)
    if exists.intersect(nullable) is None:
        report.error(
            "E307",
            f"nullable in {nullable}, but the field exists only in {exists}",
            type_word(node) or node.name,
            "choose a version that the field has",
        )


def check_entity(node: FieldNode, type_: ir.Type, report: Reporter) -> None:
    type_ = ir.innermost_type(type_)
    named = isinstance(type_, ir.Varint | ir.Text)
    if named or (isinstance(type_, ir.Primitive) and (type_.is_integer or type_.name == "uuid")):
        return
    for kind, word in node.annotations:
        if kind == "entity":
            report.error(
                "E404",
                f'"{node.name.text}" cannot have an entity, because it is {describe(type_)}',
                word,
                "only strings, bytes, integers, uuids and arrays of them can have one",
            )


# The classes of anonymous structs: diagnostics E205 and E208.


@dataclass(frozen=True, slots=True)
class _Anonymous:
    """An anonymous struct.

    Attributes:
        word: the hint, or the field's name, from which its own name comes
        path: the names of the structs that contain it inside the message, and its own name
    """

    node: FieldNode
    word: Word
    path: tuple[str, ...]


def anonymous_class_names(declarations: Declarations) -> dict[Position, str]:
    """Return the classes of all anonymous structs, by the positions of their fields' names.

    The own name of a struct is its hint, or the singular of the field's name. If structs of one message have the same
    own name, the shallowest one is the class ``Message.Name``. The classes of the others have all names on their paths,
    such as ``Message.OuterName``, and so do all of them if two are equally deep. That does not depend on the order of
    the definitions. What still collides is an error.
    """
    owners: dict[str, list[_Anonymous]] = {}
    for name, header in declarations.headers.items():
        owner, *part = name.split(".", 1)
        owners.setdefault(owner, []).extend(_anonymous(header.node.fields, tuple(part)))
    found: dict[Position, str] = {}
    for owner, structs in owners.items():
        found |= _name(owner, structs, declarations)
    return found


def _anonymous(fields: Sequence[FieldNode], path: tuple[str, ...]) -> Iterator[_Anonymous]:
    seen: set[str] = set()
    for node in fields:
        arrow = None if node.type is None else anonymous_of(node.type)
        if arrow is None or node.name.text in seen:  # a second field of a name is E202
            continue
        seen.add(node.name.text)
        outer = node.type.hint if isinstance(node.type, ArrayNode) else None
        hint = outer or arrow.hint
        name = hint.text if hint is not None else names.singular(node.name.text)
        inner = (*path, f"{name[:1].upper()}{name[1:]}")
        yield _Anonymous(node, hint or node.name, inner)
        yield from _anonymous(node.fields, inner)


def _name(
    owner: str, structs: Sequence[_Anonymous], declarations: Declarations
) -> dict[Position, str]:
    groups: dict[str, list[_Anonymous]] = {}
    for anonymous in structs:
        groups.setdefault(anonymous.path[-1], []).append(anonymous)
    own_names: list[tuple[_Anonymous, str]] = []
    paths: list[tuple[_Anonymous, str]] = []
    for name, group in groups.items():
        least = min(len(each.path) for each in group)
        shallowest = [each for each in group if len(each.path) == least]
        free = len(shallowest) == 1 and f"{owner}.{name}" not in declarations.class_names
        for anonymous in group:
            if free and anonymous is shallowest[0]:
                own_names.append((anonymous, f"{owner}.{name}"))
            else:
                paths.append((anonymous, f"{owner}.{''.join(anonymous.path)}"))
    found = {}
    for anonymous, name in own_names + paths:
        word = anonymous.node.name
        found[word.position] = name
        if keyword.iskeyword(name.rpartition(".")[2]):
            declarations.report.error(
                "E208",
                f'the struct of "{word.text}" would be the class "{anonymous.path[-1]}", which Python reserves',
                anonymous.word,
                "choose another name for its class with a hint: `=>Hint` or `[=>]Hint`",
            )
        other = declarations.class_names.setdefault(name, word.position)
        if other != word.position:
            declarations.report.error(
                "E205",
                f"this struct and the one at {other.path.name}:{other.line} would both be the class "
                f'"{name}"',
                word,
                "choose another class name for one of them with a hint: `=>Hint` or `[=>]Hint`",
            )
    return found


# Structs, their fields and types.

# How deeply named structs may contain each other, because generated code is nested as deeply.
_MAX_CHAIN = 32


def resolve_files(
    package: str, files: Sequence[SyntaxFile], diagnostics: Diagnostics, before: int = 0
) -> ir.Protocol:
    """Build the IR of the files of a folder. It is complete only if no errors were added.

    Args:
        before: how many of ``diagnostics`` are about other folders.
    """
    report = Reporter(diagnostics)
    declarations = Declarations(files, report)
    gutted = {(file.path, line) for file in files for line in file.gutted}
    resolver = _Resolver(declarations, gutted)
    found = []
    for file, declared in zip(files, declarations.by_file, strict=True):
        structs = [resolver.struct(h.node.name.text) for h in declared if isinstance(h, Header)]
        found.append(
            ir.DefinitionFile(
                file.path,
                names.module_name(file.path.name),
                tuple(struct for struct in structs if struct is not None),
                tuple(each for each in declared if isinstance(each, ir.Enum)),
                own=not file.used,
            )
        )
    _check_module_names(files, diagnostics)
    if all(diagnostic.is_style for diagnostic in diagnostics.found[before:]):
        declarations.check_requests()
    messages = resolver.messages()
    return ir.Protocol(
        package,
        tuple(found),
        tuple(each for each in messages if not each.push),
        pushes=tuple(each for each in messages if each.push),
    )


def _check_module_names(files: Sequence[SyntaxFile], diagnostics: Diagnostics) -> None:
    modules: dict[str, Path] = {}
    for file in files:
        module = names.module_name(file.path.name)
        other = modules.setdefault(module, file.path)
        if other != file.path:
            diagnostics.add(
                "E207",
                f"this file and {other.name} would both become the module {module}.py",
                Position(file.path, 1, 1),
                "rename one of the files",
            )


class _Resolver:
    """Resolves structs, their fields and types.

    Args:
        gutted: paths and lines where the parser has removed fields that it could not read.
    """

    def __init__(self, declarations: Declarations, gutted: set[tuple[Path, int]]) -> None:
        self._headers = declarations.headers
        self._anonymous_names = anonymous_class_names(declarations)
        self._report = declarations.report
        self._gutted = gutted
        self._named = NamedTypes(declarations, self.struct)
        self._structs: dict[str, ir.Struct | None] = {}
        self._resolving: list[str] = []

    def messages(self) -> list[ir.Request]:
        """Return the requests with their responses, and the pushes, in the order of their keys."""
        responses = {
            id(header.request): self._structs.get(name) for name, header in self._headers.items()
        }
        found = []
        for name, header in self._headers.items():
            struct = self._structs.get(name)
            if header.key is not None and struct is not None:
                found.append(
                    ir.Request(
                        struct,
                        header.key,
                        header.routing,
                        responses.get(id(header)),
                        header.push,
                        header.response_key,
                        header.headers,
                        header.response_headers,
                        header.cluster_action,
                    )
                )
        return sorted(found, key=lambda request: request.key)

    def struct(self, name: str) -> ir.Struct | None:
        """The struct ``name``, resolved on first use. None if it cannot be resolved."""
        if name in self._structs:
            return self._structs[name]
        header = self._headers[name]
        node = header.node
        if name in self._resolving:
            circle = [*self._resolving[self._resolving.index(name) :], name]
            for inside in set(circle):
                self._structs[inside] = None
            self._report.error(
                "E504",
                f"{name} contains itself: {' → '.join(circle)}",
                node.name,
                "recursive structs are not supported; encode the inner struct separately and store it "
                "in a `bytes` field",
            )
            return None
        if len(self._resolving) > _MAX_CHAIN:
            self._report.error(
                "E507",
                f"structs are nested more than {_MAX_CHAIN} levels deep: "
                f"{' → '.join(self._resolving[:3])} → …",
                node.name,
            )
            return None
        self._resolving.append(name)
        reserved = names.STRUCT_NAMES
        if header.encoding:
            reserved |= names.CODEC_NAMES
        if header.key is not None or header.request is not None:
            reserved |= names.MESSAGE_NAMES
        fields = self._fields(node.fields, Enclosing(name.partition(".")[0], header, (), reserved))
        self._resolving.pop()
        max_version = header.max_version
        version_field = None
        if header.version_field:
            version_field = check_version_field(node, fields, self._report)
            if max_version is None:
                max_version = highest_mentioned(node, header, fields)
        struct = ir.Struct(
            name,
            fields,
            node.doc,
            node.name.position,
            encoding=header.encoding,
            version_field=version_field,
            min_version=header.min_version,
            max_version=max_version,
            flexible_from=header.flexible_from,
            reads_newer=header.reads_newer and max_version is not None,
            reserved_tags=reserved_tags(node, self._report),
        )
        return self._structs.setdefault(name, struct)

    def _fields(self, nodes: Sequence[FieldNode], context: Enclosing) -> tuple[ir.Field, ...]:
        fields: dict[str, ir.Field] = {}
        seen: dict[str, Word] = {}
        if any(is_message_uuid(node) for node in nodes):
            context = replace(context, reserved=context.reserved | names.JOURNAL_NAMES)
        for node in nodes:
            python_name = names.python_name(node.name.text, context.reserved)
            other = seen.setdefault(python_name, node.name)
            if other is not node.name:
                line = other.position.line
                self._report.error(
                    "E202",
                    (
                        f'the field "{node.name.text}" already exists at line {line}'
                        if other.text == node.name.text
                        else f'"{node.name.text}" and "{other.text}" (line {line}) would both be '
                        f"`{python_name}` in Python"
                    ),
                    node.name,
                    "rename one of the fields",
                )
                continue
            resolved = self._field(node, python_name, context)
            if resolved is not None:
                fields[python_name] = resolved
        given = {
            names.python_name(node.name.text, context.reserved): node.default for node in nodes
        }
        for counted in tuple(fields.values()):
            if not isinstance(counted.type, ir.LengthFieldMinus):
                continue
            name = counted.type.length_field
            length, default = fields.get(name), given.get(name)
            if length is None:
                continue
            if default is not None:
                self._report.error(
                    "E506",
                    f'"{length.name}" cannot have a default, because it counts the bytes of "{counted.name}"',
                    default,
                    "remove the default: encoding writes the length",
                )
            # Encoding ignores the value, also where the field does not exist. The default is the length of an empty
            # value, so that a message without the field has the length that encoding writes.
            fields[name] = replace(length, ignorable=True, default=counted.type.minus)
        return tuple(fields.values())

    def _field(self, node: FieldNode, python_name: str, context: Enclosing) -> ir.Field | None:
        annotations = read_annotations(node, self._report)
        versions = annotations.versions
        check_range(node, annotations, context, self._report)
        if node.fields and (node.type is None or anonymous_of(node.type) is None):
            self._report.error(
                "E505",
                f'"{node.name.text}" contains fields, but its type is not an anonymous struct',
                node.name,
                "change the type to `=>` or `[=>]`",
            )
        written = node.type
        if written is None:
            # A name without a type, such as `ThrottleMillis`, is also the type.
            written = NamedNode(node.name)
            if node.name.text not in MILLIS:
                near = most_similar(node.name.text, MILLIS)
                hint = meant(near) or "write `Name: type`"
                self._report.error(
                    "E401", f'"{node.name.text}" has no type', node.name, hint, near or None
                )
                return None
        inside = Enclosing(
            context.owner, context.header, (*context.holders, versions), context.reserved
        )
        type_ = self._type(node, written, inside)
        if type_ is None:
            return None
        check_nullable(node, type_, versions, context, self._report)
        check_entity(node, type_, self._report)
        default = build_default(node, type_, self._report)
        throttle = None
        if isinstance(written, NamedNode) and written.word.text in MILLIS:
            default, throttle = self._millis(written.word.text, node.default, default)
        return ir.Field(
            node.name.text,
            python_name,
            type_,
            versions,
            annotations.tag,
            annotations.flexible,
            default,
            node.doc,
            node.name.position,
            throttle,
            annotations.ignorable,
            annotations.entity,
            annotations.tag_position,
        )

    @staticmethod
    def _millis(kind: str, word: Word | None, given: ir.Default) -> tuple[ir.Default, int | None]:
        """Return the default and the throttle version.

        The number of TimeoutMillis is its default. The number of ThrottleMillis is the version from which
        the broker throttles after the response.
        """
        if kind == "ThrottleMillis":
            return 0, int(str(given or 0))
        return (MILLIS[kind] if word is None else given), None

    # -- types -------------------------------------------------------------------------------

    def _type(self, node: FieldNode, type_: TypeNode, context: Enclosing) -> ir.Type | None:
        match type_:
            case NamedNode(word):
                return self._named.resolve(word, context.owner)
            case LengthFieldMinusNode(length_field, minus):
                return ir.LengthFieldMinus(
                    names.python_name(length_field.text, context.reserved),
                    int(minus.text, 0),
                    length_field.position,
                )
            case AnonymousNode(prefix, arrow):
                if prefix is not None and prefix.text not in ("nullable", "nullable-bool"):
                    self._report.error(
                        "E401",
                        f'"{prefix.text}" is not allowed before `=>`',
                        prefix,
                        "write `=>`, `nullable=>` or `nullable-bool=>`",
                    )
                is_bool = prefix is not None and prefix.text == "nullable-bool"
                struct = self._anonymous(node, arrow, context)
                return ir.StructType(struct, prefix is not None, is_bool)
            case ArrayNode(prefix, element, hint):
                return self._array(node, prefix, element, hint, context)

    def _anonymous(self, node: FieldNode, at: Word, context: Enclosing) -> ir.Struct:
        class_name = self._anonymous_names[node.name.position]
        if not node.fields and (at.position.path, at.position.line) not in self._gutted:
            self._report.error("E505", f'the struct of "{node.name.text}" has no fields', at)
        fields = self._fields(
            node.fields, Enclosing(context.owner, context.header, context.holders)
        )
        return ir.Struct(
            class_name,
            fields,
            node.doc,
            node.name.position,
            anonymous=True,
            encoding=False,
            reserved_tags=reserved_tags(node, self._report),
        )

    def _array(
        self,
        node: FieldNode,
        prefix: Word | None,
        element: TypeNode,
        hint: Word | None,
        context: Enclosing,
    ) -> ir.Array | None:
        read = array_prefix(prefix, self._report)
        anonymous = anonymous_of(element)
        if anonymous is None and hint is not None:
            self._report.error(
                "E401", "a hint is only allowed after an array of anonymous structs", hint
            )
        inner = (
            self._array(node, None, element.element, hint, context)
            if isinstance(element, ArrayNode)
            else self._type(node, element, context)
        )
        return None if inner is None else ir.Array(inner, read.nullable, read.length)
