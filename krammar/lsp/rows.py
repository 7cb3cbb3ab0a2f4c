"""The lines around the cursor: the definition, the other fields of its struct, and the versions that they name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from krammar.compiler.ir import PRIMITIVES, VersionRange

NAME = r"[A-Za-z]\w*(?:\.[A-Za-z]\w*)?"


HEADER = re.compile(rf"({NAME}) =>(?: (.*))?$")


VERSIONS = re.compile(r"v(\d+)(?:(\+)|-v(\d+))")


def head_of(rows: Sequence[str], index: int) -> int | None:
    """The line with the header of the definition that contains a line."""
    for above in range(index, -1, -1):
        row = rows[above]
        if row[:1] not in ("", " ", "\t", "/"):
            return None if row == ")" else above
    return None


class FieldPlace:
    """A line among the fields of a struct."""

    def __init__(self, rows: Sequence[str], head: int, index: int) -> None:
        self._rows = rows
        self._head = head
        self._index = index
        self.indent = _indent(rows[index])
        self.min_version, self.max_version, self.flexible_from = _header_versions(rows, head)

    @property
    def name(self) -> str:
        """The name of the definition."""
        match = re.match(r"[\w.]+", self._rows[self._head])
        return match[0] if match else ""

    def holders(self) -> Iterator[VersionRange]:
        """The versions of the fields that contain the line."""
        indent = self.indent
        for row in reversed(self._rows[self._head + 1 : self._index]):
            if row.strip() and not row.lstrip().startswith("//") and _indent(row) < indent:
                indent = _indent(row)
                yield _range_of(row)

    def siblings(self) -> list[str]:
        """The other lines of the same struct."""
        found = []
        for area in (
            reversed(self._rows[self._head + 1 : self._index]),
            iter(self._rows[self._index + 1 :]),
        ):
            for row in area:
                if row.strip() and _indent(row) < self.indent:
                    break
                if row.strip() and _indent(row) == self.indent and not row.strip().startswith("//"):
                    found.append(row.strip())
        return found

    def free_tag(self) -> int:
        """The lowest tag that the other lines neither use nor reserve."""
        tags = {
            int(number)
            for row in self.siblings()
            for listed in re.findall(r"\btag (\d{1,5}(?:, \d{1,5})*)", row)
            for number in listed.split(", ")
        }
        return next(each for each in range(len(tags) + 1) if each not in tags)

    def integers_before(self) -> list[str]:
        """The names of the integer fields before the line, the nearest first."""
        found = []
        for row in reversed(self._rows[self._head + 1 : self._index]):
            if row.strip() and _indent(row) < self.indent:
                break
            match = re.match(r"\s+(\w+): (\w+)", row)
            if match and _indent(row) == self.indent:
                primitive = PRIMITIVES.get(match[2])
                if primitive is not None and primitive.is_integer:
                    found.append(match[1])
        return found

    def mentioned(self) -> list[int]:
        """The versions that the definition names anywhere."""
        found = []
        above = self._rows[self._head : self._index]
        for row in (*above, *_until_dedent(self._rows[self._index + 1 :])):
            if not row.lstrip().startswith("//"):
                found += [int(each) for each in re.findall(r"\bv(\d{1,5})\b", row)]
        return found


def _until_dedent(rows: Iterable[str]) -> Iterator[str]:
    for row in rows:
        if row and not row.startswith((" ", "\t")):
            return
        yield row


def _header_versions(rows: Sequence[str], head: int) -> tuple[int, int | None, int | None]:
    """Lowest, highest and first flexible version of a definition; a response has those of its request."""
    match = HEADER.match(rows[head])
    written = (match[2] if match else "") or ""
    if match and not written and match[1].endswith("Response"):
        request = match[1].removesuffix("Response") + "Request =>"
        written = next((row for row in reversed(rows[:head]) if row.startswith(request)), "")

    def number(pattern: str) -> int | None:
        found = re.search(pattern + r"(\d{1,5})", written)
        return int(found[1]) if found else None

    return number("min version ") or 0, number("max version "), number("flexible v")


def _range_of(row: str) -> VersionRange:
    match = VERSIONS.search(row.partition(" // ")[2])
    if match is None:
        return VersionRange()
    low = int(match[1])
    return VersionRange(low, max(low, int(match[3])) if match[3] else None)


def _indent(row: str) -> int:
    return len(row) - len(row.lstrip(" \t"))
