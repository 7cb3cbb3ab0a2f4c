"""The syntax nodes of definitions, with their positions in the source."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from krammar.util.diagnostics import Position


@dataclass(frozen=True, slots=True)
class Word:
    """A piece of source text and its position."""

    text: str
    position: Position


@dataclass(frozen=True, slots=True)
class NamedNode:
    """A type with a name: ``int32``, ``enum-ConfigType``, or a struct."""

    word: Word


@dataclass(frozen=True, slots=True)
class AnonymousNode:
    """An anonymous struct: ``=>``, ``nullable=>``. ``hint`` is its class name, as in ``=>Hint`` and ``[=>]Hint``."""

    prefix: Word | None
    arrow: Word
    hint: Word | None = None


@dataclass(frozen=True, slots=True)
class ArrayNode:
    """An array: ``[int32]``, ``nullable[=>]Hint``."""

    prefix: Word | None
    element: TypeNode
    hint: Word | None = None


@dataclass(frozen=True, slots=True)
class LengthFieldMinusNode:
    length_field: Word
    minus: Word


TypeNode = NamedNode | AnonymousNode | ArrayNode | LengthFieldMinusNode


@dataclass(frozen=True, slots=True)
class FieldNode:
    """A field. ``type`` is None for a name without a type (``ThrottleMillis``).

    ``reserved`` are the numbers in the lines ``reserved tag 3`` among the fields that it contains.
    """

    name: Word
    type: TypeNode | None
    default: Word | None
    annotations: tuple[tuple[str, Word], ...]
    fields: tuple[FieldNode, ...]
    doc: str
    reserved: tuple[Word, ...] = ()


@dataclass(frozen=True, slots=True)
class StructNode:
    """A struct. Each modifier is the name of its grammar rule, and the word with its value.

    ``reserved`` is as for ``FieldNode``.
    """

    name: Word
    modifiers: tuple[tuple[str, Word], ...]
    fields: tuple[FieldNode, ...]
    doc: str
    reserved: tuple[Word, ...] = ()


@dataclass(frozen=True, slots=True)
class MemberNode:
    value: Word
    name: Word
    remarks: tuple[Word, ...]
    doc: str


@dataclass(frozen=True, slots=True)
class EnumNode:
    name: Word
    type: Word
    camelcase: bool
    members: tuple[MemberNode, ...]
    doc: str


@dataclass(frozen=True, slots=True)
class UseNode:
    """Definitions of another package: ``use kafka_wire: ErrorCode, RequestHeader``."""

    package: Word
    names: tuple[Word, ...]


@dataclass(frozen=True, slots=True)
class SyntaxFile:
    """The definitions of a file.

    ``unread`` are the names of definitions with an invalid header; uses of these names are not reported.
    ``gutted`` are the lines below which the parser removed lines; they are not reported as empty.
    ``used`` is whether the definitions are from another package.
    """

    path: Path
    definitions: tuple[StructNode | EnumNode, ...]
    unread: frozenset[str] = frozenset()
    gutted: frozenset[int] = frozenset()
    uses: tuple[UseNode, ...] = ()
    used: bool = False


_BEFORE_NAME = re.compile(r"enum-|nullable-(?:bool-)?(?=[A-Z])")


def definition_name(type_: str) -> str:
    """Return the name of the struct or enum in a type's word: ``nullable-Name`` and ``enum-Name`` contain one."""
    match = _BEFORE_NAME.match(type_)
    return type_ if match is None else type_[match.end() :]


def anonymous_of(type_: TypeNode) -> AnonymousNode | None:
    while isinstance(type_, ArrayNode):
        type_ = type_.element
    return type_ if isinstance(type_, AnonymousNode) else None


def type_word(node: FieldNode) -> Word | None:
    match node.type:
        case NamedNode(word):
            return word
        case ArrayNode(prefix, _, _):
            return prefix
        case _:
            return None


def is_message_uuid(node: FieldNode) -> bool:
    """Whether the field makes its struct a message of krammar.journal."""
    return (
        node.name.text == "UUID"
        and isinstance(node.type, NamedNode)
        and node.type.word.text == "uuid"
    )
