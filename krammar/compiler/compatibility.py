"""Finds changes of definitions that break peers, or programs that use the generated code.

It compares the layouts of all versions that both sets of definitions have. In these versions, the same bytes
must have the same meaning. Breaking changes become diagnostics:

- ``B1xx``, on the wire: a message or a version is missing, or the bytes of a version differ.
- ``B2xx``, in the Python API: a name is missing, or a default differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest

from krammar.compiler import ir, layout
from krammar.compiler.front.codes import RULES
from krammar.util.diagnostics import Diagnostics, Position

WIRE = "B1"

# Additions that break nobody, as sentences.
News = list[str]


def compare(
    old: Sequence[ir.Protocol], new: Sequence[ir.Protocol], diagnostics: Diagnostics
) -> list[str]:
    """Compare two sets of definitions, and add breaking changes to ``diagnostics``.

    Their positions are in the new definitions, or in the old ones for definitions that are missing.

    Returns:
        The additions, which break nobody, as sentences.
    """
    news: News = []
    latest = {protocol.package: protocol for protocol in new}
    earlier = {protocol.package for protocol in old}
    for protocol in old:
        name = protocol.package or "the protocol"
        if protocol.package in latest:
            _Comparison(diagnostics, news).protocol(protocol, latest[protocol.package])
        elif protocol.files:
            at = Position(protocol.files[0].path, 1, 1)
            diagnostics.add(
                "B101", f"{name} is missing", at, "restore its definitions", RULES["B101"]
            )
    news += [f"{each} is new" for each in sorted(latest.keys() - earlier)]
    return news


class _Comparison:
    def __init__(self, diagnostics: Diagnostics, news: News) -> None:
        self._diagnostics = diagnostics
        self._news = news

    def protocol(self, old: ir.Protocol, new: ir.Protocol) -> None:
        structs = _structs(new)
        for name, struct in _structs(old).items():
            now = structs.pop(name, None)
            if now is None:
                self._add("B101", f"{name} is missing", struct.position, "restore its definition")
            else:
                self._struct(struct, now)
        self._news += [f"{name} is new" for name in structs]
        self._requests(old, new)
        enums = _enums(new)
        for name, enum in _enums(old).items():
            if name in enums:
                self._enum(enum, enums[name])
            else:
                self._add("B201", f"the enum {name} is missing", enum.position)

    def _requests(self, old: ir.Protocol, new: ir.Protocol) -> None:
        requests = {request.struct.name: request for request in new.requests}
        for request in old.requests:
            now = requests.get(request.struct.name)
            if now is not None and now.key != request.key:
                self._add(
                    "B102",
                    f"{request.struct.name} has key {now.key}, it was {request.key}",
                    now.struct.position,
                )

    def _struct(self, old: ir.Struct, new: ir.Struct) -> None:
        name = old.name
        if (old.version_field is None) is not (new.version_field is None):
            verb = "begins" if new.version_field else "no longer begins"
            self._add("B104", f"{name} {verb} with a version field", new.position)
            return
        shared = self._versions(old, new)
        faults: dict[tuple[str, str, Position], list[int]] = {}
        for version in shared:
            for fault in _differences(layout.build(old, version), layout.build(new, version), name):
                faults.setdefault(fault, []).append(version)
        for (code, message, position), versions in faults.items():
            where = "" if code.startswith("B2") else f" in {ir.version_ranges(versions)}"
            hint = "released versions must not change; add a new version" if where else ""
            self._add(code, message + where, position, hint)

    def _versions(self, old: ir.Struct, new: ir.Struct) -> range:
        """Return the versions that both have. Missing versions are reported."""
        if old.min_version < new.min_version:
            self._missing(new, range(old.min_version, new.min_version))
        last, now_last = _last(old, new), _last(new, old)
        if now_last < last:
            self._missing(new, range(now_last + 1, last + 1))
        if last < now_last and old.max_version is not None:
            self._news.append(
                f"{new.name} {ir.version_ranges([*range(last + 1, now_last + 1)])} is new"
            )
        if new.min_version < old.min_version:
            added = ir.version_ranges([*range(new.min_version, old.min_version)])
            self._news.append(f"{new.name} {added} is new")
        return range(max(old.min_version, new.min_version), min(last, now_last) + 1)

    def _missing(self, struct: ir.Struct, versions: range) -> None:
        verb = "is" if len(versions) == 1 else "are"
        self._add(
            "B103",
            f"{struct.name} {ir.version_ranges([*versions])} {verb} missing",
            struct.position,
        )

    def _enum(self, old: ir.Enum, new: ir.Enum) -> None:
        if old.type != new.type:
            message = f"{new.name} is {new.type.name}, it was {old.type.name}"
            self._add("B106", message, new.position)
        by_value = {member.value: member for member in new.members}
        by_name = {member.name: member for member in new.members}
        for member in old.members:
            now = by_value.get(member.value)
            moved = by_name.get(member.name)
            if moved is not None and moved.value != member.value:
                message = f"{old.name}.{member.name} is {moved.value}, it was {member.value}"
                self._add("B106", message, moved.position)
            elif now is None:
                message = f"{old.name}.{member.name} ({member.value}) is missing"
                self._add("B201", message, member.position)
            elif now.name != member.name:
                message = f"{old.name}.{member.name} ({member.value}) is renamed to {now.name}"
                self._add("B202", message, now.position)
        known = {member.name for member in old.members} | {member.value for member in old.members}
        self._news += [
            f"{new.name}.{member.name} is new"
            for member in new.members
            if member.name not in known and member.value not in known
        ]

    def _add(self, code: str, message: str, position: Position, hint: str = "") -> None:
        self._diagnostics.add(code, message, position, hint, RULES[code])


Fault = tuple[str, str, Position]


def _differences(old: layout.StructLayout, new: layout.StructLayout, path: str) -> Iterator[Fault]:
    """Yield the differences between two layouts of a version. ``path`` precedes the names of fields."""
    at = new.struct.position
    if old.flexible != new.flexible:
        yield "B104", f"{path} is {'' if new.flexible else 'no longer '}flexible", at
        return
    before = [step.field.name for step in old.fields]
    after = [step.field.name for step in new.fields]
    for was, now in zip_longest(old.fields, new.fields):
        if was is None or (now is not None and _moved_in(was, now, before, after)):
            yield "B104", f"{path}.{now.field.name} is new", now.field.position
            return
        if now is None or _moved_in(now, was, after, before):
            yield "B104", f"{path}.{was.field.name} is missing", was.field.position
            return
        if (
            was.field.name in after
            and now.field.name in before
            and was.field.name != now.field.name
        ):
            yield "B104", f"{path}.{now.field.name} has moved", now.field.position
            return
        yield from _field(was, now, path, tagged=False)
    yield from _tags(_by_tag(old), _by_tag(new), path)


def _moved_in(
    was: layout.Step, now: layout.Step, before: Sequence[str], after: Sequence[str]
) -> bool:
    """Whether ``now`` was inserted before ``was``."""
    return now.field.name not in before and was.field.name in after


def _tags(
    old: Mapping[int, layout.Step], new: Mapping[int, layout.Step], path: str
) -> Iterator[Fault]:
    # Peers ignore tags that they do not know, so added and removed tags break nobody.
    for tag in old.keys() & new.keys():
        yield from _field(old[tag], new[tag], path, tagged=True)
    names = {step.field.name: tag for tag, step in new.items()}
    for tag, step in old.items():
        name = step.field.name
        if names.get(name, tag) != tag:
            yield "B104", f"{path}.{name} has tag {names[name]}, it was {tag}", new[
                names[name]
            ].field.position


def _by_tag(one: layout.StructLayout) -> dict[int, layout.Step]:
    return {step.field.tag or 0: step for step in (one.tags.known if one.tags else ())}


def _field(was: layout.Step, now: layout.Step, path: str, *, tagged: bool) -> Iterator[Fault]:
    name, at = f"{path}.{now.field.name}", now.field.position
    if was.field.python_name != now.field.python_name:
        old_name, new_name = was.field.python_name, now.field.python_name
        yield "B202", f"{path}.{was.field.name}: {old_name} is renamed to {new_name}", at
    if was.field.default != now.field.default:
        message = f"the default of {name} is {now.field.default!r}, it was {was.field.default!r}"
        # Tagged fields with their default value are not on the wire.
        yield ("B105", message, at) if tagged else ("B203", message, at)
    yield from _wires(was.wire, now.wire, name, at)


def _wires(was: layout.WireType, now: layout.WireType, name: str, at: Position) -> Iterator[Fault]:
    if isinstance(was, layout.WireArray) and isinstance(now, layout.WireArray):
        if (was.prefix, was.nullable) == (now.prefix, now.nullable):
            yield from _wires(was.element, now.element, f"{name}[]", at)
            return
    elif isinstance(was, layout.WireStruct) and isinstance(now, layout.WireStruct):
        if was.nullable == now.nullable:
            if was.layout.struct.name != now.layout.struct.name:
                before, after = was.layout.struct.name, now.layout.struct.name
                yield "B202", f"{name}: the class {before} is renamed to {after}", at
            yield from _differences(was.layout, now.layout, name)
            return
    elif _shown(was) == _shown(now):
        return
    yield "B104", f"{name} is {_shown(now)}, it was {_shown(was)}", at


def _shown(wire: layout.WireType) -> str:
    """Describe the bytes of a field."""
    match wire:
        case layout.WireFixed(type_):
            return type_.name
        case layout.WireVarint(name):
            return name
        case layout.WireText(kind, prefix, nullable):
            return f"{_nullable(nullable)}{kind} with {prefix.label} length"
        case layout.WireArray(element, prefix, nullable):
            return f"{_nullable(nullable)}array of {_shown(element)} with {prefix.label} count"
        case layout.WireStruct(_, nullable):
            return f"{_nullable(nullable)}struct"
        case layout.WireVersioned(struct):
            return f"{struct.name} with its own version"
        case layout.WireSized(length_field, minus):
            return f"{length_field} - {minus} bytes"


def _nullable(nullable: bool) -> str:
    return "nullable " if nullable else ""


def _structs(protocol: ir.Protocol) -> dict[str, ir.Struct]:
    """The structs that can be encoded alone, by name."""
    return {
        struct.name: struct for file in protocol.files for struct in file.structs if struct.encoding
    }


def _enums(protocol: ir.Protocol) -> dict[str, ir.Enum]:
    return {enum.name: enum for file in protocol.files for enum in file.enums}


def _last(struct: ir.Struct, other: ir.Struct) -> int:
    """The last version to compare. If the struct has no last version: the last one that changes either struct."""
    if struct.max_version is not None:
        return struct.max_version
    ends = [layout.layout_table(each).max_version for each in (struct, other)]
    return max(ends)
