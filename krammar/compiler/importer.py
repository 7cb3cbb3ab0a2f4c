"""Converts Apache Kafka's JSON message schemas to definitions.

``schema_reader`` reads the schemas. This module merges those of each message from several releases, ``kafka_facts``
adds what they lack, and ``definition_writer`` writes the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from krammar.compiler.definition_writer import write_definitions
from krammar.compiler.kafka_facts import add_facts
from krammar.compiler.schema_reader import SchemaReader
from krammar.compiler.schemas import (
    ImportResult,
    ImportSchemaError,
    MessageSchema,
    Range,
    SchemaField,
    intersect,
    merge_order,
    pair_up_old_records,
)

# Merging of a message's schemas from several Kafka releases.
#
# Merging is a union of version ranges. The schema with the higher versions wins, and an older one adds the versions
# below. A protocol guide has one tree of fields per version instead, so `guide.merging` builds the ranges. Both order
# fields with `schemas.merge_order`.


def group_schemas(schemas: list[MessageSchema]) -> Iterator[list[MessageSchema]]:
    """Group the schemas of each message, the winner first.

    Requests and responses are matched by key, because Kafka has renamed some. Other messages are matched by
    name.
    """
    groups: dict[tuple[str, object], list[MessageSchema]] = {}
    for schema in schemas:
        by_key = schema.kind in {"request", "response"}
        identity = (schema.kind, schema.key) if by_key else ("", schema.name)
        groups.setdefault(identity, []).append(schema)
    for group in groups.values():
        # sorted() is stable: among equal versions, the schema of the first folder comes first.
        yield sorted(group, key=lambda schema: -schema.versions[1] if schema.versions else 1)


def merge_schemas(group: list[MessageSchema], warnings: list[str]) -> MessageSchema | None:
    """Merge the schemas of a message. Returns None if none contains a version. Raises ImportSchemaError."""
    result = group[0]
    if result.versions is None:
        warnings.append(f"{result.name}: skipped, because no schema contains a version of it")
        return None
    if result.unstable:
        warnings.append(f"{result.name}: the last version, {result.span[1]}, is unstable")
    for name in sorted({schema.name for schema in group} - {result.name}):
        warnings.append(f"{result.name} has the name {name} in other schemas")
    for older in group[1:]:
        if older.versions is not None and older.versions[0] < result.span[0]:
            _Merger(result, older, warnings).merge()
    return result


class _Merger:
    """Adds the versions of ``old`` that are lower than those of ``new`` to ``new``, in place."""

    def __init__(self, new: MessageSchema, old: MessageSchema, warnings: list[str]) -> None:
        self.new = new
        self.old = old
        self.warnings = warnings
        self.low = new.span[0]
        self.done: dict[str, list[SchemaField]] = {}

    def _fail(self, message: str) -> ImportSchemaError:
        return ImportSchemaError(self.new.path, 0, f"{message} (merging with {self.old.path})")

    def merge(self) -> None:
        new, old = self.new, self.old
        if old.span[1] < self.low - 1:
            raise self._fail(f"no schema of {new.name} has version {self.low - 1}")
        if new.kind != old.kind:
            raise self._fail(f"{new.name} has type {new.kind} here and type {old.kind} there")
        below = (old.span[0], self.low - 1)
        old_flexible = old.flexible_from is not None and old.flexible_from < self.low
        if old_flexible and new.flexible_from != self.low:
            raise self._fail(f"{new.name} is no longer flexible from version {self.low} on")
        old.fields = self._clip(old.fields, below)
        old.commons = {name: self._clip(fields, below) for name, fields in old.commons.items()}
        for name, fields in old.commons.items():
            if name in new.commons:
                self._merge_common(name, fields)
            else:
                new.commons[name] = fields
        new.fields = self._merge_fields(new.fields, old.fields, new.name)
        new.headers = {v: h for v, h in old.headers.items() if v < self.low} | new.headers
        new.versions = (below[0], new.span[1])
        new.older.append((below, old.release))
        if old_flexible:
            new.flexible_from = old.flexible_from

    def _clip(self, fields: list[SchemaField], span: Range) -> list[SchemaField]:
        kept = []
        for item in fields:
            versions = intersect(item.versions, span)
            if versions:
                item.versions = versions
                item.nullable = intersect(item.nullable, span)
                item.fields = None if item.fields is None else self._clip(item.fields, span)
                kept.append(item)
        return kept

    def _merge_common(self, name: str, old: list[SchemaField]) -> None:
        if name in self.done:
            if not _same_layout(self.done[name], old):
                raise self._fail(f'{self.new.name}: the struct "{name}" has two older forms')
            return
        self.done[name] = old
        self.new.commons[name] = self._merge_fields(self.new.commons[name], old, name)

    def _merge_fields(
        self, new: list[SchemaField], old: list[SchemaField], path: str
    ) -> list[SchemaField]:
        by_name = {item.name: item for item in new}
        shared = [item.name for item in old if item.name in by_name]
        order = merge_order([item.name for item in old], list(by_name))
        if order is None:
            raise self._fail(f"{path}: the order of the fields {', '.join(shared)} differs")
        for older in old:
            if older.name in by_name:
                self._merge_field(by_name[older.name], older, f"{path}.{older.name}")
        for newer in new:
            if newer.name not in shared and newer.declared[0] < newer.versions[0] == self.low:
                self.warnings.append(
                    f"{path}.{newer.name}: the schema contains it below version {self.low}, but "
                    f"{self.old.path} does not"
                )
        merged = {item.name: item for item in old} | by_name
        return [merged[name] for name in order]

    def _merge_field(self, new: SchemaField, old: SchemaField, path: str) -> None:
        alias = {"records": "bytes"}
        if (alias.get(new.type, new.type), new.array) != (alias.get(old.type, old.type), old.array):
            raise self._fail(f"{path} has another type")
        if new.tag != old.tag:
            raise self._fail(f"{path} has tag {new.tag} here and tag {old.tag} there")
        if new.flexible != old.flexible:
            raise self._fail(f'{path} differs in "flexibleVersions"')
        if old.versions[1] + 1 != new.versions[0]:
            raise self._fail(
                f"{path} is missing between versions {old.versions[1]} and {new.versions[0]}"
            )
        if new.default != old.default:
            self.warnings.append(
                f"{path}: the default is {new.default or 'none'}, not {old.default or 'none'} as in the "
                "older schema"
            )
        old_null, new_null = old.nullable, new.nullable
        if old_null and new_null and old_null[1] + 1 != new_null[0]:
            raise self._fail(
                f"{path} is nullable up to version {old_null[1]} and again from {new_null[0]}"
            )
        nulls = [span for span in (old_null, new_null) if span]
        new.nullable = (nulls[0][0], nulls[-1][1]) if nulls else None
        new.versions = (old.versions[0], new.versions[1])
        old_fields = self.old.commons[old.common] if old.common else old.fields
        if old_fields is not None:
            if new.common:
                if new.common != old.common:
                    self._merge_common(new.common, old_fields)
            else:
                new.fields = self._merge_fields(new.fields or [], old_fields, path)


def _same_layout(one: list[SchemaField], other: list[SchemaField]) -> bool:
    def key(item: SchemaField) -> tuple[object, ...]:
        inner = [key(child) for child in item.fields or []]
        null = item.nullable
        return (item.name, item.type, item.array, item.versions, null, item.tag, item.common, inner)

    return [key(item) for item in one] == [key(item) for item in other]


# The import.


def import_schemas(
    folders: Sequence[Path],
    *,
    docs: bool = False,
    enums: Mapping[str, str] | None = None,
    releases: Sequence[str] = (),
) -> ImportResult:
    """Convert all ``*.json`` schemas below ``folders`` to definitions.

    If a message has several schemas, the one with the highest version wins, or else the one in the first
    folder. The others add versions below its lowest one.

    Args:
        docs: include the documentation of the schemas, as comments.
        enums: from patterns of ``Message.Field.Field…`` to an enum and its integer type, such as
            ``{"*.ErrorCode": "ErrorCode int16"}``.
        releases: the Kafka release of each folder, such as ``["4.4.0", "3.9.2"]``. A comment at the begin of
            each file names them.

    Raises:
        ImportSchemaError: a folder does not exist, or schemas are invalid or contradict each other. It contains
            all problems.
    """
    problems: list[ImportSchemaError] = []
    warnings: list[str] = []
    schemas: list[MessageSchema] = []
    if releases and len(releases) != len(folders):
        raise ValueError("give one release for each folder")
    for folder, release in zip(folders, releases or [""] * len(folders), strict=True):
        if not folder.is_dir():
            problems.append(ImportSchemaError(folder, 0, "is not a folder"))
            continue
        paths = sorted(folder.rglob("*.json"))
        if not paths:
            problems.append(ImportSchemaError(folder, 0, "the folder contains no *.json files"))
        read = []
        for path in paths:
            try:
                read.append(SchemaReader(path, release).read())
            except ImportSchemaError as error:
                problems += error.each()
        schemas += pair_up_old_records(read)
    merged = []
    for group in group_schemas(schemas):
        try:
            merged.append(merge_schemas(group, warnings))
        except ImportSchemaError as error:
            problems.append(error)
    known = [schema for schema in merged if schema is not None]
    problems += _unpaired(known)
    problems += _missing_headers(known)
    if not problems:
        try:
            for schema in known:
                add_facts(schema)
            files = write_definitions(known, warnings, docs=docs, enums=enums)
        except ImportSchemaError as error:
            problems.append(error)
    if problems:
        first = problems[0]
        raise ImportSchemaError(first.path, first.line, first.message, others=problems[1:])
    names = tuple(sorted(schema.name for schema in known))
    return ImportResult(files, tuple(warnings), names)


def _unpaired(schemas: list[MessageSchema]) -> Iterator[ImportSchemaError]:
    """Report responses without a request, or with other versions than their request."""
    requests = {schema.name: schema for schema in schemas if schema.kind == "request"}
    for schema in schemas:
        if schema.kind != "response":
            continue
        request = requests.get(f"{schema.base}Request")
        if request is None or request.key != schema.key:
            yield ImportSchemaError(schema.path, 0, f"{schema.name} has no request")
        elif request.versions != schema.versions:
            yield ImportSchemaError(
                schema.path, 0, f"{schema.name} and its request have different versions"
            )
        elif request.flexible_from != schema.flexible_from:
            yield ImportSchemaError(
                schema.path, 0, f"{schema.name} and its request have different flexible versions"
            )


def _missing_headers(schemas: list[MessageSchema]) -> Iterator[ImportSchemaError]:
    """Report versions of headers that do not exist. A protocol without schemas of headers has Kafka's."""
    spans = {"RequestHeader": (0, 2), "ResponseHeader": (0, 1)}
    spans |= {schema.name: schema.span for schema in schemas if schema.kind == "header"}
    for schema in schemas:
        name = "RequestHeader" if schema.kind == "request" else "ResponseHeader"
        low, high = spans[name]
        for version, header in sorted(schema.headers.items()):
            if not low <= header <= high:
                yield ImportSchemaError(
                    schema.path,
                    0,
                    f'{schema.name} has header {header} in version {version} ("headerVersions", KIP-1313), but '
                    f"{name} has the versions {low} to {high} (import a {name}.json with that version)",
                )
                break
