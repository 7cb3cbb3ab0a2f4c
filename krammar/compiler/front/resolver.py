"""Builds the IR from syntax: resolves names, parses defaults and versions, names anonymous structs.

It reports diagnostics about names (E2xx), versions (E3xx), types and defaults (E4xx), and headers (E5xx).
``checks`` reports those that need the complete IR.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from krammar.compiler import ir, names
from krammar.compiler.front.annotations import (
    Enclosing,
    check_entity,
    check_nullable,
    check_range,
    read_annotations,
    reserved_tags,
)
from krammar.compiler.front.class_names import anonymous_class_names
from krammar.compiler.front.declarations import Declarations
from krammar.compiler.front.defaults import build_default
from krammar.compiler.front.headers import Header, check_version_field, highest_mentioned
from krammar.compiler.front.reporter import Reporter
from krammar.compiler.front.syntax import (
    AnonymousNode,
    ArrayNode,
    FieldNode,
    LengthFieldMinusNode,
    NamedNode,
    SyntaxFile,
    TypeNode,
    Word,
    anonymous_of,
    is_message_uuid,
)
from krammar.compiler.front.types import MILLIS, NamedTypes, array_prefix
from krammar.util.diagnostics import Diagnostics, Position, meant, most_similar

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
