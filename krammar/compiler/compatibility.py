"""Finds changes of definitions that break peers, or programs that use the generated code.

It compares the layouts of all versions that both sets of definitions have. In these versions, the same bytes
must have the same meaning. Breaking changes become diagnostics:

- ``B1xx``, on the wire: a message or a version is missing, or the bytes of a version differ.
- ``B2xx``, in the Python API: a name is missing, a default differs, or encoding refuses more values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from krammar.compiler import ir, layout
from krammar.compiler.front.codes import RULES
from krammar.compiler.front.headers import NEWER
from krammar.compiler.header_versions import header_versions
from krammar.compiler.layout_table import layout_table
from krammar.compiler.steps import (
    Prefix,
    Step,
    StructLayout,
    WireArray,
    WireFixed,
    WireSized,
    WireStruct,
    WireText,
    WireType,
    WireVarint,
    WireVersioned,
)
from krammar.util.diagnostics import Diagnostics, Position

# Differences between two layouts of one version.
#
# A tagged field is on the wire only if its value differs from the default. So the defaults that make up this value
# belong to the bytes. Peers ignore tags that they do not know, so tagged fields can come and go (KIP-482), but a
# tag must never belong to another field: a peer with the old definitions would read its value as the value of the old
# field.

_NEW_VERSION = "released versions must not change; add a new version"


@dataclass(frozen=True, slots=True)
class Fault:
    """A breaking change. ``of_version`` is whether only some versions can have it."""

    code: str
    message: str
    position: Position
    hint: str = ""
    of_version: bool = False


@dataclass(frozen=True, slots=True)
class IgnorableAdded:
    """A field that the version lacks, and that became ``ignorable``: encoding accepts more than before."""

    name: str


Found = Iterator[Fault | IgnorableAdded]


def differences(old: StructLayout, new: StructLayout, path: str) -> Found:
    """Yield the differences between two layouts of a version.

    Args:
        path: the names of the message and of the fields that contain the struct, for messages.
    """
    yield from _StructComparison(path, tagged=False).structs(old, new)


@dataclass(frozen=True, slots=True)
class _StructComparison:
    """The place of two structs. ``tagged`` is whether their values decide if a tagged field is written."""

    path: str
    tagged: bool

    def structs(self, old: StructLayout, new: StructLayout) -> Found:
        if old.flexible != new.flexible:
            verb = "is" if new.flexible else "is no longer"
            yield _bytes(f"{self.path} {verb} flexible", new.struct.position)
            return
        yield from self._reserved(old.struct, new.struct)
        yield from self._tags(_by_tag(old), _by_tag(new), old.struct, new.struct)
        yield from self._absent(old, new)
        before = [step.field.name for step in old.fields]
        after = [step.field.name for step in new.fields]
        for was, now in zip_longest(old.fields, new.fields):
            if was is None or (now is not None and _moved_in(was, now, before, after)):
                yield _bytes(f"{self.path}.{now.field.name} is new", now.field.position)
                return
            if now is None or _moved_in(now, was, after, before):
                yield _bytes(f"{self.path}.{was.field.name} is missing", was.field.position)
                return
            if (
                was.field.name in after
                and now.field.name in before
                and was.field.name != now.field.name
            ):
                yield _bytes(f"{self.path}.{now.field.name} has moved", now.field.position)
                return
            yield from self._field(was, now)

    def _absent(self, old: StructLayout, new: StructLayout) -> Found:
        """Compare what encoding does with values of fields that the version lacks."""
        after = {field.name: field for field in new.absent}
        for was in old.absent:
            now = after.get(was.name)
            name = f"{self.path}.{was.name}"
            if now is None or was.ignorable == now.ignorable:
                continue
            if now.ignorable:
                yield IgnorableAdded(name)
            else:
                yield Fault(
                    "B204",
                    f"{name} is no longer ignorable",
                    now.position,
                    "keep `ignorable`: encoding refuses values of the field that it dropped before",
                    of_version=True,
                )

    def _reserved(self, old: ir.Struct, new: ir.Struct) -> Found:
        used = {field.tag: field for field in new.fields if field.tag is not None}
        kept = {each.tag for each in new.reserved_tags}
        for tag in (each.tag for each in old.reserved_tags):
            if tag in used:
                message = f"{self.path}.{used[tag].name} has tag {tag}, which was reserved"
                yield _reused(message, used[tag], tag)
            elif tag not in kept:
                message = f"tag {tag} of {self.path} is no longer reserved"
                yield Fault("B107", message, new.position, f"restore `reserved tag {tag}`")

    def _tags(
        self,
        old: Mapping[int, Step],
        new: Mapping[int, Step],
        before: ir.Struct,
        after: ir.Struct,
    ) -> Found:
        """Compare the tagged fields of a version. Fields that only the new definitions have break nobody."""
        was_tagged = {field.tag: field for field in before.fields if field.tag is not None}
        now_tagged = {field.tag: field for field in after.fields if field.tag is not None}
        old_names = {field.name: field for field in before.fields}
        new_names = {field.name: field for field in after.fields}
        for tag, step in old.items():
            was, now = step.field, now_tagged.get(tag)
            moved = new_names.get(was.name)
            if now is None:
                yield from self._removed(was, tag, moved, after)
            elif was.name == now.name:
                if tag in new:
                    yield from self._field(step, new[tag], tagged=True)
                else:
                    yield _tag_versions(f"tag {tag} of {self.path}.{now.name} is missing", now)
            elif (
                moved is None
                and now.name not in old_names
                and now.versions == was.versions
                and tag in new
                and _shown(step.wire) == _shown(new[tag].wire)
            ):
                # With the same form and versions, it is the same field under another name.
                yield from self._field(step, new[tag], tagged=True)
            else:
                yield self._other(was, now, tag)
            if moved is not None and moved.tag != tag:
                message = f"{self.path}.{was.name} has tag {moved.tag}, it was {tag}"
                if moved.tag is None:
                    message = f"{self.path}.{was.name} has no tag, it had tag {tag}"
                yield _bytes(message, _tag_place(moved))
        for tag, step in new.items():
            was_field = was_tagged.get(tag)
            now = step.field
            if was_field is not None and was_field.name == now.name and tag not in old:
                yield _tag_versions(f"tag {tag} of {self.path}.{now.name} is new", now)

    def _removed(self, was: ir.Field, tag: int, moved: ir.Field | None, after: ir.Struct) -> Found:
        if tag not in {each.tag for each in after.reserved_tags}:
            yield Fault(
                "B107",
                f"tag {tag} of {self.path}, which {was.name} had, is neither used nor reserved",
                after.position,
                f"write `reserved tag {tag}` among the fields, so that no other field gets the tag",
            )
        if moved is None:
            yield Fault("B201", f"{self.path}.{was.name} is missing", after.position)

    def _other(self, was: ir.Field, now: ir.Field, tag: int) -> Fault:
        message = f"{self.path}.{now.name} has tag {tag}, which was the tag of {was.name}"
        return _reused(message, now, tag)

    def _field(self, was: Step, now: Step, *, tagged: bool = False) -> Found:
        name, at = f"{self.path}.{now.field.name}", now.field.position
        if was.field.python_name != now.field.python_name:
            old_name, new_name = was.field.python_name, now.field.python_name
            message = f"{self.path}.{was.field.name}: {old_name} is renamed to {new_name}"
            yield Fault("B202", message, at)
        on_wire = self.tagged or tagged
        if _differ(was.field, now.field):
            yield _default(name, was.field, now.field, tagged=on_wire)
        # A default that is null or an empty array does not depend on the fields of the struct.
        inside = on_wire and _has_default_fields(was.field) and _has_default_fields(now.field)
        yield from _StructComparison(name, inside)._wires(was.wire, now.wire, at)

    def _wires(self, was: WireType, now: WireType, at: Position) -> Found:
        """Compare the forms of a field or an element, whose name is ``path``."""
        if isinstance(was, WireArray) and isinstance(now, WireArray):
            if (was.prefix, was.nullable) == (now.prefix, now.nullable):
                element = _StructComparison(f"{self.path}[]", tagged=False)
                yield from element._wires(was.element, now.element, at)
                return
        elif isinstance(was, WireStruct) and isinstance(now, WireStruct):
            if _presence(was) == _presence(now):
                yield from self._classes(was.layout.struct, now.layout.struct, at)
                yield from self.structs(was.layout, now.layout)
                return
        elif _shown(was) == _shown(now):
            if isinstance(was, WireVersioned) and isinstance(now, WireVersioned):
                # The bytes of the struct itself are compared with those of other messages.
                yield from self._versioned(was.struct, now.struct)
            return
        yield _bytes(f"{self.path} is {_shown(now)}, it was {_shown(was)}", at)

    def _classes(self, was: ir.Struct, now: ir.Struct, at: Position) -> Found:
        if was.name != now.name:
            message = f"{self.path}: the class {was.name} is renamed to {now.name}"
            yield Fault("B202", message, at)

    def _versioned(self, was: ir.Struct, now: ir.Struct) -> Found:
        """Compare the defaults of a struct with its own version, which the tagged field around it has."""
        if not self.tagged:
            return
        before = {field.name: field for field in was.fields}
        for field in now.fields:
            other = before.get(field.name)
            if other is not None and _differ(other, field):
                yield _default(f"{self.path}.{field.name}", other, field, tagged=True)


def _bytes(message: str, position: Position) -> Fault:
    return Fault("B104", message, position, _NEW_VERSION, of_version=True)


def _differ(one: ir.Field, other: ir.Field) -> bool:
    """Whether two fields have different defaults. 0.0 and -0.0 are equal, but peers read different values."""
    if isinstance(one.default, float) and isinstance(other.default, float):
        return repr(one.default) != repr(other.default)
    return one.default != other.default


def _default(name: str, was: ir.Field, now: ir.Field, *, tagged: bool) -> Fault:
    message = f"the default of {name} is {now.default!r}, it was {was.default!r}"
    if tagged:
        return Fault("B105", message, now.position, _NEW_VERSION, of_version=True)
    return Fault("B203", message, now.position)


def _reused(message: str, now: ir.Field, tag: int) -> Fault:
    hint = f"give {now.name} a tag that was never used, and write `reserved tag {tag}`"
    return Fault("B108", message, _tag_place(now), hint)


def _tag_versions(message: str, field: ir.Field) -> Fault:
    hint = "the versions of a tag must not change; use another tag in other versions"
    return Fault("B109", message, _tag_place(field), hint, of_version=True)


def _tag_place(field: ir.Field) -> Position:
    return field.tag_position or field.position


def _has_default_fields(field: ir.Field) -> bool:
    """Whether the default of a field is a struct with the defaults of its fields."""
    return isinstance(field.type, ir.StructType) and (
        not field.type.nullable or field.default is not None
    )


def _moved_in(was: Step, now: Step, before: Sequence[str], after: Sequence[str]) -> bool:
    """Whether ``now`` was inserted before ``was``."""
    return now.field.name not in before and was.field.name in after


def _by_tag(one: StructLayout) -> dict[int, Step]:
    return {step.field.tag or 0: step for step in one.tagged}


def _shown(wire: WireType) -> str:
    """Describe the bytes of a field."""
    match wire:
        case WireFixed(type_):
            return type_.name
        case WireVarint(name):
            return name
        case WireText(kind, prefix, nullable):
            return f"{_nullable(nullable)}{kind} with {_length(prefix)} length"
        case WireArray(element, prefix, nullable):
            return f"{_nullable(nullable)}array of {_shown(element)} with {_length(prefix)} count"
        case WireStruct():
            return f"{_presence(wire)}struct"
        case WireVersioned(struct):
            return f"{_presence(wire)}{struct.name} with its own version"
        case WireSized(length_field, minus):
            return f"{length_field} - {minus} bytes"


def _presence(wire: WireStruct | WireVersioned) -> str:
    return "" if not wire.nullable else "nullable bool " if wire.tagged else "nullable "


def _length(prefix: Prefix) -> str:
    return "plain uvarint" if prefix is Prefix.UNSIGNED else prefix.label


def _nullable(nullable: bool) -> str:
    return "nullable " if nullable else ""


# Differences between two sets of definitions.

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
            _ProtocolComparison(diagnostics, news).protocol(protocol, latest[protocol.package])
        elif protocol.files:
            at = Position(protocol.files[0].path, 1, 1)
            diagnostics.add(
                "B101", f"{name} is missing", at, "restore its definitions", RULES["B101"]
            )
    news += [f"{each} is new" for each in sorted(latest.keys() - earlier)]
    return news


class _ProtocolComparison:
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
        messages = {each.struct.name: each for each in (*new.requests, *new.pushes)}
        headers = [_structs(each) for each in (old, new)]
        for was in (*old.requests, *old.pushes):
            now = messages.get(was.struct.name)
            if now is None:
                continue
            name, at = was.struct.name, now.struct.position
            if now.key != was.key:
                self._add("B102", f"{name} has key {now.key}, it was {was.key}", at)
            if was.response and now.response and _response_key(now) != _response_key(was):
                message = f"the response of {name} has key {_response_key(now)}, it was {_response_key(was)}"
                self._add("B102", message, at)
            if now.push != was.push:
                verb = "is now" if now.push else "is no longer"
                self._add("B110", f"{name} {verb} a message that the server sends by itself", at)
            elif (now.response is None) != (was.response is None) and not now.push:
                verb = "has no" if now.response is None else "has a"
                self._add("B110", f"{name} {verb} response", at)
            self._headers(was, now, headers)

    def _headers(
        self, was: ir.Request, now: ir.Request, known: Sequence[Mapping[str, ir.Struct]]
    ) -> None:
        """Compare the versions of headers in the versions of a message that both definitions have."""
        last = [_last(was.struct, now.struct), _last(now.struct, was.struct)]
        versions = range(max(was.struct.min_version, now.struct.min_version), min(last) + 1)
        pairs = [
            header_versions(message, *(_header_top(structs, name) for name in _HEADERS))
            for message, structs in zip((was, now), known, strict=True)
        ]
        for index, what in enumerate(("header", "response header")):
            old, new = ((pair.request, pair.response)[index] for pair in pairs)
            if not old or not new or (index and was.response is None and not was.push):
                continue
            changed = [v for v in versions if _pick(old, v) != _pick(new, v)]
            if changed:
                v = changed[0]
                self._add(
                    "B104",
                    f"{now.struct.name} has {what} {_pick(new, v)}, it was {_pick(old, v)} in "
                    f"{ir.version_ranges(changed)}",
                    now.struct.position,
                    "released versions must not change; give the header to a new version",
                )

    def _struct(self, old: ir.Struct, new: ir.Struct) -> None:
        name = old.name
        if (old.version_field is None) is not (new.version_field is None):
            verb = "begins" if new.version_field else "no longer begins"
            self._add("B104", f"{name} {verb} with a version field", new.position)
            return
        if old.reads_newer and not new.reads_newer:
            self._add(
                "B205",
                f"{name} no longer reads newer versions",
                new.position,
                f"keep `{NEWER}`: programs refuse what they read before",
            )
        shared = self._versions(old, new)
        found: dict[Fault | IgnorableAdded, list[int]] = {}
        for version in shared:
            before, after = layout.build_layout(old, version), layout.build_layout(new, version)
            for each in differences(before, after, name):
                found.setdefault(each, []).append(version)
        for each, versions in found.items():
            where = ir.version_ranges(versions)
            if isinstance(each, IgnorableAdded):
                self._news.append(f"{each.name} is ignorable: encoding {where} drops its value")
                continue
            message = f"{each.message} in {where}" if each.of_version else each.message
            self._add(each.code, message, each.position, each.hint)

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


def _structs(protocol: ir.Protocol) -> dict[str, ir.Struct]:
    """The structs that can be encoded alone, by name."""
    return {
        struct.name: struct for file in protocol.files for struct in file.structs if struct.encoding
    }


_HEADERS = ("RequestHeader", "ResponseHeader")


def _header_top(structs: Mapping[str, ir.Struct], name: str) -> int:
    return layout_table(structs[name]).max_version if name in structs else 0


def _pick(pairs: Sequence[tuple[int, int]], version: int) -> int:
    return [header for first, header in pairs if first <= version][-1]


def _response_key(request: ir.Request) -> int:
    return request.key if request.response_key is None else request.response_key


def _enums(protocol: ir.Protocol) -> dict[str, ir.Enum]:
    return {enum.name: enum for file in protocol.files for enum in file.enums}


def _last(struct: ir.Struct, other: ir.Struct) -> int:
    """The last version to compare. If the struct has no last version: the last one that changes either struct."""
    if struct.max_version is not None:
        return struct.max_version
    ends = [layout_table(each).max_version for each in (struct, other)]
    return max(ends)
