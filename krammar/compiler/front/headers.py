"""Reads and checks the headers of structs: diagnostics E301 to E303 and E5xx."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from krammar.compiler import ir
from krammar.compiler.front.reporter import Reporter
from krammar.compiler.front.syntax import FieldNode, NamedNode, StructNode, Word

NEWER = "newer versions read as the newest"
_VERSION_HINT = "the first field must be `Version: int16`, without annotations"


@dataclass(slots=True)
class Header:
    """The header of a struct: the values of its modifiers."""

    node: StructNode
    plain: bool = False
    version_field: bool = False
    encoding: bool = True
    key: int | None = None
    min_version: int = 0
    max_version: int | None = None
    flexible_from: int | None = None
    routing: str = ""
    reads_newer: bool = False
    cluster_action: bool = False
    one_way: bool = False
    push: bool = False
    response_key: int | None = None
    headers: tuple[tuple[int, int], ...] = ()
    response_headers: tuple[tuple[int, int], ...] = ()
    request: Header | None = None


def read_header(node: StructNode, report: Reporter) -> Header:
    header = Header(node)
    seen: set[str] = set()
    for kind, word in node.modifiers:
        if kind in seen and kind not in _REPEATED:
            _report_second(kind, word, header, report)
        seen.add(kind)
        match kind:
            case "not_top_level":
                header.plain = True
            case "with_version_field":
                header.version_field = True
            case "no_encoding":
                header.encoding = False
            case "routing":
                header.routing = word.text
            case "frequent":
                report.error("W502", "`frequent` has no effect any more", word, "remove it")
            case "reads_newer" | "cluster_action" | "one_way" | "push":
                setattr(header, kind, True)
            case "header":
                header.headers += (_header_from(word, report),)
            case "response_header":
                header.response_headers += (_header_from(word, report),)
            case "flexible":
                header.flexible_from = report.in_range(int(word.text[1:-1]), word, "version")
            case _:
                value = (
                    _key(word, report)
                    if kind in ("key", "response_key")
                    else report.in_range(int(word.text, 0), word, "version")
                )
                setattr(header, kind, value)
    _check_modifiers(header, seen, report)
    return header


def _report_second(kind: str, word: Word, header: Header, report: Reporter) -> None:
    if kind == "routing" and word.text != header.routing:
        report.error(
            "E502",
            f"a request goes to one kind of broker, not to both `{header.routing}` and `{word.text}`",
            word,
            "remove one of them",
        )
    else:
        name = word.text if kind == "routing" else kind.replace("_", " ")
        report.error("E502", f"the modifier `{name}` appears twice", word)


# Modifiers that can appear several times: `header 1, header 2 v3+`.
_REPEATED = frozenset({"header", "response_header"})
_OF_REQUESTS = ("one_way", "push", "response_key", "header", "response_header")


def _header_from(word: Word, report: Reporter) -> tuple[int, int]:
    """Read `3` or `3 v5+`: the first version of the message, and the version of the header from it on."""
    number, _, first = word.text.partition(" ")
    version = report.in_range(int(number, 0), word, "version")
    return (report.in_range(int(first[1:-1]), word, "version") if first else 0, version)


def _key(word: Word, report: Reporter) -> int:
    """Read an api key. The header's field decides whether it may be above 32767."""
    value = int(word.text, 0)
    if not 0 <= value <= 65535:
        report.error("E301", f"the key {value} is not between 0 and 65535", word)
        return 0
    return value


def _check_requests(header: Header, seen: set[str], report: Reporter) -> None:
    node = header.node
    if "key" not in seen:
        for kind in _OF_REQUESTS:
            if kind in seen:
                spelled = kind.replace("_", " ")
                report.error("E502", f"only a message with a `key` can have `{spelled}`", node.name)
        return
    both = [kind for kind in ("one_way", "push") if kind in seen]
    if len(both) == 2:
        report.error(
            "E502",
            "`one way` and `push` cannot be combined",
            node.name,
            "`one way` is a request of the client, and `push` a message of the server",
        )
    elif both:
        for kind in ("response_key", "response_header"):
            if kind in seen:
                report.error(
                    "E502",
                    f"`{both[0].replace('_', ' ')}` and `{kind.replace('_', ' ')}` cannot be combined",
                    node.name,
                    "the message has no response",
                )
    if header.push:
        _check_sent_by_clients(header, report)


def _check_sent_by_clients(header: Header, report: Reporter) -> None:
    """Report modifiers that only a request can have, in the header of something else."""
    for modifier in (header.routing, "cluster action" if header.cluster_action else ""):
        if modifier:
            report.error("E502", f"only a request can have `{modifier}`", header.node.name)


def _check_modifiers(header: Header, seen: set[str], report: Reporter) -> None:
    node = header.node
    first = [kind for kind, _ in node.modifiers]
    if not first:
        return
    _check_requests(header, seen, report)
    if "not_top_level" in seen and "key" in seen:
        report.error(
            "E502",
            "`not top level` and `key` cannot be combined",
            node.name,
            "remove `not top level` if it is a request, or else `key`",
        )
    elif "not_top_level" in seen:
        if first[0] != "not_top_level":
            report.error("E502", "`not top level` must be the first modifier", node.name)
        if header.version_field and not header.encoding:
            report.error(
                "E502", "`with version field` and `no encoding` cannot be combined", node.name
            )
        _check_sent_by_clients(header, report)
    elif "key" not in seen:
        report.error(
            "E502",
            "the header has neither `key` nor `not top level`",
            node.name,
            "begin the modifiers of a request with `key N, max version N`, and those of any other "
            "struct with `not top level`",
        )
    elif node.name.text.endswith("Response"):
        header.key = None
        report.error(
            "E502",
            "a response has no modifiers",
            node.name,
            f"write `{node.name.text} =>` directly after its request, which has the key and the versions",
        )
    elif first[:2] != ["key", "max_version"]:
        report.error(
            "E502",
            "the first two modifiers of a request must be `key` and `max version`",
            node.name,
            "write `key N, max version N`, then the other modifiers",
        )
    elif header.version_field or not header.encoding:
        report.error(
            "E502",
            "a request cannot have `with version field` or `no encoding`",
            node.name,
            "only a struct with `not top level` can have them",
        )
    if header.reads_newer and not header.version_field:
        report.error(
            "E502",
            f"`{NEWER}` needs `with version field`",
            node.name,
            "only a struct that contains its version can be read without knowing it",
        )
    if header.max_version is not None and header.min_version > header.max_version:
        report.error(
            "E302",
            f"min version {header.min_version} is higher than max version {header.max_version}",
            node.name,
        )
    if (
        header.flexible_from is not None
        and header.max_version is not None
        and header.flexible_from > header.max_version
    ):
        word = next(word for kind, word in node.modifiers if kind == "flexible")
        at, before = word.position, len("flexible ")
        report.diagnostics.add(
            "E303",
            f"flexible from version {header.flexible_from}, but the last version is {header.max_version}",
            replace(at, column=at.column - before, length=at.length + before),
        )


def highest_mentioned(node: StructNode, header: Header, fields: Sequence[ir.Field]) -> int | None:
    """The highest version that a struct, or a struct in it, names in an annotation, in a type or as `flexible`.

    None if they name no version. A struct with a version field of its own names versions of its own.
    """
    found: list[int] = [] if header.flexible_from is None else [header.flexible_from]
    found += _written(node.fields)

    def visit(fields: Sequence[ir.Field]) -> None:
        for member in fields:
            ranges = [member.versions]
            type_ = member.type
            while isinstance(type_, ir.Array):
                ranges += [type_.nullable] if type_.nullable else []
                type_ = type_.element
            if isinstance(type_, ir.Text) and type_.nullable:
                ranges.append(type_.nullable)
            for versions in ranges:
                if versions != ir.ALL_VERSIONS:
                    found.append(versions.min if versions.max is None else versions.max)
            if isinstance(type_, ir.StructType) and type_.struct.version_field is None:
                visit(type_.struct.fields)

    visit(fields)
    return max(found, default=None)


def _written(fields: Sequence[FieldNode]) -> Iterator[int]:
    """The versions in annotations: `v0+` is one, too, although it means the same as no annotation."""
    for node in fields:
        for kind, word in node.annotations:
            if kind == "versions":
                yield from map(int, re.findall(r"\d+", word.text))
        yield from _written(node.fields)


def check_version_field(
    node: StructNode, fields: tuple[ir.Field, ...], report: Reporter
) -> str | None:
    """Check the first field of a struct `with version field`, and return its name in Python."""
    if not node.fields:
        report.error("E501", f"{node.name.text} has no version field", node.name, _VERSION_HINT)
        return None
    first = node.fields[0]
    type_ = first.type
    if first.name.text != "Version":
        report.error("E501", 'the first field is not "Version"', first.name, _VERSION_HINT)
    elif not isinstance(type_, NamedNode) or type_.word.text != "int16" or first.annotations:
        report.error("E501", "the version field is not a plain int16", first.name, _VERSION_HINT)
    elif fields and fields[0].name == "Version":
        return fields[0].python_name
    return None
