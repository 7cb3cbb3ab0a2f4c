"""What can be written at a place.

The line up to the cursor, and the lines around it, decide. The line itself is incomplete while somebody types,
so its syntax is not needed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from lsprotocol import types as lsp

from krammar.compiler.front.headers import NEWER
from krammar.compiler.front.syntax import (
    AnonymousNode,
    ArrayNode,
    EnumNode,
    FieldNode,
    NamedNode,
    StructNode,
)
from krammar.compiler.ir import PRIMITIVES, ROUTINGS, VARINTS, VersionRange
from krammar.lsp.project import Analysis, SourceFile
from krammar.lsp.words import ANNOTATIONS, ENTITIES, MILLIS, MODIFIERS, OTHER_TYPES, TYPES

# The lines around the cursor: the definition, the other fields of its struct, and the versions that they name.

NAME = r"[A-Za-z]\w*(?:\.[A-Za-z]\w*)?"


HEADER = re.compile(rf"({NAME}) =>(?: (.*))?$")


VERSIONS = re.compile(r"v(\d+)(?:(\+)|-v(\d+))")


def head_of(rows: Sequence[str], index: int) -> int | None:
    """The line with the header of the definition that contains a line."""
    for above in range(index, -1, -1):
        row = rows[above]
        if row[:1] not in ("", " ", "\t", "/"):
            return None if row == ")" else above
    return None


class FieldPlace:
    """A line among the fields of a struct."""

    def __init__(self, rows: Sequence[str], head: int, index: int) -> None:
        self._rows = rows
        self._head = head
        self._index = index
        self.indent = _indent(rows[index])
        self.min_version, self.max_version, self.flexible_from = _header_versions(rows, head)

    @property
    def name(self) -> str:
        """The name of the definition."""
        match = re.match(r"[\w.]+", self._rows[self._head])
        return match[0] if match else ""

    def holders(self) -> Iterator[VersionRange]:
        """The versions of the fields that contain the line."""
        indent = self.indent
        for row in reversed(self._rows[self._head + 1 : self._index]):
            if row.strip() and not row.lstrip().startswith("//") and _indent(row) < indent:
                indent = _indent(row)
                yield _range_of(row)

    def siblings(self) -> list[str]:
        """The other lines of the same struct."""
        found = []
        for area in (
            reversed(self._rows[self._head + 1 : self._index]),
            iter(self._rows[self._index + 1 :]),
        ):
            for row in area:
                if row.strip() and _indent(row) < self.indent:
                    break
                if row.strip() and _indent(row) == self.indent and not row.strip().startswith("//"):
                    found.append(row.strip())
        return found

    def free_tag(self) -> int:
        """The lowest tag that the other lines neither use nor reserve."""
        tags = {
            int(number)
            for row in self.siblings()
            for listed in re.findall(r"\btag (\d{1,5}(?:, \d{1,5})*)", row)
            for number in listed.split(", ")
        }
        return next(each for each in range(len(tags) + 1) if each not in tags)

    def integers_before(self) -> list[str]:
        """The names of the integer fields before the line, the nearest first."""
        found = []
        for row in reversed(self._rows[self._head + 1 : self._index]):
            if row.strip() and _indent(row) < self.indent:
                break
            match = re.match(r"\s+(\w+): (\w+)", row)
            if match and _indent(row) == self.indent:
                primitive = PRIMITIVES.get(match[2])
                if primitive is not None and primitive.is_integer:
                    found.append(match[1])
        return found

    def mentioned(self) -> list[int]:
        """The versions that the definition names anywhere."""
        found = []
        above = self._rows[self._head : self._index]
        for row in (*above, *_until_dedent(self._rows[self._index + 1 :])):
            if not row.lstrip().startswith("//"):
                found += [int(each) for each in re.findall(r"\bv(\d{1,5})\b", row)]
        return found


def _until_dedent(rows: Iterable[str]) -> Iterator[str]:
    for row in rows:
        if row and not row.startswith((" ", "\t")):
            return
        yield row


def _header_versions(rows: Sequence[str], head: int) -> tuple[int, int | None, int | None]:
    """Lowest, highest and first flexible version of a definition; a response has those of its request."""
    match = HEADER.match(rows[head])
    written = (match[2] if match else "") or ""
    if match and not written and match[1].endswith("Response"):
        request = match[1].removesuffix("Response") + "Request =>"
        written = next((row for row in reversed(rows[:head]) if row.startswith(request)), "")

    def number(pattern: str) -> int | None:
        found = re.search(pattern + r"(\d{1,5})", written)
        return int(found[1]) if found else None

    return number("min version ") or 0, number("max version "), number("flexible v")


def _range_of(row: str) -> VersionRange:
    match = VERSIONS.search(row.partition(" // ")[2])
    if match is None:
        return VersionRange()
    low = int(match[1])
    return VersionRange(low, max(low, int(match[3])) if match[3] else None)


def _indent(row: str) -> int:
    return len(row) - len(row.lstrip(" \t"))


Kind = lsp.CompletionItemKind


@dataclass(frozen=True, slots=True)
class Proposal:
    """An item of the list. ``insert`` replaces the last ``typed`` characters before the cursor."""

    label: str
    kind: lsp.CompletionItemKind
    typed: int
    detail: str = ""
    doc: str = ""
    insert: str = ""


# The first line of a definition.


def header_proposals(
    analysis: Analysis, file: SourceFile, index: int, prefix: str
) -> Iterator[Proposal]:
    if re.fullmatch(r"\w*", prefix):
        yield from _responses(file, index, prefix)
    elif match := HEADER.match(prefix):
        yield from _modifiers(analysis, file, match[1], match[2])
    elif match := re.fullmatch(rf"{NAME} (\w*)", prefix):
        yield Proposal("=>", Kind.Operator, len(match[1]), "a struct")
        for name, primitive in PRIMITIVES.items():
            if primitive.is_integer:
                yield Proposal(f"{name} (", Kind.Enum, len(match[1]), "an enum")


def _responses(file: SourceFile, index: int, typed: str) -> Iterator[Proposal]:
    """The response of the request directly before a line."""
    for row in reversed(file.text.rows[:index]):
        match = HEADER.match(row)
        if match is None:
            if row[:1] not in ("", " ", "/"):
                return
            continue
        if match[1].endswith("Request") and "key " in (match[2] or ""):
            name = match[1].removesuffix("Request") + "Response"
            if not any(each.startswith(f"{name} =>") for each in file.text.rows):
                yield Proposal(f"{name} =>", Kind.Struct, len(typed), f"the response of {match[1]}")
        return


def _modifiers(
    analysis: Analysis, file: SourceFile, name: str, written: str | None
) -> Iterator[Proposal]:
    if written is None:
        return
    *before, typed = written.split(", ")
    used = {re.sub(r" v?\d+\+?$", "", each) for each in before}
    response = f"{name.removesuffix('Request')}Response"
    typed_number = re.fullmatch(r"(key|max version|min version) (\d*)", typed)
    if typed_number:
        if typed_number[1] == "key":
            yield Proposal(
                str(_next_key(analysis)), Kind.Value, len(typed_number[2]), "the next key"
            )
        return
    top = next((int(each[12:]) for each in before if re.fullmatch(r"max version \d+", each)), None)
    if match := re.fullmatch(r"flexible (v?\d*\+?)", typed):
        for version in range(top if top is not None else 0, -1, -1):
            yield Proposal(f"v{version}+", Kind.Value, len(match[1]))
        return
    offered: dict[str, str] = {}
    if "key" in used:
        offered |= {"max version": "max version "} if "max version" not in used else {}
        offered |= {"flexible": f"flexible v{top or 0}+", "min version": "min version "}
        if not used & set(ROUTINGS):
            offered |= {each: each for each in ROUTINGS}
        if "push" not in used:
            offered["cluster action"] = "cluster action"
        kind = used & {"one way", "push"}
        offered |= {"header": "header "} if "header" not in used else {}
        if not kind:
            offered |= {"one way": "one way", "push": "push"}
            offered |= {"response header": "response header ", "response key": "response key "}
    elif "not top level" in used:
        offered = {
            "with version field": "with version field",
            "no encoding": "no encoding",
            "flexible": f"flexible v{top or 0}+",
            "min version": "min version ",
            "max version": "max version ",
        }
        if "with version field" in used:
            offered[NEWER] = NEWER
        if "no encoding" in used:
            # The versions are those of the message that contains the struct.
            offered = {}
    elif "." in name and not before:
        # A struct of a message is not encoded alone.
        offered["not top level"] = "not top level, no encoding"
    elif not before:
        offered["not top level"] = "not top level"
        request = f"key {_next_key(analysis)}, max version 0"
        offered = (
            {"key": request, **offered}
            if name.endswith("Request") and response != name
            else {**offered, "key": request}
        )
    for word, insert in offered.items():
        if word not in used:
            yield Proposal(
                insert.rstrip(" "), Kind.Keyword, len(typed), doc=MODIFIERS[word], insert=insert
            )


def _next_key(analysis: Analysis) -> int:
    keys = [
        int(word.text, 0)
        for node in analysis.definitions.values()
        if isinstance(node, StructNode)
        for kind, word in node.modifiers
        if kind == "key"
    ]
    return max(keys, default=-1) + 1


# All lines.

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
