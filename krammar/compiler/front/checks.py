"""Checks of the IR that need all names to be resolved."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence

from krammar.compiler import ir
from krammar.compiler.front.lines import MAX_DEPTH
from krammar.compiler.header_places import ROLES, has_role, places
from krammar.compiler.header_versions import effective, header_versions
from krammar.compiler.layout_table import layout_table, own_changes
from krammar.util.diagnostics import Diagnostics, Fix, Position

# Headers, and messages without a response: diagnostics E511 and E510.


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


# Structs and their fields.

# The limits of one struct: how many fields its codecs read, counted in each layout, and how many versions it
# has. Kafka's largest message reads 306 fields in its 19 versions. Generating 2,000 fields takes about a
# minute, and the number doubles with each level of structs that contain two structs. A long struct may
# read each of its fields ``_MAX_REPEATS`` times.
MAX_FIELDS = 2000
MAX_VERSIONS = 4096
_MAX_REPEATS = 10


def check(protocol: ir.Protocol, diagnostics: Diagnostics) -> None:
    """Check a resolved protocol: tags, flexibility, length fields, and the size of the generated code."""
    check_messages(protocol, diagnostics)
    flexible = _ever_flexible(protocol)
    # A struct of another package can be flexible there, and only there.
    flexible |= {
        inside.name
        for file in protocol.files
        if not file.own
        for struct in file.structs
        for inside in ir.walk(struct)
    }
    sizes = _Sizes()
    depths: dict[str, int] = {}
    for file in protocol.files:
        for struct in file.structs:
            for inside in ir.walk(struct):
                _check_tags(inside, inside.name in flexible, diagnostics)
                _check_length_fields(inside, diagnostics)
                _check_newer(inside, diagnostics)
                _check_address(inside, diagnostics)
            _check_depth(struct, depths, diagnostics)
            if struct.encoding:
                sizes.check(struct, diagnostics)
    sizes.report(diagnostics)


class _Sizes:
    """Counts the fields that codecs read and write.

    A codec repeats the code of every struct in it, so the counts of nested structs multiply.
    """

    def __init__(self) -> None:
        self._counts: dict[tuple[str, int, bool], int] = {}
        self._defaults: dict[str, int] = {}
        self._changes: dict[str, set[int]] = {}
        self._too_long: dict[str, tuple[ir.Struct, str]] = {}

    def check(self, struct: ir.Struct, diagnostics: Diagnostics) -> None:
        changes = self._change_points(struct)
        highest = struct.max_version
        if highest is None:
            highest = max([struct.min_version, *changes])
        versions = highest - struct.min_version + 1
        if versions > MAX_VERSIONS:
            diagnostics.add(
                "E508",
                f"{struct.name} has {versions:,} versions; at most {MAX_VERSIONS:,} are allowed, because "
                "the generated code lists them all",
                struct.position,
                "lower `max version`, or raise `min version`",
            )
            return
        written = sum(len(inside.fields) for inside in ir.walk(struct))
        limit = max(MAX_FIELDS, _MAX_REPEATS * written)
        total = 0
        for version in sorted(changes | {struct.min_version}):
            if struct.min_version <= version <= highest:
                total += self._count(struct, version, struct.flexible(version))
            if total > limit:
                self._too_long[struct.name] = struct, (
                    f"the code of {struct.name} would be too long: it would read more than {limit:,} "
                    "fields, because every layout, and every field that contains a struct, repeats the "
                    "fields of the struct"
                )
                return

    def report(self, diagnostics: Diagnostics) -> None:
        """Report each struct that is too long, but not the structs that contain it."""
        for struct, message in self._too_long.values():
            held = (
                ir.struct_of(field.type) for inside in ir.walk(struct) for field in inside.fields
            )
            if not any(inner is not None and inner.name in self._too_long for inner in held):
                diagnostics.add(
                    "E508",
                    message,
                    struct.position,
                    "use the struct in fewer fields, reduce the number of layouts, or encode an inner "
                    "struct separately and store it in a `bytes` field",
                )

    def _count(self, struct: ir.Struct, version: int, flexible: bool) -> int:
        key = (struct.name, version, flexible)
        if key not in self._counts:
            total = 0
            for field in struct.fields:
                total += 1
                absent = version not in field.versions or (field.tag is not None and not flexible)
                if absent or field.tag is not None:
                    total += self._default(field)
                inner = ir.struct_of(field.type)
                if not absent and inner is not None and inner.version_field is None:
                    total += self._count(inner, version, flexible and field.flexible)
            self._counts[key] = total
        return self._counts[key]

    def _default(self, field: ir.Field) -> int:
        """The number of fields that creating the default value sets."""
        if not isinstance(field.type, ir.StructType):
            return 0
        struct = field.type.struct
        if struct.name not in self._defaults:
            self._defaults[struct.name] = sum(1 + self._default(f) for f in struct.fields)
        return self._defaults[struct.name]

    def _change_points(self, struct: ir.Struct) -> set[int]:
        if struct.name not in self._changes:
            found = set(own_changes(struct))
            for field in struct.fields:
                inner = ir.struct_of(field.type)
                if inner is not None and inner.version_field is None:
                    found |= self._change_points(inner)
            self._changes[struct.name] = found
        return self._changes[struct.name]


# The types that fields of an address can have, by entity.
_ADDRESS = {
    "brokerHost": ("string",),
    "brokerPort": ("int32", "int64", "uint16", "uint32", "uint64"),
    "brokerId": ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
}


def _check_address(struct: ir.Struct, diagnostics: Diagnostics) -> None:
    """Check that host, port and id of a broker are in one struct, in the same versions."""
    found = {item.entity: item for item in struct.fields if item.entity in _ADDRESS}
    first = found.get("brokerHost", found.get("brokerPort"))
    if first is None:
        return
    for entity, types in _ADDRESS.items():
        item = found.get(entity)
        if item is None or not item.versions.covers(first.versions):
            what = f"{struct.name} has no {entity} in all versions of {first.name}"
            hint = "mark host, port and id of the broker in one struct: `entity brokerHost`, `brokerPort`, `brokerId`"
        elif _scalar_name(item.type) not in types:
            what = f"{item.name} cannot be the {entity} of an address"
            hint = f"choose one of {', '.join(types)}"
        else:
            continue
        diagnostics.add("E406", what, (item or first).position, hint)
        return


def _scalar_name(type_: ir.Type) -> str:
    if isinstance(type_, ir.Text):
        return type_.kind
    return type_.name if isinstance(type_, ir.Primitive) else ""


def _check_depth(struct: ir.Struct, depths: dict[str, int], diagnostics: Diagnostics) -> None:
    """Limit the nesting of arrays and nullable structs, which become nested blocks of Python."""

    def depth(type_: ir.Type) -> int:
        match type_:
            case ir.Array(element):
                return 1 + depth(element)
            case ir.StructType(inner, nullable) if inner.version_field is None:
                if inner.name not in depths:
                    depths[inner.name] = max((depth(f.type) for f in inner.fields), default=0)
                return nullable + depths[inner.name]
            case _:
                return 0

    for field in struct.fields:
        if depth(field.type) > MAX_DEPTH:
            diagnostics.add(
                "E507",
                f'"{field.name}" contains more than {MAX_DEPTH} nested arrays or nullable structs',
                field.position,
            )


def _ever_flexible(protocol: ir.Protocol) -> set[str]:
    """Names of structs that are flexible in some version, by their own header or an outer struct's."""
    found: set[str] = set()

    def visit(struct: ir.Struct) -> None:
        if struct.name in found:
            return
        found.add(struct.name)
        for field in struct.fields:
            inner = ir.struct_of(field.type)
            if inner is not None:
                visit(inner)

    for file in protocol.files:
        for struct in file.structs:
            if struct.flexible_from is not None:
                visit(struct)
    return found


def _check_tags(struct: ir.Struct, flexible: bool, diagnostics: Diagnostics) -> None:
    seen: dict[int, ir.Field] = {}
    places = _check_reserved_tags(struct, flexible, diagnostics)
    for field in struct.fields:
        if field.tag is None:
            continue
        at = field.tag_position or field.position
        if not flexible:
            diagnostics.add(
                "E308",
                f'"{field.name}" has a tag, but no version of {struct.name} is flexible',
                at,
                "add `flexible vN+` to the header",
            )
        if not field.flexible:
            diagnostics.add(
                "E309",
                f'"{field.name}" has a tag, so it cannot be `not flexible`',
                field.position,
                "remove one of the annotations",
            )
        other = seen.setdefault(field.tag, field)
        if other is not field:
            diagnostics.add(
                "E203",
                f'"{other.name}" (line {other.position.line}) already has tag {field.tag}',
                field.position,
                "give each field another tag",
            )
        if field.tag in places and other is field:
            diagnostics.add(
                "E311",
                f"tag {field.tag} is reserved (line {places[field.tag].line})",
                at,
                "give the field another tag: old peers would read its value as that of a removed field",
            )
        places[field.tag] = at
    for expected, tag in enumerate(sorted(places)):
        if tag != expected:
            diagnostics.add(
                "E310",
                f"tag {expected} is missing",
                places[tag],
                "number tags from 0 without gaps; if a removed field had the tag, write "
                f"`reserved tag {expected}`",
            )
            break


def _check_reserved_tags(
    struct: ir.Struct, flexible: bool, diagnostics: Diagnostics
) -> dict[int, Position]:
    """Check the reserved tags of a struct, and return their places."""
    places: dict[int, Position] = {}
    for each in struct.reserved_tags:
        if not flexible:
            diagnostics.add(
                "E308",
                f"tag {each.tag} is reserved, but no version of {struct.name} is flexible",
                each.position,
                "add `flexible vN+` to the header",
            )
        other = places.setdefault(each.tag, each.position)
        if other is not each.position:
            diagnostics.add(
                "E311",
                f"tag {each.tag} is already reserved at line {other.line}",
                each.position,
                "remove one of the two",
            )
    return places


def _check_newer(struct: ir.Struct, diagnostics: Diagnostics) -> None:
    """Report fields whose struct reads newer versions: what follows them could not be found."""
    for field in struct.fields:
        inner = ir.struct_of(field.type)
        if inner is not None and inner.reads_newer:
            diagnostics.add(
                "E512",
                f'"{field.name}" cannot be {inner.name}, which reads newer versions: where one ends is unknown',
                field.position,
                "write `bytes`, and encode the struct into it",
            )


def _check_length_fields(struct: ir.Struct, diagnostics: Diagnostics) -> None:
    earlier: dict[str, ir.Field] = {}
    used: dict[str, str] = {}
    for field in struct.fields:
        if isinstance(field.type, ir.LengthFieldMinus):
            length = earlier.get(field.type.length_field)
            position = field.type.position or field.position
            if length is None:
                near = difflib.get_close_matches(field.type.length_field, earlier, n=1)
                diagnostics.add(
                    "E506",
                    f'no field before "{field.name}" has the name of its length field',
                    position,
                    (
                        f'did you mean "{earlier[near[0]].name}"?'
                        if near
                        else "give the name of an integer field that precedes it in the same struct"
                    ),
                    fix=Fix(position, earlier[near[0]].name) if near else None,
                )
            elif not (isinstance(length.type, ir.Primitive) and length.type.is_integer):
                diagnostics.add(
                    "E506",
                    f'the length field "{length.name}" of "{field.name}" is not an integer',
                    position,
                    "give it a fixed-width type such as int32",
                )
            elif length.tag is not None or not length.versions.covers(field.versions):
                diagnostics.add(
                    "E506",
                    f'"{field.name}" exists in versions without its length field "{length.name}"',
                    field.position,
                    "give both fields the same versions, and no tags",
                )
            elif length.versions != field.versions:
                diagnostics.add(
                    "E506",
                    f'"{length.name}" exists in versions without "{field.name}", whose bytes it counts',
                    length.position,
                    "give both fields the same versions",
                )
            elif length.name in used:
                diagnostics.add(
                    "E506",
                    f'"{length.name}" is already the length field of "{used[length.name]}"',
                    field.position,
                    "add a length field for each `length-field-minus`",
                )
            else:
                used[length.name] = field.name
            if field.tag is not None:
                diagnostics.add(
                    "E506", "a `length-field-minus` field cannot have a tag", field.position
                )
        earlier[field.python_name] = field
