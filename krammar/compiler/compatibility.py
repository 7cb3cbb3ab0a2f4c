"""Finds changes of definitions that break peers, or programs that use the generated code.

It compares the layouts of all versions that both sets of definitions have. In these versions, the same bytes
must have the same meaning. Breaking changes become diagnostics:

- ``B1xx``, on the wire: a message or a version is missing, or the bytes of a version differ.
- ``B2xx``, in the Python API: a name is missing, a default differs, or encoding refuses more values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from krammar.compiler import ir, layout
from krammar.compiler.differences import Fault, IgnorableAdded, differences
from krammar.compiler.front.codes import RULES
from krammar.compiler.front.headers import NEWER
from krammar.compiler.header_versions import header_versions
from krammar.compiler.layout_table import layout_table
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
