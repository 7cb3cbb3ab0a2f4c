"""Builds the IR of enums."""

from __future__ import annotations

from krammar.compiler import ir, names
from krammar.compiler.front import type_hints
from krammar.compiler.front.reporter import Reporter
from krammar.compiler.front.syntax import EnumNode
from krammar.util.diagnostics import meant


def build_enum(node: EnumNode, report: Reporter) -> ir.Enum:
    type_ = ir.PRIMITIVES.get(node.type.text)
    if type_ is None or not type_.is_integer:
        integers = [p.name for p in ir.PRIMITIVES.values() if p.is_integer]
        text = node.type.text
        right = type_hints.spelled(text)
        near = right if right in integers else type_hints.similar_type(text, integers)
        hint = type_hints.explain(text) or meant(near) or "use one of " + ", ".join(integers)
        message = f'"{text}" cannot be the type of an enum'
        report.error("E403", message, node.type, hint, near or None)
        type_ = ir.PRIMITIVES["int32"]
    values: dict[int, str] = {}
    members: dict[str, ir.EnumMember] = {}
    low, high = type_.bounds
    attributes: dict[str, str] = {}
    for member in node.members:
        value = int(member.value.text, 0)
        name = member.name.text
        if value in values:
            report.error("E202", f'"{values[value]}" already has the value {value}', member.value)
        elif name in members:
            report.error("E202", f'"{name}" is already a member of {node.name.text}', member.name)
        elif not low <= value <= high:
            report.error(
                "E402", f"{value} is outside of {type_.name} ({low} to {high})", member.value
            )
        elif node.camelcase and names.constant_name(name) in attributes:
            other = attributes[names.constant_name(name)]
            report.error(
                "E202",
                f'"{name}" and "{other}" would both be {names.constant_name(name)} in Python',
                member.name,
            )
        else:
            attributes[names.constant_name(name)] = name
            values[value] = name
            remarks = tuple(word.text for word in member.remarks)
            members[name] = ir.EnumMember(value, name, remarks, member.doc, member.name.position)
    for member in node.members:
        for word in member.remarks:
            if word.text in members:
                report.error("E202", f'"{word.text}" is already a member of {node.name.text}', word)
    return ir.Enum(
        node.name.text,
        type_,
        node.camelcase,
        tuple(members.values()),
        node.doc,
        node.name.position,
    )
