"""Reads Apache Kafka's JSON message schemas: JSON with ``//`` comments becomes ``MessageSchema``.

Reading makes version ranges concrete: ``0+`` in a schema with versions 4 to 18 becomes 4 to 18, and in a
nested struct at most the versions of the outer field.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from pathlib import Path
from typing import Any
from uuid import UUID

from krammar.compiler.schemas import (
    OPEN,
    ImportSchemaError,
    MessageSchema,
    Range,
    SchemaField,
    intersect,
)
from krammar.util.diagnostics import most_similar
from krammar.util.printable import DIRECTION

_INTEGERS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint16": (0, 2**16 - 1),
    "uint32": (0, 2**32 - 1),
}
_SCALARS = frozenset(_INTEGERS) | {"bool", "float64", "string", "bytes", "records", "uuid"}
_KINDS = frozenset(
    {"request", "response", "header", "data", "metadata", "coordinator-key", "coordinator-value"}
)
# All properties that Kafka's generator knows. It refuses others, as a typo would change the bytes silently.
_SCHEMA = frozenset(
    {
        "apiKey",
        "commonStructs",
        "deprecatedVersions",
        "fields",
        "flexibleVersions",
        "headerVersions",
        "latestVersionUnstable",
        "listeners",
        "name",
        "type",
        "validVersions",
    }
)
_STRUCT = frozenset({"deprecatedVersions", "fields", "name", "versions"})
_FIELD = frozenset(
    {
        "about",
        "default",
        "entityType",
        "fields",
        "flexibleVersions",
        "ignorable",
        "mapKey",
        "name",
        "nullableVersions",
        "tag",
        "taggedVersions",
        "type",
        "versions",
        "zeroCopy",
    }
)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
# The maximum nesting of fields. Definitions allow fewer levels, see ``parser``.
_MAX_DEPTH = 64
_TOO_DEEP = "nested too deeply"


def _parse_range(text: str) -> Range | None:
    """Parse ``0+``, ``1-3``, ``2`` or ``none``."""
    if text == "none":
        return None
    match = re.fullmatch(r"(\d+)(\+|-(\d+))?", text.strip())
    if not match:
        raise ValueError(f'"{text}" is not a range of versions')
    low = int(match[1])
    high = OPEN if match[2] == "+" else int(match[3] or low)
    if high < low:
        raise ValueError(f'"{text}" is not a range of versions: {high} is lower than {low}')
    return low, high


def _strip_comments(text: str) -> str:
    """Remove ``//`` comments from JSON. Lines keep their numbers."""
    return re.sub(r'("(?:[^"\\\n]|\\.)*")|//[^\n]*', lambda match: match[1] or "", text)


# Longer numbers are in no message, and Python converts only a few thousand digits.
_MOST_DIGITS = 100
_ESCAPED_DIRECTION = re.compile(r"(?i)\\u(?:202[a-e]|206[6-9])")


class _LongNumber(Exception):
    """A number has more than ``_MOST_DIGITS`` digits."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


def _integer(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise _LongNumber(text)
    return int(text)


class SchemaReader:
    """Reads a schema, and collects all of its problems."""

    def __init__(self, path: Path, release: str) -> None:
        self.path = path
        self.release = release
        self.lines: list[str] = []
        self.problems: list[ImportSchemaError] = []

    def read(self) -> MessageSchema:
        try:
            text = _strip_comments(self.path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise ImportSchemaError(self.path, 0, f"cannot be read: {error}") from None
        self.lines = text.split("\n")
        lead = len(text) - len(text.lstrip())
        try:
            # Text after the object is ignored, as by Kafka's own generator.
            data, _ = json.JSONDecoder(parse_int=_integer).raw_decode(text, lead)
        except json.JSONDecodeError as error:
            raise ImportSchemaError(self.path, error.lineno, f"invalid JSON: {error.msg}") from None
        except RecursionError:
            raise ImportSchemaError(self.path, 0, _TOO_DEEP) from None
        except _LongNumber as error:
            line = text.count("\n", 0, text.find(error.text)) + 1
            reason = f"a number has {len(error.text):,} digits"
            raise ImportSchemaError(self.path, line, reason) from None
        if not isinstance(data, dict):
            raise ImportSchemaError(self.path, 1, "the schema is not a JSON object")
        self._check_nesting(data)
        self._check_direction()
        schema = self._schema(data)
        if self.problems:
            first = self.problems[0]
            raise ImportSchemaError(first.path, first.line, first.message, self.problems[1:])
        return schema

    def _check_direction(self) -> None:
        """Report the characters that definitions refuse, also those that are escaped in JSON."""
        for number, line in enumerate(self.lines, 1):
            escaped = _ESCAPED_DIRECTION.search(line)
            if found := DIRECTION.search(line) or escaped:
                code = ord(found[0]) if found is not escaped else int(found[0][2:], 16)
                self._problem(
                    number, f"U+{code:04X} changes the direction of the text after it; remove it"
                )

    def _check_nesting(self, data: dict[str, Any]) -> None:
        """Raise ImportSchemaError if fields are nested too deeply for definitions."""
        level: list[Any] = [data]
        for _ in range(_MAX_DEPTH):
            inside = [item.get("fields") for item in level if isinstance(item, dict)]
            level = [item for fields in inside if isinstance(fields, list) for item in fields]
        if level:
            raise ImportSchemaError(self.path, 0, _TOO_DEEP)

    def _name(self, data: dict[str, Any], line: int) -> str:
        """Read a name, which becomes part of a definition file and of its file name."""
        name = self._text(data, "name", line)
        if name and not _NAME.fullmatch(name):
            self._problem(
                line,
                f"the name {json.dumps(name)} contains characters other than letters, digits and `_`",
            )
        return name

    def _line(self, name: str, after: int = 0) -> int:
        pattern = re.compile(rf'"name"\s*:\s*"{re.escape(name)}"')
        numbers = [n for n, line in enumerate(self.lines, 1) if pattern.search(line)]
        return next((n for n in numbers if n >= after), numbers[0] if numbers else 0)

    def _line_of(self, key: str, after: int = 1) -> int:
        """The first line from ``after`` on that contains a property, or ``after``."""
        pattern = re.compile(rf"{re.escape(json.dumps(key, ensure_ascii=False))}\s*:")
        lines = enumerate(self.lines[after - 1 :], after)
        return next((number for number, text in lines if pattern.search(text)), after)

    def _check_properties(
        self, data: dict[str, Any], known: frozenset[str], line: int, what: str
    ) -> None:
        """Report properties that Kafka's schemas do not have."""
        for key in sorted(data.keys() - known):
            near = most_similar(key, known)
            hint = f'; did you mean "{near}"?' if near else ""
            self._problem(
                self._line_of(key, line),
                f"{what} has the unknown property {json.dumps(key)}{hint}",
            )

    def _headers(self, data: dict[str, Any], schema: MessageSchema, line: int) -> dict[int, int]:
        """The header version of each version, from ``headerVersions`` (KIP-1313). Empty without it."""
        given = data.get("headerVersions")
        if given is None:
            return {}
        if schema.kind not in {"request", "response"}:
            self._problem(line, f'a schema of type {schema.kind} cannot have "headerVersions"')
            return {}
        if not isinstance(given, dict):
            self._problem(line, f'"headerVersions" is not an object: {json.dumps(given)}')
            return {}
        found: dict[int, int] = {}
        for text, value in given.items():
            versions = intersect(self._range(text, line), schema.versions)
            header = self._number({"headerVersions": value}, "headerVersions", line)
            for version in range(versions[0], versions[1] + 1) if versions else ():
                if version in found:
                    self._problem(line, f'"headerVersions" contains version {version} twice')
                    return {}
                found[version] = -1 if header is None else header
        missing = [v for v in range(schema.span[0], schema.span[1] + 1) if v not in found]
        if missing:
            self._problem(line, f'"headerVersions" does not contain version {missing[0]}')
        return found

    def _problem(self, line: int, message: str) -> None:
        self.problems.append(ImportSchemaError(self.path, line, message))

    def _text(self, data: dict[str, Any], key: str, line: int, default: str | None = None) -> str:
        value = data.get(key, default)
        if isinstance(value, str):
            return value
        what = "is missing" if value is None else f"is not a string: {json.dumps(value)}"
        self._problem(line, f'"{key}" {what}')
        return default or ""

    def _flag(self, data: dict[str, Any], key: str, line: int) -> bool:
        value = data.get(key, False)
        if not isinstance(value, bool):
            self._problem(line, f'"{key}" is neither true nor false: {json.dumps(value)}')
        return value is True

    def _number(self, data: dict[str, Any], key: str, line: int) -> int | None:
        value = data.get(key)
        # Some of Kafka's tags are strings.
        number = int(value) if isinstance(value, str) and value.isdecimal() else value
        if number is None or (isinstance(number, int) and 0 <= number < OPEN):
            return number
        self._problem(line, f'"{key}" is not a number from 0 to {OPEN - 1}: {json.dumps(value)}')
        return None

    def _range(self, text: str, line: int) -> Range | None:
        try:
            return _parse_range(text)
        except ValueError as error:
            self._problem(line, str(error))
            return None

    def _schema(self, data: dict[str, Any]) -> MessageSchema:
        name = self._name(data, 1)
        kind = self._text(data, "type", 1)
        line = self._line(name)
        if kind and kind not in _KINDS:
            self._problem(line, f'unknown schema type "{kind}"')
        versions = self._range(self._text(data, "validVersions", line, "none"), line)
        flexible = self._range(self._text(data, "flexibleVersions", line, "none"), line)
        key = self._number(data, "apiKey", line)
        if key is None and kind in {"request", "response", "coordinator-key"}:
            self._problem(line, f'a {kind} needs "apiKey"')
        schema = MessageSchema(
            path=self.path,
            kind=kind,
            name=name,
            key=key,
            versions=versions,
            flexible_from=None,
            unstable=self._flag(data, "latestVersionUnstable", line),
            release=self.release,
        )
        self._check_properties(data, _SCHEMA, 1, name or "the schema")
        if versions is None:
            return schema
        schema.headers = self._headers(data, schema, self._line_of("headerVersions"))
        if flexible and flexible[0] <= versions[1]:
            if flexible[1] < versions[1]:
                self._problem(line, "the flexible versions end before the last version")
            schema.flexible_from = max(flexible[0], versions[0])
        commons = {}
        for struct in self._objects(data, "commonStructs", line):
            struct_name = self._name(struct, line)
            at = self._line(struct_name, line)
            self._check_properties(struct, _STRUCT, at, f'struct "{struct_name}"')
            span = intersect(self._range(self._text(struct, "versions", at), at), versions)
            if span:
                commons[struct_name] = (struct, span, at)
        names = set(commons)
        for struct_name, (struct, span, at) in commons.items():
            schema.commons[struct_name] = self._fields(struct, span, names, at)
        schema.fields = self._fields(data, versions, names, line)
        for struct_name in commons:
            if struct_name in _reachable(schema, schema.commons[struct_name]):
                self._problem(self._line(struct_name), f'struct "{struct_name}" contains itself')
        return schema

    def _objects(self, data: dict[str, Any], key: str, line: int) -> list[dict[str, Any]]:
        value = data.get(key, [])
        if isinstance(value, list) and all(isinstance(item, dict) for item in value):
            return value
        self._problem(line, f'"{key}" is not a list of objects')
        return []

    def _fields(
        self, data: dict[str, Any], span: Range, commons: set[str], line: int
    ) -> list[SchemaField]:
        result: list[SchemaField] = []
        for entry in self._objects(data, "fields", line):
            name = self._name(entry, line)
            line = self._line(name, line)
            self._check_properties(entry, _FIELD, line, f'field "{name}"')
            read = self._field(entry, name, span, commons, line)
            if read:
                if any(other.name == read.name for other in result):
                    self._problem(line, f'two fields have the name "{name}"')
                result.append(read)
        return result

    def _field(
        self, data: dict[str, Any], name: str, span: Range, commons: set[str], line: int
    ) -> SchemaField | None:
        tagged = self._range(self._text(data, "taggedVersions", line, "none"), line)
        # A tagged field without "versions" has the versions of its tag.
        declared = (
            self._range(self._text(data, "versions", line), line) if "versions" in data else tagged
        )
        if declared is None and tagged is None and "versions" not in data:
            self._problem(line, f'field "{name}": "versions" is missing')
        versions = intersect(declared, span)
        if declared is None or versions is None:
            return None
        tag = self._number(data, "tag", line)
        if tagged and intersect(tagged, versions) != versions:
            self._problem(
                line,
                f'field "{name}" has a tag in some of its versions only, which definitions do not support',
            )
        if (tag is None) != (tagged is None):
            self._problem(line, f'field "{name}" needs both "tag" and "taggedVersions", or neither')
        flexible = self._text(data, "flexibleVersions", line, "0+")
        if flexible not in {"0+", "none"}:
            self._problem(line, f'field "{name}": "flexibleVersions" can only be "none"')
        nullable = self._range(self._text(data, "nullableVersions", line, "none"), line)
        spelled = self._text(data, "type", line)
        element = spelled.removeprefix("[]")
        if not _NAME.fullmatch(element):
            self._problem(line, f'field "{name}": {json.dumps(spelled)} is not a type')
        result = SchemaField(
            name=name[:1].upper() + name[1:],
            type=element if element in _SCALARS else "",
            array=spelled.startswith("[]"),
            versions=versions,
            declared=declared,
            nullable=intersect(nullable, versions),
            tag=tag,
            default=None,
            flexible=flexible != "none",
            about=self._text(data, "about", line, ""),
            line=line,
            struct="" if element in _SCALARS else element,
            ignorable=self._flag(data, "ignorable", line),
            entity=self._text(data, "entityType", line, ""),
        )
        if element not in _SCALARS:
            if "fields" in data:
                result.fields = self._fields(data, versions, commons, line)
            elif element in commons:
                result.common = element
            else:
                self._problem(line, f'field "{name}": unknown type "{spelled}"')
        result.default = self._default(data, result, line)
        return result

    def _default(self, data: dict[str, Any], spec: SchemaField, line: int) -> str | None:
        """The default in the language, or None for the default of the type."""
        value = data.get("default")
        if spec.type == "records":
            return "null" if spec.nullable else None
        # Kafka's generator reads a JSON null as "no default". Only the string "null" means null.
        if value is None:
            return None
        text = json.dumps(value) if isinstance(value, bool | int | float) else str(value)
        if text == "null":
            if not spec.nullable:
                self._problem(
                    line, f'field "{spec.name}" has the default null, but is never nullable'
                )
            return "null"
        if spec.type == "uuid" and not spec.array and text:
            return self._uuid(spec, text, line)
        if spec.array or not spec.type or spec.type == "bytes":
            if text:
                self._problem(line, f'field "{spec.name}": no such default: "{text}"')
            return None
        if spec.type == "bool" and text not in {"true", "false", ""}:
            self._problem(line, f'field "{spec.name}": no such default: "{text}"')
        if spec.type in _INTEGERS and text:
            low, high = _INTEGERS[spec.type]
            try:
                number = int(text, 0)
            except ValueError:
                number = high + 1
            if not low <= number <= high:
                self._problem(
                    line, f'field "{spec.name}": the default {text} is not a value of {spec.type}'
                )
            return text if number else None
        if spec.type == "float64" and text:
            try:
                return text if float(text) or text.lstrip().startswith("-") else None
            except ValueError:
                self._problem(
                    line, f'field "{spec.name}": the default {text} is not a value of float64'
                )
        if re.search(r"[()\n]", text):
            self._problem(line, f'field "{spec.name}": the default "{text}" contains parentheses')
        return None if not text or (spec.type == "bool" and text == "false") else text

    def _uuid(self, spec: SchemaField, text: str, line: int) -> str | None:
        """The default of a uuid, which Kafka's schemas contain in base64 for URLs."""
        try:
            value = UUID(bytes=b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True))
        except ValueError:
            self._problem(line, f'field "{spec.name}": the default {text} is not a value of uuid')
            return None
        return str(value) if value.int else None


def _reachable(schema: MessageSchema, fields: list[SchemaField]) -> set[str]:
    """The shared structs that ``fields`` use, at any depth."""
    found: set[str] = set()
    todo = list(fields)
    while todo:
        item = todo.pop()
        todo += item.fields or []
        if item.common and item.common not in found:
            found.add(item.common)
            todo += schema.commons.get(item.common, [])
    return found
