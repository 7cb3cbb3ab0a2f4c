"""The versions in which a field exists, with those that it inherits, as hints beside the text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lsprotocol import types as lsp

from krammar.compiler import ir
from krammar.lsp.project import Analysis, SourceFile


def inherited(outer: ir.Struct, chain: Sequence[ir.Field]) -> ir.VersionRange | None:
    """Return the versions in which the last field of a chain exists, or None if there are none.

    A field exists where all fields that contain it exist, and a tagged field only in flexible versions. A
    range that reaches the last version of the message has no end, as in definitions.
    """
    versions: ir.VersionRange | None = ir.VersionRange(outer.min_version)
    for field in chain:
        own = field.versions
        if field.tag is not None and outer.flexible_from is not None:
            own = own.intersect(ir.VersionRange(outer.flexible_from)) or own
        versions = own.intersect(versions) if versions is not None else None
    if versions is not None and versions.max is not None and versions.max == outer.max_version:
        return ir.VersionRange(versions.min)
    return versions


def hints(analysis: Analysis, file: SourceFile, first: int, last: int) -> list[lsp.InlayHint]:
    """Return a hint for each field whose versions differ from those that its line gives.

    Args:
        first: the first line of the compiler for which hints are wanted.
        last: the last one.
    """
    found = []
    for definition in file.syntax.definitions:
        struct = analysis.structs.get(definition.name.text)
        if struct is None or struct.position != definition.name.position:
            continue
        for field, versions in _differing(struct, struct, ()):
            row = field.position.line - 1
            if first <= row <= last and field.position.path == file.path:
                end = file.text.row_start(row) + len(file.text.rows[row])
                found.append(
                    lsp.InlayHint(
                        file.text.position(end),
                        str(versions),
                        padding_left=True,
                        tooltip=f"The versions of {struct.name} in which the field exists.",
                    )
                )
    return found


def _differing(
    outer: ir.Struct, struct: ir.Struct, chain: tuple[ir.Field, ...]
) -> Iterator[tuple[ir.Field, ir.VersionRange]]:
    for field in struct.fields:
        whole = (*chain, field)
        versions = inherited(outer, whole)
        written = field.versions.intersect(ir.VersionRange(outer.min_version))
        if versions is not None and versions != written:
            yield field, versions
        inner = ir.struct_of(field.type)
        if inner is not None and inner.anonymous:
            yield from _differing(outer, inner, whole)
