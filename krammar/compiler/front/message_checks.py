"""Checks of headers, and of messages without a response: diagnostics E511 and E510."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from krammar.compiler import ir
from krammar.compiler.header_places import ROLES, has_role, places
from krammar.compiler.header_versions import effective, header_versions
from krammar.compiler.layout_table import layout_table
from krammar.util.diagnostics import Diagnostics


def check_messages(protocol: ir.Protocol, diagnostics: Diagnostics) -> None:
    """Check that requests, responses and pushes have headers with all that connections need."""
    if not protocol.requests and not protocol.pushes:
        return
    known = {struct.name: struct for file in protocol.files for struct in file.structs}
    answered = any(each.response is not None for each in protocol.requests)
    found = [
        _check_header(known, "RequestHeader", "ResponseHeader", tuple(ROLES), diagnostics),
        _check_header(
            known,
            "ResponseHeader",
            "RequestHeader",
            ("correlation id",) if answered else (),
            diagnostics,
        ),
    ]
    if None in found:
        return
    request_header, response_header = known["RequestHeader"], known["ResponseHeader"]
    for message in (*protocol.requests, *protocol.pushes):
        if not message.push:
            _check_numbers(message, message.key, request_header, diagnostics)
        if message.push or message.response is not None:
            key = message.key if message.response_key is None else message.response_key
            _check_numbers(message, key, response_header, diagnostics)
    special = [*protocol.requests, *protocol.pushes]
    tops = [layout_table(header).max_version for header in (request_header, response_header)]
    for message in special:
        versions = header_versions(message, *tops)
        answers = message.push or message.response is not None
        for pairs, header, top in (
            (versions.request, request_header, tops[0]),
            (versions.response if answers else (), response_header, tops[1]),
        ):
            for _, version in effective(pairs):
                if not header.min_version <= version <= top:
                    diagnostics.add(
                        "E511",
                        f"{message.struct.name} has header {version}, but {header.name} has the versions "
                        f"{header.min_version} to {top}",
                        message.struct.position,
                        f"define that version of {header.name}, or choose another one",
                    )
                    return
        if message.response is None:
            continue
        for pairs, header in (
            (versions.request, request_header),
            (versions.response, response_header),
        ):
            for _, version in effective(pairs):
                if not has_role(header, version, "correlation id"):
                    diagnostics.add(
                        "E510",
                        f"{message.struct.name} has a response, but version {version} of {header.name} has no "
                        "correlation id",
                        message.struct.position,
                        "choose a header with `CorrelationId`, or write `one way`",
                    )
    _check_presence(protocol, response_header, diagnostics)
    if any(each.push or each.response_key is not None for each in special):
        _check_keys(protocol, response_header, diagnostics)


# The largest numbers of fixed-width integers, by the letters of the types in ``struct``. Others fit every number.
_LIMITS = {"b": 0x7F, "B": 0xFF, "h": 0x7FFF, "H": 0xFFFF}


def _check_numbers(
    message: ir.Request, key: int, header: ir.Struct, diagnostics: Diagnostics
) -> None:
    """Check that the fields of a header can have the key and all versions of a message."""
    place, version, _ = places(header)
    last = message.struct.max_version or 0
    if place is not None and key > _LIMITS.get(place[2], key):
        diagnostics.add(
            "E301",
            f"the key {key} does not fit the field {place[0]} of {header.name}",
            message.struct.position,
            "give the header an unsigned field, such as `Key: uint16`",
        )
    if version is not None and last > _LIMITS.get(version[2], last):
        diagnostics.add(
            "E301",
            f"the version {last} does not fit the field {version[0]} of {header.name}",
            message.struct.position,
            "give the header a wider field, such as `Version: uint16`",
        )


# The fields that headers need, as Kafka's headers have them.
_FIELDS = {
    "api key": "`RequestApiKey: int16`",
    "version": "`RequestApiVersion: int16`",
    "correlation id": "`CorrelationId: int32`",
}


def _check_header(
    known: Mapping[str, ir.Struct],
    name: str,
    other: str,
    roles: Sequence[str],
    diagnostics: Diagnostics,
) -> ir.Struct | None:
    """Check that a header exists, and has the fields of ``roles`` at one place each. None if it does not."""
    header = known.get(name)
    needed = ", ".join(_FIELDS[role] for role in roles)
    if header is None:
        diagnostics.add(
            "E510",
            f"the protocol defines {other}, but no {name}",
            known[other].position,
            f"define `{name} => not top level` with {needed or 'fields'}, or neither header to get Kafka's",
        )
        return None
    if not header.encoding:
        diagnostics.add(
            "E510", f"{name} cannot be encoded alone", header.position, "remove `no encoding`"
        )
        return None
    found: ir.Struct | None = header
    found_places = dict(zip(ROLES, places(header), strict=True))
    last = layout_table(header).max_version
    for role in roles:
        member = next((each for each in header.fields if each.python_name in ROLES[role]), None)
        integer = (
            member is not None
            and isinstance(member.type, ir.Primitive)
            and member.type.is_integer
            and member.tag is None
        )
        moves = found_places[role] is None or (
            role != "correlation id"
            and not all(has_role(header, v, role) for v in range(header.min_version, last + 1))
        )
        if member is None or not integer:
            diagnostics.add(
                "E510",
                f"{name} needs a field {_FIELDS[role]}",
                header.position if member is None else member.position,
                f"a {name} needs {needed}, and can have other fields",
            )
            found = None
        elif moves:
            diagnostics.add(
                "E510",
                f'"{member.name}" is not at the same place in all versions of {name}',
                member.position,
                "write it before all fields that have no fixed width or are not in all versions",
            )
            found = None
    return found


def _check_presence(protocol: ir.Protocol, header: ir.Struct, diagnostics: Diagnostics) -> None:
    """Check that all versions of a ResponseHeader have what a client reads before it knows the version."""
    roles = ("api key", "version") if protocol.pushes else ("api key",)
    versions = range(header.min_version, layout_table(header).max_version + 1)
    for role, place in zip(roles, places(header), strict=False):
        if place is not None and not all(has_role(header, each, role) for each in versions):
            member = next(each for each in header.fields if each.python_name == place[0])
            diagnostics.add(
                "E510",
                f'"{member.name}" is not in all versions of {header.name}',
                member.position,
                "remove its versions: a client reads it before it knows the version of the header",
            )


def _check_keys(protocol: ir.Protocol, header: ir.Struct, diagnostics: Diagnostics) -> None:
    """Check that a client can tell what the server has sent by the first bytes of a frame."""
    key, version, _ = places(header)
    push = next(iter(protocol.pushes), None)
    needs = push or next(each for each in protocol.requests if each.response_key is not None)
    for place, role, name in ((key, "api key", "Key"), (version, "version", "Version")):
        if place is None and (role == "api key" or push is not None):
            what = "a push" if push is not None else "a response key"
            diagnostics.add(
                "E510",
                f"{header.name} has no {role} at the same place in all versions, which {what} needs",
                needs.struct.position,
                f"define a {header.name} that begins with an integer `{name}`",
            )
            return
    seen: dict[int, str] = {}
    for number, message in _sent_by_servers(protocol):
        other = seen.setdefault(number, message.struct.name)
        if other != message.struct.name:
            diagnostics.add(
                "E203",
                f"the server sends key {number} for {other} too",
                message.struct.position,
                "give the push another key, or the response a `response key`",
            )


def _sent_by_servers(protocol: ir.Protocol) -> Iterator[tuple[int, ir.Request]]:
    for each in protocol.requests:
        if each.response is not None:
            yield each.key if each.response_key is None else each.response_key, each
    for each in protocol.pushes:
        yield each.key, each
