"""What precedes messages: the fields of headers that connections read, and which header a message has.

It follows docs/definitions.md, and shares no code with krammar.
"""

from __future__ import annotations

from typing import Any

from tests.random_definitions.model import (
    ALL,
    EnumOf,
    Field,
    Headers,
    Number,
    Package,
    Struct,
    Text,
    Versions,
)
from tests.random_definitions.reference import Value, bounds, has

ROLES = {
    "key": ("RequestApiKey", "ApiKey", "Key"),
    "version": ("RequestApiVersion", "ApiVersion", "Version"),
    "id": ("CorrelationId",),
}
WIDTHS = {"uuid": 16, "bool": 1, "float32": 4, "float64": 8} | {
    f"{sign}int{bits}": bits // 8 for sign in ("", "u") for bits in (8, 16, 32, 64)
}

# The headers of a protocol without its own.
KAFKAS = Headers(
    Struct(
        "header",
        (
            Field("RequestApiKey", Number("int16"), 0),
            Field("RequestApiVersion", Number("int16"), 0),
            Field("CorrelationId", Number("int32"), 0),
            Field("ClientId", Text("string", ALL), "", versions=Versions(1), classic=True),
        ),
        "RequestHeader",
        highest=2,
        flexible_from=2,
    ),
    Struct(
        "header",
        (Field("CorrelationId", Number("int32"), 0),),
        "ResponseHeader",
        highest=1,
        flexible_from=1,
    ),
)


def headers_of(package: Package) -> Headers:
    """The headers that precede the messages of a package."""
    return package.headers or KAFKAS


def field_of(header: Struct, role: str) -> Field | None:
    """The field that connections use as key, version or correlation id."""
    return next((item for item in header.fields if item.name in ROLES[role]), None)


def versions(header: Struct) -> range:
    """All versions of a header."""
    assert header.highest is not None
    return range(header.lowest, header.highest + 1)


def offsets(header: Struct, role: str) -> dict[int, int | None]:
    """The offset of a field in each version that has it. None: no fixed number of bytes precedes it."""
    found: dict[int, int | None] = {}
    for version in versions(header):
        at: int | None = 0
        for item in header.fields:
            if item.tag is not None or not has(item, version, header.flexible(version)):
                continue
            if item.name in ROLES[role]:
                found[version] = at
                break
            width = _width(item)
            at = None if at is None or width is None else at + width
    return found


def is_placed(header: Struct, role: str) -> bool:
    """Whether all versions that have a field have it at one place."""
    places = {*offsets(header, role).values()}
    return len(places) == 1 and None not in places


def limit(header: Struct, role: str) -> int:
    """The largest number that the field of a role can have."""
    item = field_of(header, role)
    assert item is not None and isinstance(item.type, Number)
    return bounds(item.type.name)[1]


def _width(item: Field) -> int | None:
    if isinstance(item.type, EnumOf):
        return WIDTHS[item.type.enum.type]
    return WIDTHS.get(item.type.name) if isinstance(item.type, Number) else None


def usual_versions(message: Struct, version: int, headers: Headers) -> tuple[int, int]:
    """The headers of a message that names none: 1 and 0, and 2 and 1 when flexible; two messages have others."""
    flexible = message.flexible(version)
    before, after = (2, 1) if flexible else (1, 0)
    if message.name == "ApiVersionsRequest":
        after = 0
    if message.name == "ControlledShutdownRequest" and version == 0 and not flexible:
        before = 0
    tops = headers.request.highest, headers.response.highest
    assert tops[0] is not None and tops[1] is not None
    return min(before, tops[0]), min(after, tops[1])


def header_versions(message: Struct, version: int, headers: Headers) -> tuple[int, int]:
    """The versions of the headers of a request and its response. That of a push is the second one."""
    before, after = usual_versions(message, version, headers)
    if message.role == "push":
        return before, _given(message.headers, version, after)
    return _given(message.headers, version, before), _given(
        message.response_headers, version, after
    )


def _given(pairs: tuple[tuple[int, int], ...], version: int, usual: int) -> int:
    found = usual
    for first, header in sorted(pairs):
        if version >= first:
            found = header
    return found


def header_value(
    header: Struct, header_version: int, numbers: dict[str, int], client_id: str | None = None
) -> Value:
    """The header that a connection writes: its defaults, and the fields that it knows.

    Args:
        numbers: key, version and correlation id, by role.
    """
    value: dict[str, Any] = {item.name: item.default for item in header.fields}
    flexible = header.flexible(header_version)
    for role, number in numbers.items():
        item = field_of(header, role)
        if item is not None and has(item, header_version, flexible):
            value[item.name] = number
    for item in header.fields:
        is_text = isinstance(item.type, Text) and item.type.kind == "string"
        if item.name == "ClientId" and is_text and has(item, header_version, flexible):
            value[item.name] = client_id
    return value
