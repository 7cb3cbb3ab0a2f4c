"""What can be written at a place.

The line up to the cursor, and the lines around it, decide. The line itself is incomplete while somebody types,
so its syntax is not needed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from lsprotocol import types as lsp

from krammar.compiler.front.syntax import (
    AnonymousNode,
    ArrayNode,
    EnumNode,
    FieldNode,
    NamedNode,
    StructNode,
)
from krammar.compiler.ir import PRIMITIVES, VARINTS, VersionRange
from krammar.lsp.header_completion import header_proposals
from krammar.lsp.project import Analysis, SourceFile
from krammar.lsp.proposals import Kind, Proposal
from krammar.lsp.rows import VERSIONS, FieldPlace, head_of
from krammar.lsp.words import ANNOTATIONS, ENTITIES, MILLIS, OTHER_TYPES, TYPES

TRIGGERS = [" ", ":", "-", "(", "[", "/", ","]

# The most names of fields that are offered.
_MAX_NAMES = 200
# The most versions that are offered.
_MAX_VERSIONS = 40


def complete(analysis: Analysis, file: SourceFile, offset: int) -> list[lsp.CompletionItem]:
    """Return what can be written at an offset, the most likely first."""
    index = file.text.row_at(offset)
    start = file.text.row_start(index)
    prefix = file.text.rows[index][: max(0, offset - start)]
    items = []
    for order, item in enumerate(_items(analysis, file, index, prefix)):
        area = file.text.range(start + len(prefix) - item.typed, start + len(prefix))
        items.append(
            lsp.CompletionItem(
                item.label,
                kind=item.kind,
                detail=item.detail or None,
                documentation=item.doc or None,
                sort_text=f"{order:05}",
                filter_text=item.insert or item.label,
                text_edit=lsp.TextEdit(area, item.insert or item.label),
            )
        )
    return items


def _items(analysis: Analysis, file: SourceFile, index: int, prefix: str) -> Iterator[Proposal]:
    rows = file.text.rows
    if prefix.lstrip(" \t").startswith("//"):
        return
    if not prefix.startswith((" ", "\t")):
        yield from header_proposals(analysis, file, index, prefix)
        return
    head = head_of(rows, index)
    if head is None:
        return
    if rows[head].endswith("("):
        yield from _member(rows, head, index, prefix)
        return
    place = FieldPlace(rows, head, index)
    if match := re.match(r"\s+(reserved tag (?:[^,]*, )*)(\d*)$", prefix):
        yield Proposal(str(place.free_tag()), Kind.Value, len(match[2]), "the next tag")
    elif match := re.match(r"\s+(\w*|reserved \w*)$", prefix):
        if " " not in match[1]:
            yield from _names(analysis, place, match[1])
        if place.flexible_from is not None:
            tag = f"reserved tag {place.free_tag()}"
            yield Proposal(tag, Kind.Keyword, len(match[1]), doc=ANNOTATIONS["reserved tag"])
    elif match := re.search(r" // (.*)$", prefix):
        yield from _annotations(analysis, place, match[1])
    elif match := re.match(r"\s+\w+(?:: (.*?))?\(([^()]*)$", prefix):
        yield from _defaults(analysis, match[1] or "", match[2])
    elif match := re.search(r": length-field-minus => (\w*)$", prefix):
        typed = match[1]
        for name in place.integers_before():
            yield Proposal(name, Kind.Field, len(typed))
    elif match := re.match(r"\s+\w+: (.*)$", prefix):
        yield from _types(analysis, place.name, match[1])


# Definitions


def _member(rows: Sequence[str], head: int, index: int, prefix: str) -> Iterator[Proposal]:
    if match := re.fullmatch(r"\s+(-?\d*)", prefix):
        values = []
        for row in rows[head + 1 :]:
            if not row.startswith((" ", "\t")):
                break
            if row is not rows[index] and (value := re.match(r"\s+(-?\d+):", row)):
                values.append(int(value[1]))
        value_text = f"{max(values, default=-1) + 1}: "
        yield Proposal(value_text, Kind.EnumMember, len(match[1]), "the next value")
    elif match := re.search(r": \w+ // (\w*)$", prefix):
        yield Proposal("retriable", Kind.Keyword, len(match[1]), doc=ANNOTATIONS["retriable"])


# Fields


def _names(analysis: Analysis, place: FieldPlace, typed: str) -> Iterator[Proposal]:
    """Names of fields that the folder's definitions use, with their types, the most frequent first."""
    taken = {re.split(r"\W", row, maxsplit=1)[0] for row in place.siblings()}
    counted: Counter[str] = Counter()
    for node in analysis.definitions.values():
        if isinstance(node, StructNode):
            counted.update(_written(node.fields))
    for text, count in counted.most_common(_MAX_NAMES):
        name = text.partition(":")[0]
        if name not in taken:
            used = f"in {count} place{'s' * (count != 1)}"
            yield Proposal(text, Kind.Field, len(typed), used)
    for name, doc in MILLIS.items():
        if name not in taken:
            yield Proposal(name, Kind.Field, len(typed), "int32", doc)


def _written(fields: Sequence[FieldNode]) -> Iterator[str]:
    for field in fields:
        match field.type:
            case NamedNode(word):
                yield f"{field.name.text}: {word.text}"
            case ArrayNode(element=NamedNode(word), prefix=None):
                yield f"{field.name.text}: [{word.text}]"
            case ArrayNode(element=AnonymousNode(), prefix=None, hint=None):
                yield f"{field.name.text}: [=>]"
            case _:
                pass
        yield from _written(field.fields)


def _types(analysis: Analysis, message: str, written: str) -> Iterator[Proposal]:
    """Types after ``Name: `` in a message. Within brackets only those that can be elements."""
    match = re.fullmatch(r"([\w+-]*\[+)?([\w.+-]*)", written)
    if match is None:
        return
    inside, typed = bool(match[1]), match[2]
    close = "]" * (match[1] or "").count("[")
    for name, doc in TYPES.items():
        yield Proposal(name, Kind.Keyword, len(typed), doc=doc)
    for name, node in analysis.definitions.items():
        if isinstance(node, EnumNode):
            yield Proposal(f"enum-{name}", Kind.Enum, len(typed), node.type.text, doc=node.doc)
        elif (
            not any(kind == "key" for kind, _ in node.modifiers)
            and node.modifiers
            # A struct of a message can be used only there.
            and name.rpartition(".")[0] in ("", message.partition(".")[0])
        ):
            yield Proposal(name, Kind.Struct, len(typed), doc=node.doc)
    if inside:
        yield Proposal(f"=>{close}", Kind.Struct, len(typed), doc=OTHER_TYPES["[=>]"])
        return
    for name, doc in OTHER_TYPES.items():
        yield Proposal(name, Kind.Struct, len(typed), doc=doc)
    yield Proposal("nullable[", Kind.Keyword, len(typed), doc="An array that can be null.")
    yield Proposal("varint[", Kind.Keyword, len(typed), doc="An array with a zig-zag varint count.")


def _annotations(analysis: Analysis, place: FieldPlace, written: str) -> Iterator[Proposal]:
    """Versions that the field can have, the next free tag, and the words that can follow."""
    *before, typed = written.split(", ")
    if entity := re.fullmatch(r"entity (\w*)", typed):
        # The word that is being typed is in the definitions too.
        own = {name for name in _entities(analysis) if name != entity[1]} - ENTITIES.keys()
        for name in (*ENTITIES, *sorted(own)):
            yield Proposal(name, Kind.Value, len(entity[1]), doc=ENTITIES.get(name, ""))
        return
    if not any(VERSIONS.fullmatch(each) for each in before):
        yield from _versions(place, typed)
    flexible = place.flexible_from is not None
    if flexible and not any(each.startswith("tag ") for each in before):
        yield Proposal(f"tag {place.free_tag()}", Kind.Property, len(typed), doc=ANNOTATIONS["tag"])
    if flexible and "not flexible" not in before:
        yield Proposal("not flexible", Kind.Property, len(typed), doc=ANNOTATIONS["not flexible"])
    if "ignorable" not in before:
        yield Proposal("ignorable", Kind.Property, len(typed), doc=ANNOTATIONS["ignorable"])
    if not any(each.startswith("entity ") for each in before):
        doc = ANNOTATIONS["entity"]
        yield Proposal("entity", Kind.Property, len(typed), doc=doc, insert="entity ")


def _entities(analysis: Analysis) -> Iterator[str]:
    """The entities that the folder's definitions name."""
    todo = [
        field
        for node in analysis.definitions.values()
        if isinstance(node, StructNode)
        for field in node.fields
    ]
    while todo:
        field = todo.pop()
        todo += field.fields
        yield from (word.text for kind, word in field.annotations if kind == "entity")


def _versions(place: FieldPlace, typed: str) -> Iterator[Proposal]:
    low, high = place.min_version, place.max_version
    if high is None:
        high = max(place.mentioned(), default=0)
    allowed = VersionRange(low, high)
    for holder in place.holders():
        common = allowed.intersect(holder)
        if common is None:
            return
        allowed = common
    top = allowed.max if allowed.max is not None else high
    first = max(allowed.min, top - _MAX_VERSIONS)
    open_ended = top == high
    for version in range(top, first - 1, -1):
        if version > allowed.min or version > low:
            text = f"v{version}+" if open_ended else f"v{version}-v{top}"
            yield Proposal(text, Kind.Value, len(typed), f"from version {version}")
    for version in range(top - 1, first - 1, -1):
        text = f"v{allowed.min}-v{version}"
        yield Proposal(text, Kind.Value, len(typed), f"until version {version}")


def _defaults(analysis: Analysis, type_: str, typed: str) -> Iterator[Proposal]:
    """Values that fit the type before the parenthesis."""
    if type_.startswith("enum-"):
        enum = analysis.enum(type_.removeprefix("enum-"))
        for member in enum.members if enum is not None else ():
            yield Proposal(
                f"{member.name.text} = {member.value.text}",
                Kind.EnumMember,
                len(typed),
                type_,
                member.doc,
                member.value.text,
            )
        return
    values: tuple[str, ...] = ()
    if type_.startswith(("nullable", "varint-")):
        values = ("null",)
    elif type_ == "bool":
        values = ("true", "false")
    elif type_ in ("int8", "int16", "int32", "int64", "varint", "varlong"):
        values = ("-1", "0")
    elif type_ in VARINTS or (type_ in PRIMITIVES and PRIMITIVES[type_].is_integer):
        values = ("0",)
    for value in values:
        yield Proposal(value, Kind.Value, len(typed))
