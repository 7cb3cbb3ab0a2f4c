"""Converts Apache Kafka's JSON message schemas to definitions.

``schema_reader`` reads the schemas, ``schema_merging`` merges those of each message from several releases, and
``kafka_facts`` adds what they lack. ``definition_writer`` writes the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from krammar.compiler.definition_writer import write_definitions
from krammar.compiler.kafka_facts import add_facts
from krammar.compiler.schema_merging import group_schemas, merge_schemas
from krammar.compiler.schema_reader import SchemaReader
from krammar.compiler.schemas import (
    ImportResult,
    ImportSchemaError,
    MessageSchema,
    pair_up_old_records,
)


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
