"""Schemas: messages with ranges of versions, as Kafka's JSON and protocol guides describe them.

``importer`` and ``guide`` read them, and ``definition_writer`` writes them as definition files.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

Range = tuple[int, int]
"""Versions from the first to the second, both included."""

OPEN = 1 << 15
"""A version above all others."""


class ImportSchemaError(Exception):
    """Schemas cannot be converted. ``line`` is 0 if the problem concerns the whole file.

    ``others`` are further problems of the same run. ``str()`` lists all problems, one per line.
    """

    def __init__(
        self, path: Path, line: int, message: str, others: Sequence[ImportSchemaError] = ()
    ) -> None:
        super().__init__(path, line, message)
        self.path = path
        self.line = line
        self.message = message
        self.others = tuple(others)

    def each(self) -> list[ImportSchemaError]:
        """Return this problem and the others, each without others."""
        return [ImportSchemaError(self.path, self.line, self.message), *self.others]

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}" if self.line else str(self.path)
        return "\n".join([f"{place}: {self.message}", *map(str, self.others)])


@dataclass(frozen=True, slots=True)
class ImportResult:
    """The texts of definition files by name (``metadata.krm``), and warnings for the user."""

    files: dict[str, str]
    warnings: tuple[str, ...]
    messages: tuple[str, ...] = ()


@dataclass(slots=True)
class SchemaField:
    """A field of a schema.

    A struct has ``fields`` (if it is defined in place) or ``common`` (the name of a struct that several fields
    share), and ``struct`` is its name in the schema. Any other type is ``type``. ``declared`` are the versions in
    the schema; ``versions`` are limited to those of the message. ``length`` is the form of an array's count, if it is
    the same in all versions, ``depth`` how deeply arrays of structs are nested, and ``null_elements`` the versions in
    which elements can be null. ``presence_bool`` is whether a bool precedes a struct that can be null. ``ignorable``
    and ``entity`` are as in ``ir.Field``. ``plain`` is whether a first field ``Version`` does not select the version.
    """

    name: str
    type: str
    array: bool
    versions: Range
    declared: Range
    nullable: Range | None
    tag: int | None
    default: str | None
    flexible: bool
    about: str
    line: int
    struct: str
    fields: list[SchemaField] | None = None
    common: str | None = None
    length: str = ""
    depth: int = 1
    null_elements: Range | None = None
    presence_bool: bool = False
    ignorable: bool = False
    entity: str = ""
    plain: bool = False


@dataclass(slots=True)
class MessageSchema:
    """A message, of one release or merged.

    ``versions`` is None if only the key of the message is still reserved. ``flexible_from`` is None if no
    version is flexible. ``older`` are the versions from schemas of older releases. ``file`` is the stem of the
    definition file. ``version_prefixed`` is whether an int16 version precedes the fields. If ``open_ended``,
    the only layout serves any version. ``headers`` are the header versions that the schema itself gives, by version.
    """

    path: Path
    kind: str
    name: str
    key: int | None
    versions: Range | None
    flexible_from: int | None
    unstable: bool
    release: str
    older: list[tuple[Range, str]] = field(default_factory=list)
    fields: list[SchemaField] = field(default_factory=list)
    commons: dict[str, list[SchemaField]] = field(default_factory=dict)
    file: str = ""
    routing: str = ""
    cluster_action: bool = False
    one_way: bool = False
    response_key: int | None = None
    version_prefixed: bool = False
    reads_newer: bool = False
    open_ended: bool = False
    headers: dict[int, int] = field(default_factory=dict)

    @property
    def span(self) -> Range:
        """The versions of a message that has some."""
        assert self.versions is not None, self.name
        return self.versions

    @property
    def base(self) -> str:
        """The name without Request or Response."""
        return re.sub(r"(Request|Response)$", "", self.name)


def intersect(one: Range | None, other: Range | None) -> Range | None:
    """Return the versions of both ranges, or None if they have none in common."""
    if one is None or other is None:
        return None
    low, high = max(one[0], other[0]), min(one[1], other[1])
    return (low, high) if low <= high else None


def merge_order(old: list[str], new: list[str]) -> list[str] | None:
    """Merge two lists and preserve both orders, or return None if they contradict each other.

    At the same place, names of the old list precede those of the new one.
    """
    shared = [name for name in old if name in new]
    if shared != [name for name in new if name in old]:
        return None
    result: list[str] = []
    rest = list(new)
    for name in old:
        if name in shared:
            while rest[0] != name:
                result.append(rest.pop(0))
            rest.pop(0)
        result.append(name)
    return result + rest


def pair_up_old_records(schemas: list[MessageSchema]) -> list[MessageSchema]:
    """Convert coordinator records of Kafka before 4.0 to the form of Kafka 4.0.

    The old records have the type `data`, and pairs of names XKey and XValue in a folder. The version of the key
    is the number of the record type. In Kafka 4.0 this number is ``apiKey``, and the version is 0.
    """
    places = {(schema.path.parent, schema.name): schema for schema in schemas}
    for (folder, name), key in places.items():
        value = places.get((folder, f"{name.removesuffix('Key')}Value"))
        if not name.endswith("Key") or key.kind != "data" or not value or value.kind != "data":
            continue
        if key.versions and all(item.versions == key.versions for item in key.fields):
            key.kind, value.kind = "coordinator-key", "coordinator-value"
            key.key = value.key = key.versions[1]
            key.versions = (0, 0)
            for item in key.fields:
                item.versions = item.declared = (0, 0)
                item.nullable = (0, 0) if item.nullable else None
    return schemas
