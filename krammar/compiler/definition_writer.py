"""Writes schemas as definition files, and names every struct."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from krammar.compiler.front.headers import NEWER
from krammar.compiler.header_versions import header_modifiers, usual_headers
from krammar.compiler.ir import PRIMITIVES
from krammar.compiler.names import singular
from krammar.compiler.schemas import ImportSchemaError, MessageSchema, Range, SchemaField, intersect

_WIDTH = 100
# Types that can be enums.
_INTEGERS = frozenset(each.name for each in PRIMITIVES.values() if each.is_integer)


def write_definitions(
    schemas: Sequence[MessageSchema],
    warnings: list[str],
    *,
    docs: bool = False,
    enums: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the texts of definition files by name. Adds to ``warnings``.

    Args:
        docs: include the documentation of the schemas, as comments.
        enums: see ``importer.import_schemas``.

    Raises:
        ImportSchemaError: definitions cannot express a schema.
    """
    return _Writer(schemas, warnings, docs, enums or {}).write()


class _Writer:
    def __init__(
        self,
        schemas: Sequence[MessageSchema],
        warnings: list[str],
        docs: bool,
        enums: Mapping[str, str],
    ) -> None:
        self.schemas = schemas
        self.docs = docs
        self.enums = [(pattern, *target.split()) for pattern, target in enums.items()]
        self.warnings = warnings
        self.names = {schema.name for schema in schemas}
        self.responses = {schema.base: schema for schema in schemas if schema.kind == "response"}
        self.commons: dict[tuple[str, str], str] = {}

    def write(self) -> dict[str, str]:
        for schema in self.schemas:
            for name in self._used_commons(schema):
                self.commons[schema.name, name] = self._unique(_common_name(schema, name))
        files: dict[str, list[MessageSchema]] = {}
        for schema in self.schemas:
            files.setdefault(f"{schema.file}.krm", []).append(schema)
        return {name: self._file(files[name]) for name in sorted(files)}

    def _unique(self, name: str) -> str:
        candidate, number = name, 2
        while candidate in self.names:
            candidate, number = f"{name}{number}", number + 1
        self.names.add(candidate)
        return candidate

    def _used_commons(self, schema: MessageSchema) -> dict[str, Range]:
        """Shared structs that need a name, with the versions in which they are used.

        Structs that are only written in place need no name.
        """
        used: dict[str, Range] = {}
        todo = [(item, schema.span) for item in schema.fields]
        while todo:
            item, bound = todo.pop()
            versions = intersect(item.versions, bound)
            if versions is None:
                continue
            inner = item.fields or []
            if item.common:
                inner = schema.commons[item.common]
            if item.common and not _in_place(item):
                old = used.get(item.common, versions)
                new = (min(old[0], versions[0]), max(old[1], versions[1]))
                if used.get(item.common) == new:
                    continue
                used[item.common] = versions = new
            todo += [(child, versions) for child in inner]
        return {name: used[name] for name in schema.commons if name in used}

    def _file(self, schemas: list[MessageSchema]) -> str:
        blocks = []
        order = sorted(schemas, key=_file_order)
        if order[0].release:
            blocks.append(_follows(order))
        blocks += [self._struct(schema) for schema in order]
        for schema in order:
            for name, span in self._used_commons(schema).items():
                title = self.commons[schema.name, name]
                header = f"{title} => not top level, no encoding"
                body = self._fields(schema, schema.commons[name], span, title, 1)
                blocks.append([header, *body])
        return "\n\n".join("\n".join(block) for block in blocks) + "\n"

    def _struct(self, schema: MessageSchema) -> list[str]:
        low, high = schema.span
        fields = schema.fields
        modifiers: list[str] = []
        lines: list[str] = []
        if schema.kind in ("request", "push"):
            modifiers += [f"key {schema.key}", f"max version {high}"]
        elif schema.kind != "response":
            modifiers.append("not top level")
            # Control records contain their version in a field.
            own = schema.kind == "data" and bool(fields) and _is_version(fields[0], schema)
            if own or schema.version_prefixed:
                default = fields[0].default if own else None
                if own:
                    fields = fields[1:]
                else:
                    fields = [self._not_version(schema, item) for item in fields]
                modifiers.append("with version field")
                first = schema.key if schema.kind == "coordinator-key" else default or low
                lines.append(
                    f"  Version: int16({first})" if str(first) != "0" else "  Version: int16"
                )
            if not schema.open_ended:
                modifiers.append(f"max version {high}")
        if schema.kind != "response":
            if low and schema.kind != "coordinator-key":
                modifiers.append(f"min version {low}")
            if schema.flexible_from is not None:
                modifiers.append(f"flexible v{schema.flexible_from}+")
            if schema.reads_newer:
                modifiers.append(NEWER)
            if schema.routing:
                modifiers.append(schema.routing)
            flags = {
                "cluster action": schema.cluster_action,
                "one way": schema.one_way,
                "push": schema.kind == "push",
                f"response key {schema.response_key}": schema.response_key is not None,
            }
            modifiers += [word for word, given in flags.items() if given]
            modifiers += self._headers(schema)
        header = f"{schema.name} =>" + (f" {', '.join(modifiers)}" if modifiers else "")
        body = self._fields(schema, fields, schema.span, schema.name, 1)
        return [header, *lines, *body]

    def _headers(self, schema: MessageSchema) -> list[str]:
        """The modifiers for headers other than the usual ones."""
        low, high = schema.span
        usual = usual_headers(schema.name, low, schema.flexible_from)
        response = None if schema.one_way else self.responses.get(schema.base)
        if schema.kind == "push":
            usual = replace(usual, request=usual.response)
        return [
            f"{word} {header}" + ("" if first is None else f" v{first}+")
            for word, given, pairs in (
                ("header", schema.headers, usual.request),
                ("response header", response.headers if response else {}, usual.response),
            )
            for first, header in header_modifiers(given, pairs, low, high)
        ]

    def _not_version(self, schema: MessageSchema, item: SchemaField) -> SchemaField:
        """Rename a field `Version`, because the field that is not in the JSON has this name."""
        if item.name != "Version":
            return item
        self.warnings.append(f"{schema.name}.Version is renamed to BodyVersion")
        return replace(item, name="BodyVersion")

    def _fields(
        self,
        schema: MessageSchema,
        fields: list[SchemaField],
        bound: Range,
        path: str,
        depth: int,
    ) -> list[str]:
        """The lines of ``fields`` in a struct with the versions ``bound``."""
        lines: list[str] = []
        indent = "  " * depth
        for item in fields:
            versions = intersect(item.versions, bound)
            if versions is None:
                continue
            here = f"{path}.{item.name}"
            if self.docs and item.about:
                width = max(40, _WIDTH - len(indent) - 3)
                prose = " ".join(item.about.split())
                lines += [
                    f"{indent}// {line}"
                    for line in textwrap.wrap(prose, width, break_on_hyphens=False)
                ]
            inner = item.fields
            if item.common and _in_place(item):
                inner = schema.commons[item.common]
            hint = "" if inner is None else self._hint(item, schema)
            annotation = self._annotation(item, versions, bound, schema)
            spelled = self._type(schema, item, here, versions, hint)
            lines.append(f"{indent}{item.name}: {spelled}{annotation}")
            if inner is not None:
                lines += self._fields(schema, inner, versions, here, depth + 1)
        return lines

    def _hint(self, item: SchemaField, schema: MessageSchema) -> str:
        """The hint that a field with an anonymous struct needs; empty if its own name gives the class."""
        usual = singular(item.name)
        wanted = _short_name(schema, item.struct) or usual
        hint, number = wanted, 2
        while f"{schema.name}.{hint}" in self.names:
            hint, number = f"{wanted}{number}", number + 1
        self.names.add(f"{schema.name}.{hint}")
        return "" if hint == usual else hint

    def _annotation(
        self, item: SchemaField, versions: Range, bound: Range, schema: MessageSchema
    ) -> str:
        parts = []
        if versions != bound:
            low, high = versions
            parts.append(f"v{low}+" if high == schema.span[1] else f"v{low}-v{high}")
        if item.tag is not None:
            parts.append(f"tag {item.tag}")
        if not item.flexible:
            parts.append("not flexible")
        if item.ignorable:
            parts.append("ignorable")
        if item.entity:
            parts.append(f"entity {item.entity}")
        return f" // {', '.join(parts)}" if parts else ""

    def _type(
        self, schema: MessageSchema, item: SchemaField, path: str, versions: Range, hint: str
    ) -> str:
        since = self._null_versions(schema, item, path, versions)
        default = f"({item.default})" if item.default is not None else ""
        if item.common and not _in_place(item):
            name = self.commons[schema.name, item.common]
        elif not item.type:
            name = "=>"
        else:
            name = self._enum(schema, item, path) or item.type.replace("records", "bytes")
        if item.array:
            words = [word for word in ("" if since is None else "nullable", item.length) if word]
            if elements := intersect(item.null_elements, versions):
                from_ = "" if elements == versions else _null_range(elements, versions)
                name = f"{'[' * name.count('[')}nullable-{name.strip('[]')}{from_}{']' * name.count(']')}"
            name = f"{'[' * (item.depth - 1)}{name}{']' * (item.depth - 1)}"
            return f"{'-'.join(words)}{since or ''}[{name}]{hint}{default}"
        if not item.type:
            # In Kafka, the default is a struct with default values unless it is null.
            absent = "()" if item.default is None else ""
            null = "nullable-bool" if item.presence_bool else "nullable"
            return f"{null}{name}{hint}{absent}" if since is not None else f"{name}{hint}"
        if since is not None and item.presence_bool:
            name = f"bool-{name}"
        return f"{name}{default}" if since is None else f"nullable-{name}{since}{default}"

    def _enum(self, schema: MessageSchema, item: SchemaField, path: str) -> str:
        for pattern, enum, integer in self.enums:
            if item.type in _INTEGERS and fnmatchcase(path, pattern):
                if integer == item.type:
                    return f"enum-{enum}"
                message = f"{path} has type {item.type}, but {enum} has type {integer}"
                raise ImportSchemaError(schema.path, item.line, message)
        return ""

    def _null_versions(
        self, schema: MessageSchema, item: SchemaField, path: str, versions: Range
    ) -> str | None:
        """``-v7+`` or ``-v0-v3`` if the field is nullable in these versions, empty if in all, None if in none."""
        null = intersect(item.nullable, versions)
        if null is None:
            return None
        texts = ("string", "bytes", "records")
        is_struct = item.type[:1] in ("", item.type[:1].upper())
        if not item.array and not is_struct and not item.type.endswith(texts):
            raise ImportSchemaError(
                schema.path, item.line, f"{path}: the type {item.type} cannot be nullable"
            )
        if null == versions:
            return ""
        if not item.array and not item.type:
            message = f"{path}: a struct cannot be nullable in some of its versions only"
            raise ImportSchemaError(schema.path, item.line, message)
        return _null_range(null, versions)


def _null_range(null: Range, versions: Range) -> str:
    return f"-v{null[0]}+" if null[1] == versions[1] else f"-v{null[0]}-v{null[1]}"


def _follows(schemas: list[MessageSchema]) -> list[str]:
    """The comment with the Kafka releases that the definitions of a file follow."""
    newest = schemas[0].release
    others: dict[str, list[str]] = {}
    for schema in schemas:
        if schema.release != newest:
            others.setdefault(schema.release, []).append(schema.name)
        for (low, high), release in schema.older:
            name = schema.base if schema.kind in {"request", "response"} else schema.name
            versions = f"v{low}" if low == high else f"v{low}-v{high}"
            known = others.setdefault(release, [])
            if f"{name} {versions}" not in known:
                known.append(f"{name} {versions}")
    text = f"Follows Apache Kafka {newest}"
    for release, names in others.items():
        text += f"; {' and '.join([', '.join(names[:-1]), names[-1]] if names[1:] else names)}"
        text += f" as in {release}"
    return [f"// {line}" for line in textwrap.wrap(f"{text}.", _WIDTH - 3)]


def _is_version(item: SchemaField, schema: MessageSchema) -> bool:
    return (item.name, item.type, item.array) == ("Version", "int16", False) and (
        item.versions == schema.versions and not item.plain
    )


def _in_place(item: SchemaField) -> bool:
    """Whether a shared struct is written in place, because the language has no nullable named structs."""
    return item.common is not None and not item.array and item.nullable is not None


def _common_name(schema: MessageSchema, name: str) -> str:
    return f"{schema.name}.{_short_name(schema, name)}"


def _short_name(schema: MessageSchema, name: str) -> str:
    """The name of a struct in a schema, without the message's own name as prefix."""
    short = name.removeprefix(schema.name)
    return short if short[:1].isupper() else name


def _file_order(schema: MessageSchema) -> tuple[bool, str, int, str]:
    """Sort a response after its request, a value after its key, and records by their numbers."""
    if schema.kind in {"request", "response", "header"}:
        is_second = schema.kind == "response" or schema.name.endswith("Response")
        return (False, schema.base, is_second, schema.name)
    return (True, "", schema.key or 0, schema.name)
