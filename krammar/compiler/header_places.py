"""The fields of headers that connections read and write: api key, version and correlation id."""

from __future__ import annotations

from krammar.compiler import ir
from krammar.compiler.layout import build_layout
from krammar.compiler.layout_table import layout_table
from krammar.compiler.steps import WireFixed

ROLES = {
    "api key": ("request_api_key", "api_key", "key"),
    "version": ("request_api_version", "api_version", "version"),
    "correlation id": ("correlation_id",),
}
Place = tuple[str, int, str]


def places(header: ir.Struct) -> list[Place | None]:
    """Return the place of each role: attribute, offset in bytes, and letter of the type in ``struct``.

    A role is None if no version of the header has such an integer, or if versions have it at different offsets.
    """
    table = layout_table(header)
    found: dict[str, set[Place | None]] = {role: set() for role in ROLES}
    for version in range(table.min_version, table.max_version + 1):
        offset: int | None = 0
        for step in build_layout(header, version).fields:
            wire = step.wire
            for role, names in ROLES.items():
                if step.field.python_name not in names:
                    continue
                place = None
                if offset is not None and isinstance(wire, WireFixed) and wire.type.is_integer:
                    place = (step.field.python_name, offset, wire.type.code)
                found[role].add(place)
            if offset is not None:
                offset = offset + wire.type.width if isinstance(wire, WireFixed) else None
    return [next(iter(each)) if len(each) == 1 else None for each in found.values()]


# The places of Kafka's headers, which the runtime knows.
_KAFKAS: dict[str, list[Place | None]] = {
    "RequestHeader": [
        ("request_api_key", 0, "h"),
        ("request_api_version", 2, "h"),
        ("correlation_id", 4, "i"),
    ],
    "ResponseHeader": [None, None, ("correlation_id", 0, "i")],
}


def heads(protocol: ir.Protocol) -> list[list[Place | None]]:
    """Return the places in both headers of a protocol: of requests and of responses."""
    known = {struct.name: struct for file in protocol.files for struct in file.structs}
    return [places(known[name]) if name in known else usual for name, usual in _KAFKAS.items()]


def has_kafkas_heads(protocol: ir.Protocol) -> bool:
    """Return whether both headers have their places where Kafka's headers have them, in all versions."""
    known = {struct.name: struct for file in protocol.files for struct in file.structs}
    everywhere = all(
        has_role(known[name], version, role)
        for name, usual in _KAFKAS.items()
        if name in known
        for version in range(known[name].min_version, layout_table(known[name]).max_version + 1)
        for role, place in zip(ROLES, usual, strict=True)
        if place is not None
    )
    return everywhere and heads(protocol) == list(_KAFKAS.values())


def has_role(header: ir.Struct, version: int, role: str) -> bool:
    """Return whether a version of a header has the field of a role."""
    names = ROLES[role]
    return any(step.field.python_name in names for step in build_layout(header, version).fields)
