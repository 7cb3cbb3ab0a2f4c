"""Reads and checks the annotations of fields: diagnostics E302 to E308 and E404."""

from __future__ import annotations

from dataclasses import dataclass, replace

from krammar.compiler import ir, names
from krammar.compiler.front.defaults import describe
from krammar.compiler.front.headers import Header
from krammar.compiler.front.reporter import Reporter
from krammar.compiler.front.syntax import FieldNode, StructNode, Word, type_word
from krammar.util.diagnostics import Position


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
