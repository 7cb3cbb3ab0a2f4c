"""The JSON Schema backend. Its schemas describe what ``to_dict()`` returns.

docs/backends.md shows this file as an example.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

from krammar.compiler import ir
from krammar.compiler.backends.interface import Backend, File, Source

Schema = dict[str, Any]
_BASE64 = {"type": "string", "contentEncoding": "base64"}


class JsonSchemaBackend(Backend):
    """Writes ``NAME.schema.json`` for each struct that can be encoded alone."""

    OPTIONS = MappingProxyType({"base": "The URL prefix of each schema's $id."})

    def render(self, source: Source) -> Iterator[File]:
        for name, table in source.layouts.items():
            header = source.header()
            schema = {
                "$comment": f"{header['generated']} {header['stamp']}",
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                "title": name,
                **_struct(table.struct),
                "$defs": {each.name: _struct(each) for each in _used(table.struct)},
            }
            if "base" in self.options:
                schema["$id"] = f"{self.options['base']}{name}.schema.json"
            yield File(Path(f"{name}.schema.json"), json.dumps(schema, indent=2) + "\n")


def _used(struct: ir.Struct) -> list[ir.Struct]:
    """The structs in a struct, at any depth, by name."""
    found: dict[str, ir.Struct] = {}
    for field in struct.fields:
        inner = ir.struct_of(field.type)
        if inner is not None:
            found |= {each.name: each for each in (inner, *_used(inner))}
    return [found[name] for name in sorted(found)]


def _struct(struct: ir.Struct) -> Schema:
    properties = {field.python_name: _field(field) for field in struct.fields}
    # Unknown tagged fields, by tag.
    properties["unknown_tags"] = {"type": "object", "additionalProperties": _BASE64}
    return {
        "type": "object",
        "description": struct.doc,
        "properties": properties,
        "additionalProperties": False,
    }


def _field(field: ir.Field) -> Schema:
    schema = _type(field.type)
    facts = [field.doc] if field.doc else []
    if field.versions != ir.ALL_VERSIONS:
        facts.append(f"Versions: {field.versions}.")
    return schema | {"description": " ".join(facts)} if facts else schema


def _type(type_: ir.Type) -> Schema:
    match type_:
        case ir.Primitive(name="bool"):
            return {"type": "boolean"}
        case ir.Primitive(name="float32" | "float64"):
            return {"type": "number"}
        case ir.Primitive(name="uuid"):
            return {"type": "string", "format": "uuid"}
        case ir.Primitive(bounds=(low, high)) | ir.Varint(bounds=(low, high)):
            return {"type": "integer", "minimum": low, "maximum": high}
        case ir.EnumType(enum):
            return _type(enum.type) | {"$comment": ", ".join(map(_member, enum.members))}
        case ir.LengthFieldMinus():
            return _BASE64
        case ir.Text(kind, nullable):
            schema: Schema = _BASE64 if kind == "bytes" else {"type": "string"}
            return schema if nullable is None else schema | {"type": ["string", "null"]}
        case ir.Array(element, nullable):
            kinds = "array" if nullable is None else ["array", "null"]
            return {"type": kinds, "items": _type(element)}
        case ir.StructType(struct, nullable):
            reference = {"$ref": f"#/$defs/{struct.name}"}
            return {"anyOf": [reference, {"type": "null"}]} if nullable else reference


def _member(member: ir.EnumMember) -> str:
    return f"{member.value}: {member.name}"
