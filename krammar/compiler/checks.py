"""Checks of the IR: what can be said only once every name is resolved."""

from __future__ import annotations

from collections.abc import Iterator

from krammar.compiler import ir
from krammar.compiler.findings import Findings
from krammar.compiler.parser import MAX_DEPTH


def check(protocol: ir.Protocol, findings: Findings) -> None:
    """Check a resolved protocol: tags, flexibility and length fields."""
    flexible = _ever_flexible(protocol)
    for file in protocol.files:
        for struct in file.structs:
            for inside in walk(struct):
                _check_tags(inside, inside.name in flexible, findings)
                _check_length_fields(inside, findings)
            _check_depth(struct, findings)


def walk(struct: ir.Struct) -> Iterator[ir.Struct]:
    """A struct and the anonymous structs in it, outer before inner."""
    yield struct
    for field in struct.fields:
        inner = struct_of(field.type)
        if inner is not None and inner.anonymous:
            yield from walk(inner)


def struct_of(type_: ir.Type) -> ir.Struct | None:
    """The struct that a type is, or is an array of; None for all others."""
    while isinstance(type_, ir.Array):
        type_ = type_.element
    return type_.struct if isinstance(type_, ir.StructType) else None


def _check_depth(struct: ir.Struct, findings: Findings) -> None:
    """Arrays and nullable structs within each other become nested blocks of Python."""

    def depth(type_: ir.Type) -> int:
        match type_:
            case ir.Array(element):
                return 1 + depth(element)
            case ir.StructType(inner, nullable) if inner.version_field is None:
                return nullable + max((depth(field.type) for field in inner.fields), default=0)
            case _:
                return 0

    for field in struct.fields:
        if depth(field.type) > MAX_DEPTH:
            findings.add(
                "E507",
                f'"{field.name}" holds more than {MAX_DEPTH} arrays or nullable structs in each other',
                field.position,
            )


def _ever_flexible(protocol: ir.Protocol) -> set[str]:
    """Names of structs that are flexible in some version: by their own header, or their holder's."""
    found: set[str] = set()

    def visit(struct: ir.Struct) -> None:
        if struct.name in found:
            return
        found.add(struct.name)
        for field in struct.fields:
            inner = struct_of(field.type)
            if inner is not None:
                visit(inner)

    for file in protocol.files:
        for struct in file.structs:
            if struct.flexible_from is not None:
                visit(struct)
    return found


def _check_tags(struct: ir.Struct, flexible: bool, findings: Findings) -> None:
    tagged = [field for field in struct.fields if field.tag is not None]
    seen: dict[int, ir.Field] = {}
    for field in tagged:
        assert field.tag is not None
        if not flexible:
            findings.add(
                "E308",
                f'"{field.name}" has a tag, but {struct.name} is flexible in no version',
                field.position,
                "add `flexible vN+` to the header",
            )
        if not field.flexible:
            findings.add("E309", f'"{field.name}" is tagged and not flexible', field.position)
        other = seen.setdefault(field.tag, field)
        if other is not field:
            findings.add(
                "E203",
                f"tag {field.tag} is already that of {other.name} (line {other.position.line})",
                field.position,
            )
    for expected, tag in enumerate(sorted(seen)):
        if tag != expected:
            findings.add(
                "E310",
                f"tag {expected} is missing: tags run from 0 without a gap",
                seen[tag].position,
            )
            break


def _check_length_fields(struct: ir.Struct, findings: Findings) -> None:
    earlier: dict[str, ir.Field] = {}
    used: dict[str, str] = {}
    for field in struct.fields:
        if isinstance(field.type, ir.LengthFieldMinus):
            length = earlier.get(field.type.length_field)
            if length is None:
                findings.add(
                    "E506",
                    f'"{field.name}" takes its length from a field that does not stand before it',
                    field.position,
                    "name an earlier integer field of the same struct",
                )
            elif not (isinstance(length.type, ir.Primitive) and length.type.is_integer):
                findings.add(
                    "E506",
                    f'"{field.name}" takes its length from "{length.name}", which is no integer',
                    field.position,
                )
            elif length.tag is not None or not length.versions.covers(field.versions):
                findings.add(
                    "E506",
                    f'"{length.name}" is not in every version of "{field.name}"',
                    field.position,
                )
            elif length.name in used:
                findings.add(
                    "E506",
                    f'"{length.name}" is already the length of "{used[length.name]}"',
                    field.position,
                )
            else:
                used[length.name] = field.name
            if field.tag is not None:
                findings.add("E506", "a length-field-minus field cannot be tagged", field.position)
        earlier[field.python_name] = field
