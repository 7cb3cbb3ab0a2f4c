"""Builds the IR from syntax: resolves names, parses defaults and versions, names anonymous structs.

It reports diagnostics about names (E2xx), versions (E3xx), types and defaults (E4xx), and headers (E5xx).
``checks`` reports those that need the complete IR.
"""

from __future__ import annotations

import difflib
import keyword
import math
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from krammar.compiler import ir, names
from krammar.compiler.front import type_hints
from krammar.compiler.front.parser import (
    AnonymousNode,
    ArrayNode,
    EnumNode,
    FieldNode,
    LengthFieldMinusNode,
    NamedNode,
    StructNode,
    SyntaxFile,
    TypeNode,
    Word,
)
from krammar.util.diagnostics import Diagnostics, Fix, Position, meant, most_similar

_TEXT_TYPES = {
    "string": ir.Text("string"),
    "bytes": ir.Text("bytes"),
    "nullable-string": ir.Text("string", ir.ALL_VERSIONS),
    "nullable-bytes": ir.Text("bytes", ir.ALL_VERSIONS),
    "varint-string": ir.Text("string", ir.ALL_VERSIONS, varint=True),
    "varint-bytes": ir.Text("bytes", ir.ALL_VERSIONS, varint=True),
}
# Fields that are written without a type, and their defaults in milliseconds.
_MILLIS = {"ThrottleMillis": 0, "TimeoutMillis": 15000}
_NULLABLE_FROM = re.compile(r"nullable-(?:(string|bytes)-)?v(\d+)\+")
_NUMBER = re.compile(r"-?(0x[0-9a-fA-F]{1,16}|0|[1-9][0-9]{0,18})")
_QUOTED = re.compile("""(["'`])(.*)\\1""")
_NULL_UUID = uuid.UUID(int=0)
# How deeply named structs may contain each other, because generated code is nested as deeply.
_MAX_CHAIN = 32
# The number of unknown names that get a hint with a similar name.
_MAX_GUESSES = 50


def resolve(
    package: str, files: Sequence[SyntaxFile], diagnostics: Diagnostics, before: int = 0
) -> ir.Protocol:
    """Build the IR of the files of a folder. It is complete only if no errors were added.

    Args:
        before: how many of ``diagnostics`` are about other folders.
    """
    return _Resolver(package, files, diagnostics, before).protocol()


@dataclass(slots=True)
class _Header:
    """The header of a struct: the values of its modifiers."""

    node: StructNode
    plain: bool = False
    version_field: bool = False
    encoding: bool = True
    key: int | None = None
    min_version: int = 0
    max_version: int | None = None
    flexible_from: int | None = None
    routing: str = ""
    frequent: bool = False
    request: _Header | None = None


@dataclass(slots=True)
class _Annotations:
    """The annotations of a field, as ``ir.Field`` describes them."""

    versions: ir.VersionRange = ir.ALL_VERSIONS
    tag: int | None = None
    flexible: bool = True
    ignorable: bool = False
    entity: str = ""
    tag_position: Position | None = None


@dataclass(slots=True)
class _Context:
    """The struct that a field belongs to, and the message or named struct ``owner`` around it.

    ``holders`` are the version ranges of the fields that contain the struct, outermost first.
    """

    owner: str
    header: _Header
    holders: tuple[ir.VersionRange, ...] = ()
    reserved: frozenset[str] = names.STRUCT_NAMES


@dataclass(slots=True)
class _Resolver:
    package: str
    files: Sequence[SyntaxFile]
    diagnostics: Diagnostics
    before: int = 0
    headers: dict[str, _Header] = field(default_factory=dict)
    enums: dict[str, ir.Enum] = field(default_factory=dict)
    structs: dict[str, ir.Struct | None] = field(default_factory=dict)
    resolving: list[str] = field(default_factory=list)
    class_names: dict[str, Position] = field(default_factory=dict)
    unread: set[str] = field(default_factory=set)
    gutted: set[tuple[Path, int]] = field(default_factory=set)
    # The name and position of every definition, declared or not.
    everywhere: dict[str, Position] = field(default_factory=dict)
    guesses: int = 0

    def protocol(self) -> ir.Protocol:
        for file in self.files:
            self.unread |= file.unread
            self.gutted |= {(file.path, line) for line in file.gutted}
            for definition in file.definitions:
                self.everywhere[definition.name.text] = definition.name.position
        ordered = [list(self._declare(file)) for file in self.files]
        self._check_api_key_name(ordered)
        self._check_keys()
        files = []
        for file, declared in zip(self.files, ordered, strict=True):
            structs = [self._struct(h.node.name.text) for h in declared if isinstance(h, _Header)]
            files.append(
                ir.DefinitionFile(
                    file.path,
                    names.module_name(file.path.name),
                    tuple(struct for struct in structs if struct is not None),
                    tuple(e for e in declared if isinstance(e, ir.Enum)),
                    own=not file.used,
                )
            )
        self._check_module_names()
        if all(diagnostic.is_style for diagnostic in self.diagnostics.found[self.before :]):
            self._check_requests()
        return ir.Protocol(self.package, tuple(files), tuple(self._requests(ordered)))

    # -- declarations ------------------------------------------------------------------------

    def _declare(self, file: SyntaxFile) -> Iterator[_Header | ir.Enum]:
        """Register the definitions of a file by name, and pair responses with requests."""
        before: _Header | None = None
        for node in file.definitions:
            if not self._take_name(node.name):
                before = None
                continue
            if isinstance(node, EnumNode):
                before = None
                enum = self._enum(node)
                self.enums[node.name.text] = enum
                yield enum
                continue
            header = self._header(node)
            self._check_owner(header, file)
            self._pair(header, before)
            self.headers[node.name.text] = header
            before = header
            yield header

    def _take_name(self, word: Word) -> bool:
        other = self.class_names.get(word.text)
        if other is not None:
            where = f"{other.path.name}:{other.line}"
            self.diagnostics.add(
                "E201", f'"{word.text}" is already defined at {where}', word.position, "rename one"
            )
            return False
        last = word.text.rpartition(".")[2]
        if not (word.text[0].isupper() and last[0].isupper()) or keyword.iskeyword(last):
            self._error(
                "E208",
                f'"{word.text}" cannot be the name of a definition',
                word,
                "it becomes a Python class: begin it with a capital letter, and avoid Python's keywords",
            )
        self.class_names[word.text] = word.position
        return True

    def _header(self, node: StructNode) -> _Header:
        header = _Header(node)
        seen: set[str] = set()
        for kind, word in node.modifiers:
            if kind in seen:
                self._error("E502", f"the modifier `{kind.replace('_', ' ')}` appears twice", word)
            seen.add(kind)
            match kind:
                case "not_top_level":
                    header.plain = True
                case "with_version_field":
                    header.version_field = True
                case "no_encoding":
                    header.encoding = False
                case "routing":
                    header.routing = word.text
                case "frequent":
                    header.frequent = True
                case "flexible":
                    header.flexible_from = self._in_range(int(word.text[1:-1]), word, "version")
                case _:
                    value = self._version(word, "key" if kind == "key" else "version")
                    setattr(header, kind, value)
        self._check_modifiers(header, seen)
        return header

    def _check_owner(self, header: _Header, file: SyntaxFile) -> None:
        """Check the definition of a message's struct, such as ``FetchRequest.Replica``."""
        owner, _, short = header.node.name.text.rpartition(".")
        if not owner:
            return
        if not any(isinstance(d, StructNode) and d.name.text == owner for d in file.definitions):
            self._error(
                "E212",
                f'this file does not define "{owner}", to which "{short}" would belong',
                header.node.name,
                "define both in one file",
            )
        elif not header.plain or header.encoding:
            self._error(
                "E502",
                f'"{short}" belongs to {owner}, so it cannot be encoded alone',
                header.node.name,
                "begin its modifiers with `not top level, no encoding`",
            )

    def _version(self, word: Word, what: str) -> int:
        return self._in_range(int(word.text, 0), word, what)

    def _in_range(self, value: int, word: Word, what: str) -> int:
        if not 0 <= value <= 32767:
            self._error("E301", f"the {what} {value} is not between 0 and 32767", word)
            return 0
        return value

    def _check_modifiers(self, header: _Header, seen: set[str]) -> None:
        node = header.node
        first = [kind for kind, _ in node.modifiers]
        if not first:
            return
        if "not_top_level" in seen and "key" in seen:
            self._error(
                "E502",
                "`not top level` and `key` cannot be combined",
                node.name,
                "remove `not top level` if it is a request, or else `key`",
            )
        elif "not_top_level" in seen:
            if first[0] != "not_top_level":
                self._error("E502", "`not top level` must be the first modifier", node.name)
            if header.version_field and not header.encoding:
                self._error(
                    "E502", "`with version field` and `no encoding` cannot be combined", node.name
                )
            if header.routing:
                self._error("E502", f"only a request can have `{header.routing}`", node.name)
        elif "key" not in seen:
            self._error(
                "E502",
                "the header has neither `key` nor `not top level`",
                node.name,
                "begin the modifiers of a request with `key N, max version N`, and those of any other "
                "struct with `not top level`",
            )
        elif first[:2] != ["key", "max_version"]:
            self._error(
                "E502",
                "the first two modifiers of a request must be `key` and `max version`",
                node.name,
                "write `key N, max version N`, then the other modifiers",
            )
        elif header.version_field or not header.encoding:
            self._error(
                "E502",
                "a request cannot have `with version field` or `no encoding`",
                node.name,
                "only a struct with `not top level` can have them",
            )
        if header.max_version is not None and header.min_version > header.max_version:
            self._error(
                "E302",
                f"min version {header.min_version} is higher than max version {header.max_version}",
                node.name,
            )
        if (
            header.flexible_from is not None
            and header.max_version is not None
            and header.flexible_from > header.max_version
        ):
            word = next(word for kind, word in node.modifiers if kind == "flexible")
            at, before = word.position, len("flexible ")
            self.diagnostics.add(
                "E303",
                f"flexible from version {header.flexible_from}, but the last version is {header.max_version}",
                replace(at, column=at.column - before, length=at.length + before),
            )

    def _pair(self, header: _Header, before: _Header | None) -> None:
        """Give a response the versions and flexibility of the request directly before it."""
        node = header.node
        if node.modifiers or not node.name.text.endswith("Response"):
            return
        wanted = node.name.text.removesuffix("Response") + "Request"
        if before is not None and before.node.name.text == wanted:
            if before.key is not None:
                header.request = before
                header.min_version, header.max_version = before.min_version, before.max_version
                header.flexible_from = before.flexible_from
                header.frequent = before.frequent
            return
        if wanted in self.unread:
            return
        if wanted in self.everywhere:
            place = self.everywhere[wanted]
            self._error(
                "E503",
                f'"{node.name.text}" does not directly follow "{wanted}"',
                node.name,
                f"move it directly after {wanted} ({place.path.name}:{place.line})",
            )
        else:
            names_of_requests = (n for n in self.everywhere if not n.endswith("Response"))
            hint = "add `not top level` if it is not a response"
            if before is not None and before.key is not None:
                hint = f'rename "{before.node.name.text}" to "{wanted}" if it is the request'
            near = self._most_similar(wanted, names_of_requests)
            self._error(
                "E503",
                f'the response "{node.name.text}" has no request "{wanted}"',
                node.name,
                meant(near) or hint,
                f"{near.removesuffix('Request')}Response" if near else None,
            )

    def _check_requests(self) -> None:
        """Check the names of requests, and that each one has a response."""
        answered = {id(header.request) for header in self.headers.values()}
        free = [
            name
            for name, header in self.headers.items()
            if not header.node.modifiers and header.request is None
        ]
        for header in self.headers.values():
            if header.key is None or id(header) in answered:
                continue
            name = header.node.name
            wanted = name.text.removesuffix("Request") + "Response"
            if not name.text.endswith("Request"):
                self._error(
                    "E509",
                    f'"{name.text}" has a key, but its name does not end with "Request"',
                    name,
                    f'rename it to "{_request_name(name.text)}", or replace its key by `not top level`',
                    _request_name(name.text),
                )
            elif wanted in self.unread:
                continue
            elif wanted in self.headers:
                self._error(
                    "E503",
                    f'"{wanted}" has modifiers, so it is not the response of "{name.text}"',
                    self.headers[wanted].node.name,
                    f"remove them: `{wanted} =>`",
                )
            elif near := self._nearly(wanted, free):
                self._error(
                    "E503",
                    f'the name "{near[0]}" is similar to the missing response of "{name.text}"',
                    self.headers[near[0]].node.name,
                    f'did you mean "{wanted}"? If it is not a response, add `not top level`',
                    wanted,
                )
            else:
                self._error(
                    "W501",
                    f'"{name.text}" has no response',
                    name,
                    f"define `{wanted} =>` directly after it",
                )

    def _check_keys(self) -> None:
        keys: dict[int, _Header] = {}
        for header in self.headers.values():
            if header.key is None:
                continue
            other = keys.setdefault(header.key, header)
            if other is not header:
                where = other.node.name
                self._error(
                    "E203",
                    f'"{where.text}" ({where.position.path.name}:{where.position.line}) already has key '
                    f"{header.key}",
                    next(word for kind, word in header.node.modifiers if kind == "key"),
                    "give each request another key",
                )

    def _check_api_key_name(self, ordered: Sequence[Sequence[_Header | ir.Enum]]) -> None:
        taken = self.class_names.get("ApiKey")
        if taken is not None and any(h.key is not None for h in self.headers.values()):
            self.diagnostics.add(
                "E206",
                'the generated package already has an enum "ApiKey" with the keys of requests',
                taken,
                "rename it",
            )

    def _check_module_names(self) -> None:
        modules: dict[str, Path] = {}
        for file in self.files:
            module = names.module_name(file.path.name)
            other = modules.setdefault(module, file.path)
            if other != file.path:
                self.diagnostics.add(
                    "E207",
                    f"this file and {other.name} would both become the module {module}.py",
                    Position(file.path, 1, 1),
                    "rename one of the files",
                )

    def _enum(self, node: EnumNode) -> ir.Enum:
        type_ = ir.PRIMITIVES.get(node.type.text)
        if type_ is None or not type_.is_integer:
            integers = [p.name for p in ir.PRIMITIVES.values() if p.is_integer]
            text = node.type.text
            right = type_hints.spelled(text)
            near = right if right in integers else type_hints.similar_type(text, integers)
            hint = type_hints.explain(text) or meant(near) or "use one of " + ", ".join(integers)
            message = f'"{text}" cannot be the type of an enum'
            self._error("E403", message, node.type, hint, near or None)
            type_ = ir.PRIMITIVES["int32"]
        values: dict[int, str] = {}
        members: dict[str, ir.EnumMember] = {}
        low, high = type_.bounds
        attributes: dict[str, str] = {}
        for member in node.members:
            value = int(member.value.text, 0)
            name = member.name.text
            if value in values:
                self._error(
                    "E202", f'"{values[value]}" already has the value {value}', member.value
                )
            elif name in members:
                self._error(
                    "E202", f'"{name}" is already a member of {node.name.text}', member.name
                )
            elif not low <= value <= high:
                self._error(
                    "E402", f"{value} is outside of {type_.name} ({low} to {high})", member.value
                )
            elif node.camelcase and names.constant_name(name) in attributes:
                other = attributes[names.constant_name(name)]
                self._error(
                    "E202",
                    f'"{name}" and "{other}" would both be {names.constant_name(name)} in Python',
                    member.name,
                )
            else:
                attributes[names.constant_name(name)] = name
                values[value] = name
                remarks = tuple(word.text for word in member.remarks)
                members[name] = ir.EnumMember(
                    value, name, remarks, member.doc, member.name.position
                )
        for member in node.members:
            for word in member.remarks:
                if word.text in members:
                    self._error(
                        "E202", f'"{word.text}" is already a member of {node.name.text}', word
                    )
        return ir.Enum(
            node.name.text,
            type_,
            node.camelcase,
            tuple(members.values()),
            node.doc,
            node.name.position,
        )

    # -- structs -----------------------------------------------------------------------------

    def _struct(self, name: str) -> ir.Struct | None:
        """The struct ``name``, resolved on first use. None if it cannot be resolved."""
        if name in self.structs:
            return self.structs[name]
        header = self.headers[name]
        node = header.node
        if name in self.resolving:
            circle = [*self.resolving[self.resolving.index(name) :], name]
            for inside in set(circle):
                self.structs[inside] = None
            self._error(
                "E504",
                f"{name} contains itself: {' → '.join(circle)}",
                node.name,
                "recursive structs are not supported; encode the inner struct separately and store it "
                "in a `bytes` field",
            )
            return None
        if len(self.resolving) > _MAX_CHAIN:
            self._error(
                "E507",
                f"structs are nested more than {_MAX_CHAIN} levels deep: "
                f"{' → '.join(self.resolving[:3])} → …",
                node.name,
            )
            return None
        self.resolving.append(name)
        reserved = names.STRUCT_NAMES
        if header.encoding:
            reserved |= names.CODEC_NAMES
        if header.key is not None or header.request is not None:
            reserved |= names.MESSAGE_NAMES
        fields = self._fields(node.fields, _Context(name.partition(".")[0], header, (), reserved))
        self.resolving.pop()
        max_version = header.max_version
        version_field = None
        if header.version_field:
            version_field = self._check_version_field(node, fields)
            if max_version is None:
                max_version = _highest_mentioned(node, header)
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
            frequent=header.frequent,
            reserved_tags=self._reserved_tags(node),
        )
        return self.structs.setdefault(name, struct)

    def _check_version_field(self, node: StructNode, fields: tuple[ir.Field, ...]) -> str | None:
        if not node.fields:
            self._error("E501", f"{node.name.text} has no version field", node.name, _VERSION_HINT)
            return None
        first = node.fields[0]
        type_ = first.type
        if first.name.text != "Version":
            self._error("E501", 'the first field is not "Version"', first.name, _VERSION_HINT)
        elif not isinstance(type_, NamedNode) or type_.word.text != "int16" or first.annotations:
            self._error("E501", "the version field is not a plain int16", first.name, _VERSION_HINT)
        elif fields and fields[0].name == "Version":
            return fields[0].python_name
        return None

    def _fields(self, nodes: Sequence[FieldNode], context: _Context) -> tuple[ir.Field, ...]:
        fields: dict[str, ir.Field] = {}
        seen: dict[str, Word] = {}
        if any(_is_message_uuid(node) for node in nodes):
            context = replace(context, reserved=context.reserved | names.JOURNAL_NAMES)
        for node in nodes:
            python_name = names.python_name(node.name.text, context.reserved)
            other = seen.setdefault(python_name, node.name)
            if other is not node.name:
                line = other.position.line
                self._error(
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
        return tuple(fields.values())

    def _field(self, node: FieldNode, python_name: str, context: _Context) -> ir.Field | None:
        annotations = self._annotations(node)
        versions = annotations.versions
        self._check_range(node, annotations, context)
        if node.fields and (node.type is None or _anonymous_of(node.type) is None):
            self._error(
                "E505",
                f'"{node.name.text}" contains fields, but its type is not an anonymous struct',
                node.name,
                "change the type to `=>` or `[=>]`",
            )
        written = node.type
        if written is None:
            # A name without a type, such as `ThrottleMillis`, is also the type.
            written = NamedNode(node.name)
            if node.name.text not in _MILLIS:
                near = most_similar(node.name.text, _MILLIS)
                hint = meant(near) or "write `Name: type`"
                self._error(
                    "E401", f'"{node.name.text}" has no type', node.name, hint, near or None
                )
                return None
        inside = _Context(
            context.owner, context.header, (*context.holders, versions), context.reserved
        )
        type_ = self._type(node, written, inside)
        if type_ is None:
            return None
        self._check_nullable(node, type_, versions, context)
        self._check_entity(node, type_)
        default = self._default(node, type_)
        throttle = None
        if isinstance(written, NamedNode) and written.word.text in _MILLIS:
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
        return (_MILLIS[kind] if word is None else given), None

    def _annotations(self, node: FieldNode) -> _Annotations:
        found = _Annotations()
        seen: set[str] = set()
        for kind, word in node.annotations:
            if kind in seen:
                self._error(
                    "E304", f"a second annotation of the same kind: {word.text or kind}", word
                )
            seen.add(kind)
            match kind:
                case "versions":
                    low, _, high = word.text.partition("-")
                    first = self._in_range(int(low.strip("v+")), word, "version")
                    last = self._in_range(int(high[1:]), word, "version") if high else None
                    if last is not None and first > last:
                        self._error("E302", f"v{first} is higher than v{last}", word)
                        last = first
                    found.versions = ir.VersionRange(first, last)
                case "tag":
                    found.tag = self._tag(word)
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

    def _tag(self, word: Word) -> int:
        tag = int(word.text, 0)
        if tag < 0:
            self._error("E305", f"the tag {tag} is negative", word, "number tags from 0")
        return tag

    def _reserved_tags(self, node: StructNode | FieldNode) -> tuple[ir.ReservedTag, ...]:
        return tuple(ir.ReservedTag(self._tag(word), word.position) for word in node.reserved)

    def _check_range(self, node: FieldNode, written: _Annotations, context: _Context) -> None:
        """Check that a field exists in a version of its struct, and ends no later than the struct."""
        versions = written.versions
        if versions == ir.ALL_VERSIONS:
            self._check_tag_versions(written, context)
            return
        header = context.header
        word = next(word for kind, word in node.annotations if kind == "versions")
        highest = header.max_version
        if highest is not None and (versions.min > highest or (versions.max or 0) > highest):
            self._error(
                "E306",
                f"{versions} exceeds the last version of {header.node.name.text}, {highest}",
                word,
                "raise `max version`, or lower the versions of the field",
            )
            return
        for holder in context.holders:
            if versions.intersect(holder) is None:
                self._error(
                    "E306",
                    f"{versions} has no version in common with {holder} of the field that contains it",
                    word,
                )
                return
        self._check_tag_versions(written, context)

    def _check_tag_versions(self, written: _Annotations, context: _Context) -> None:
        """Check that a tagged field, and the fields that contain it, have a flexible version in common."""
        flexible = context.header.flexible_from
        if written.tag_position is None or flexible is None:
            return
        for versions in (written.versions, *context.holders):
            if versions.max is not None and versions.max < flexible:
                name = context.header.node.name.text
                self.diagnostics.add(
                    "E308",
                    f"a tag in {versions}, but {name} is flexible only from v{flexible}",
                    written.tag_position,
                )
                return

    def _check_nullable(
        self, node: FieldNode, type_: ir.Type, versions: ir.VersionRange, context: _Context
    ) -> None:
        nullable = getattr(type_, "nullable", None)
        if not isinstance(nullable, ir.VersionRange) or nullable == ir.ALL_VERSIONS:
            return
        highest = context.header.max_version
        exists = versions if versions.max is not None else ir.VersionRange(versions.min, highest)
        if exists.intersect(nullable) is None:
            self._error(
                "E307",
                f"nullable from v{nullable.min}, but the field exists only in {exists}",
                _type_word(node) or node.name,
                "choose a version that the field has",
            )

    def _check_entity(self, node: FieldNode, type_: ir.Type) -> None:
        while isinstance(type_, ir.Array):
            type_ = type_.element
        named = isinstance(type_, ir.Varint) or (
            isinstance(type_, ir.Text) and type_.kind == "string"
        )
        if named or (isinstance(type_, ir.Primitive) and type_.is_integer):
            return
        for kind, word in node.annotations:
            if kind == "entity":
                self._error(
                    "E404",
                    f'"{node.name.text}" cannot have an entity, because it is {_describe(type_)}',
                    word,
                    "only strings, integers and arrays of them name something",
                )

    # -- types -------------------------------------------------------------------------------

    def _type(self, node: FieldNode, type_: TypeNode, context: _Context) -> ir.Type | None:
        match type_:
            case NamedNode(word):
                return self._named_type(word, context)
            case LengthFieldMinusNode(length_field, minus):
                return ir.LengthFieldMinus(
                    names.python_name(length_field.text, context.reserved),
                    int(minus.text, 0),
                    length_field.position,
                )
            case AnonymousNode(prefix, arrow, hint):
                if prefix is not None and prefix.text != "nullable":
                    self._error(
                        "E401",
                        f'"{prefix.text}" is not allowed before `=>`',
                        prefix,
                        "write `=>` or `nullable=>`",
                    )
                struct = self._anonymous(node, hint, arrow, context)
                return None if struct is None else ir.StructType(struct, prefix is not None)
            case ArrayNode(prefix, element, hint):
                return self._array(node, prefix, element, hint, context)

    def _named_type(self, word: Word, context: _Context) -> ir.Type | None:
        text = word.text
        if text in _MILLIS:
            return ir.PRIMITIVES["int32"]
        for table in (ir.PRIMITIVES, ir.VARINTS, _TEXT_TYPES):
            if text in table:
                return table[text]
        match = _NULLABLE_FROM.fullmatch(text)
        if match is not None and match[1]:
            kind = "string" if match[1] == "string" else "bytes"
            first = self._in_range(int(match[2]), word, "version")
            return ir.Text(kind, ir.VersionRange(first))  # type: ignore[arg-type]
        if text.startswith("enum-"):
            return self._enum_type(word, text.removeprefix("enum-"))
        if text in self.headers:
            owner, _, short = text.rpartition(".")
            if owner and owner != context.owner:
                self._error(
                    "E212",
                    f'"{text}" belongs to {owner}, so {context.owner} cannot contain it',
                    word,
                    f"define a struct without a message in its name: `{short} => not top level, no encoding`",
                )
                return None
            struct = self._struct(text)
            return None if struct is None else ir.StructType(struct)
        if text in self.unread:
            return None
        near, why = self._meant_type(text)
        self._error("E204", f'unknown type "{text}"', word, why or meant(near), near)
        return None

    def _meant_type(self, text: str) -> tuple[str | None, str]:
        """The type that an unknown one may mean, or why there is none."""
        if text in self.enums:
            return f"enum-{text}", ""
        if text.removeprefix("nullable-") in self.headers:
            return (
                None,
                "only an anonymous struct can be null: write `nullable=>` and its fields below",
            )
        if why := type_hints.explain(text):
            return None, why
        right = type_hints.spelled(text)
        if right is not None and right != text:
            return right, ""
        known = [*ir.PRIMITIVES, *ir.VARINTS, *_TEXT_TYPES, *_MILLIS, *self.headers]
        known += [f"enum-{name}" for name in self.enums]
        self.guesses += 1
        near = type_hints.similar_type(text, known) if self.guesses <= _MAX_GUESSES else ""
        return near or None, ""

    def _enum_type(self, word: Word, name: str) -> ir.EnumType | None:
        if name in self.enums:
            return ir.EnumType(self.enums[name])
        # Types are resolved after all declarations, so every enum is known here.
        if name not in self.unread:
            near = self._most_similar(name, self.enums)
            self._error(
                "E204",
                f'unknown enum "{name}"',
                word,
                meant(near),
                f"enum-{near}" if near else None,
            )
        return None

    def _anonymous(
        self, node: FieldNode, hint: Word | None, at: Word, context: _Context
    ) -> ir.Struct | None:
        suffix = hint.text if hint is not None else names.singular(node.name.text)
        class_name = f"{context.owner}.{suffix[:1].upper()}{suffix[1:]}"
        other = self.class_names.get(class_name)
        if other is not None:
            self._error(
                "E205",
                f"this struct and the one at {other.path.name}:{other.line} would both be the class "
                f'"{class_name}"',
                node.name,
                "choose another class name for one of them with a hint: `=>Hint` or `[=>]Hint`",
            )
            return None
        self.class_names[class_name] = node.name.position
        if not node.fields and (at.position.path, at.position.line) not in self.gutted:
            self._error("E505", f'the struct of "{node.name.text}" has no fields', at)
        fields = self._fields(node.fields, _Context(context.owner, context.header, context.holders))
        return ir.Struct(
            class_name,
            fields,
            node.doc,
            node.name.position,
            anonymous=True,
            encoding=False,
            reserved_tags=self._reserved_tags(node),
        )

    def _array(
        self,
        node: FieldNode,
        prefix: Word | None,
        element: TypeNode,
        hint: Word | None,
        context: _Context,
    ) -> ir.Array | None:
        nullable: ir.VersionRange | None = None
        varint = False
        if prefix is not None:
            match = _NULLABLE_FROM.fullmatch(prefix.text)
            if prefix.text == "varint":
                varint = True
            elif prefix.text == "nullable":
                nullable = ir.ALL_VERSIONS
            elif match is not None and not match[1]:
                nullable = ir.VersionRange(self._in_range(int(match[2]), prefix, "version"))
            else:
                near = most_similar(prefix.text, ("nullable", "nullable-v1+", "varint"))
                self._error(
                    "E401",
                    f'"{prefix.text}" is not allowed before `[`',
                    prefix,
                    meant(near) or "`nullable`, `nullable-vN+` and `varint` are allowed",
                    near or None,
                )
        anonymous = _anonymous_of(element)
        if anonymous is None and hint is not None:
            self._error("E401", "a hint is only allowed after an array of anonymous structs", hint)
        if hint is not None and isinstance(element, AnonymousNode):
            element = AnonymousNode(None, element.arrow, hint)
        inner = (
            self._array(node, None, element.element, hint, context)
            if isinstance(element, ArrayNode)
            else self._type(node, element, context)
        )
        return None if inner is None else ir.Array(inner, nullable, varint)

    # -- defaults ----------------------------------------------------------------------------

    def _default(self, node: FieldNode, type_: ir.Type) -> ir.Default:
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
            self._error(
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
        self._error(
            "E402", f'the default "{text}" does not fit {_describe(type_)}', word, hint, right
        )
        return _zero(type_)

    def _requests(self, ordered: Sequence[Sequence[_Header | ir.Enum]]) -> Iterator[ir.Request]:
        responses = {id(h.request): h for h in self.headers.values() if h.request is not None}
        found = []
        for header in self.headers.values():
            struct = self.structs.get(header.node.name.text)
            if header.key is None or struct is None:
                continue
            response = responses.get(id(header))
            found.append(
                ir.Request(
                    struct,
                    header.key,
                    header.routing,
                    self.structs.get(response.node.name.text) if response is not None else None,
                )
            )
        yield from sorted(found, key=lambda request: request.key)

    def _most_similar(self, word: str, known: Iterable[str]) -> str | None:
        """The name that an unknown name may mean. Only the first ones get one: searching can take long."""
        self.guesses += 1
        return most_similar(word, known) or None if self.guesses <= _MAX_GUESSES else None

    def _nearly(self, word: str, known: list[str]) -> list[str]:
        """The name that is most similar to ``word``, if any, with the same limit."""
        self.guesses += 1
        if self.guesses > _MAX_GUESSES:
            return []
        return difflib.get_close_matches(word, known, n=1, cutoff=0.85)

    def _error(
        self, code: str, message: str, word: Word, hint: str = "", right: str | None = None
    ) -> None:
        """Report an error at a word. ``right`` is what to write instead, if the hint says so."""
        fix = None if right is None else Fix(word.position, right)
        self.diagnostics.add(code, message, word.position, hint, fix=fix)


def _request_name(name: str) -> str:
    """Suggest a name for a request: ``PingRequest`` for ``Ping`` and ``PingReqest``."""
    ends = [name[-length:] for length in range(5, min(9, len(name)))]
    near = difflib.get_close_matches("Request", ends, n=1, cutoff=0.8)
    return name.removesuffix(near[0] if near else "") + "Request"


_VERSION_HINT = "the first field must be `Version: int16`, without annotations"


def _anonymous_of(type_: TypeNode) -> AnonymousNode | None:
    while isinstance(type_, ArrayNode):
        type_ = type_.element
    return type_ if isinstance(type_, AnonymousNode) else None


def _type_word(node: FieldNode) -> Word | None:
    match node.type:
        case NamedNode(word):
            return word
        case ArrayNode(prefix, _, _):
            return prefix
        case _:
            return None


def _is_message_uuid(node: FieldNode) -> bool:
    """Whether the field makes its struct a message of krammar.journal."""
    return (
        node.name.text == "UUID"
        and isinstance(node.type, NamedNode)
        and node.type.word.text == "uuid"
    )


def _highest_mentioned(node: StructNode, header: _Header) -> int | None:
    """The highest version in an annotation or `flexible`, or None."""
    found: list[int] = [] if header.flexible_from is None else [header.flexible_from]

    def visit(fields: Sequence[FieldNode]) -> None:
        for child in fields:
            for kind, word in child.annotations:
                if kind == "versions":
                    found.extend(int(number) for number in re.findall(r"\d+", word.text))
            for part in (_type_word(child),):
                match = _NULLABLE_FROM.fullmatch(part.text) if part is not None else None
                if match is not None:
                    found.append(int(match[2]))
            visit(child.fields)

    visit(node.fields)
    return max(found, default=None)


def _zero(type_: ir.Type) -> ir.Default:
    match type_:
        case ir.Primitive(name="bool"):
            return False
        case ir.Primitive(name="float64"):
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
        case ir.Primitive(name="float64"):
            try:
                value = float(text)
            except ValueError:
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


def _describe(type_: ir.Type) -> str:
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
