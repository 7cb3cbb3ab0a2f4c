"""Parses the default values of fields."""

from __future__ import annotations

import math
import re
import struct
import uuid

from krammar.compiler import ir
from krammar.compiler.front.reporter import Reporter
from krammar.compiler.front.syntax import FieldNode

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
