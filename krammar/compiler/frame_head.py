"""Where frames have their api key, version and correlation id: in the fields of the headers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from krammar.compiler import ir
from krammar.compiler.layout import build_layout
from krammar.compiler.layout_table import layout_table
from krammar.compiler.steps import Run

# The fields that frames are recognised by, with their types.
REQUEST_FIELDS = {
    "RequestApiKey": "int16",
    "RequestApiVersion": "int16",
    "CorrelationId": "int32",
}
RESPONSE_FIELDS = {"CorrelationId": "int32"}


@dataclass(frozen=True, slots=True)
class HeadOffsets:
    """Offsets in bytes. A reader needs them before it knows the version of the header."""

    api_key: int
    version: int
    correlation_id: int
    response_correlation_id: int


# The offsets of Kafka's headers, which packages do not repeat.
KAFKA = HeadOffsets(0, 2, 4, 0)


def frame_head(protocol: ir.Protocol) -> HeadOffsets | None:
    """Return the offsets in the headers of a protocol; None if it has no valid headers."""
    known = {struct.name: struct for file in protocol.files for struct in file.structs}
    found = []
    for name, fields in (("RequestHeader", REQUEST_FIELDS), ("ResponseHeader", RESPONSE_FIELDS)):
        for field in fields:
            place = offset(known[name], field) if name in known else None
            if place is None:
                return None
            found.append(place)
    return HeadOffsets(*found)


def offset(header: ir.Struct, name: str) -> int | None:
    """Return the offset of a field of fixed width, if all versions of the header have it at the same one."""
    found = {_in_version(header, name, version) for version in _versions(header)}
    return found.pop() if len(found) == 1 else None


def _versions(header: ir.Struct) -> Iterator[int]:
    for shared in layout_table(header).layouts:
        yield from shared.versions


def _in_version(header: ir.Struct, name: str, version: int) -> int | None:
    place = 0
    steps = build_layout(header, version).steps
    for item in steps[0].items if steps and isinstance(steps[0], Run) else ():
        if item.field.name == name:
            return place
        place += item.type.width
    return None
