"""Where names are defined and used: structs, enums, fields, and members of enums.

Only the syntax of a file is needed, so names are found in files that do not compile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from krammar.compiler.front.syntax import (
    AnonymousNode,
    ArrayNode,
    EnumNode,
    FieldNode,
    LengthFieldMinusNode,
    MemberNode,
    NamedNode,
    StructNode,
    SyntaxFile,
    TypeNode,
    Word,
    definition_name,
)
from krammar.util.diagnostics import Position

ENUM = "enum-"
Node = StructNode | EnumNode | FieldNode | MemberNode


class SymbolKind(Enum):
    DEFINITION = "definition"
    FIELD = "field"
    MEMBER = "member"


@dataclass(frozen=True, slots=True)
class Symbol:
    """Something with a name.

    ``path`` is the name of a definition, then the names of the fields that contain each other; for a member
    of an enum, the name of the enum and the member's value.
    """

    kind: SymbolKind
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A place where a target is defined or used. ``node`` is its definition, at the place that defines it."""

    target: Symbol
    position: Position
    node: Node | None = None


def occurrences(file: SyntaxFile) -> Iterator[Occurrence]:
    """Yield every occurrence of a name in a file."""
    for definition in file.definitions:
        target = Symbol(SymbolKind.DEFINITION, (definition.name.text,))
        yield Occurrence(target, definition.name.position, definition)
        if isinstance(definition, StructNode):
            yield from _in_fields(definition.fields, target.path)
            continue
        for member in definition.members:
            target = Symbol(SymbolKind.MEMBER, (definition.name.text, _number(member.value.text)))
            yield Occurrence(target, member.name.position, member)


def _in_fields(fields: Sequence[FieldNode], path: tuple[str, ...]) -> Iterator[Occurrence]:
    for field in fields:
        inside = (*path, field.name.text)
        yield Occurrence(Symbol(SymbolKind.FIELD, inside), field.name.position, field)
        if field.type is not None:
            yield from _in_type(field.type, path)
        yield from _in_default(field)
        yield from _in_fields(field.fields, inside)


def _in_type(type_: TypeNode, path: tuple[str, ...]) -> Iterator[Occurrence]:
    match type_:
        case ArrayNode(element=element):
            yield from _in_type(element, path)
        case LengthFieldMinusNode(length_field):
            target = Symbol(SymbolKind.FIELD, (*path, length_field.text))
            yield Occurrence(target, length_field.position)
        case NamedNode(word):
            name = definition_name(word.text)
            if name[:1].isupper():
                yield Occurrence(Symbol(SymbolKind.DEFINITION, (name,)), _ending(word, name))
        case AnonymousNode():
            pass


def _in_default(field: FieldNode) -> Iterator[Occurrence]:
    """The default of a field with the type of an enum is a use of a member."""
    enum = named_enum(field)
    if enum is None or field.default is None:
        return
    number = _number(field.default.text[1:-1])
    if number:
        at = field.default.position
        inside = Position(at.path, at.line, at.column + 1, max(1, at.length - 2))
        yield Occurrence(Symbol(SymbolKind.MEMBER, (enum, number)), inside)


def named_enum(field: FieldNode) -> str | None:
    """Return the name of the enum that is the type of a field, or None."""
    if isinstance(field.type, NamedNode) and field.type.word.text.startswith(ENUM):
        return field.type.word.text.removeprefix(ENUM)
    return None


def _ending(word: Word, name: str) -> Position:
    """The position of the last ``len(name)`` characters of a word."""
    at = word.position
    return Position(at.path, at.line, at.column + len(word.text) - len(name), len(name))


def _number(text: str) -> str:
    try:
        return str(int(text, 0))
    except ValueError:
        return ""


def last_line(node: Node) -> int:
    """Return the number of the last line of a definition or a field, without the ``)`` of an enum."""
    inner: Sequence[Node] = ()
    reserved = 0
    if isinstance(node, (StructNode, FieldNode)):
        inner = node.fields
        reserved = max((each.position.line for each in node.reserved), default=0)
    elif isinstance(node, EnumNode):
        inner = node.members
    return max(reserved, last_line(inner[-1]) if inner else node.name.position.line)
