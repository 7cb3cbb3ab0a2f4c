"""Reads messages in the notation of Kafka's protocol guide out of a text, as schemas.

    ApiVersions Response (Version: 3) => error_code [api_keys] throttle_time_ms TAG_BUFFER
      error_code => INT16
      api_keys => api_key min_version max_version TAG_BUFFER
        api_key => INT16

The stages, in the order of this file:

1. Find messages in prose, code blocks and HTML, and facts about them: API keys, nullable fields.
2. Parse each message-version to a tree of ``_Node``.
3. Merge the versions of each message to a ``Schema`` with ranges of versions.

``definition_writer`` writes the result.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from krammar.compiler import ir
from krammar.compiler.definition_writer import write_definitions
from krammar.compiler.names import snake_case
from krammar.compiler.schemas import Field, ImportResult, Range, Schema, SchemaError
from krammar.util.diagnostics import Diagnostics, Position, did_you_mean

_TITLE = re.compile(
    r"\s*(?P<name>[A-Za-z]\w*)(?: (?P<kind>Request|Response|Header))?"
    r"(?: \(Version: ?(?P<version>\d{1,9})\)| v(?P<v>\d{1,9}))? =>(?P<words>.*)"
)
_LINE = re.compile(
    r"(?P<indent>\s*)(?P<before><tag \d{1,9}> )?(?P<label>\S+(?: \d+>)?) =>(?P<body>.*)"
)
_WORD = re.compile(
    r"(?:(?P<null>nullable)\((?P<struct>\w+)\)"
    r"|(?P<prefix>nullable|varint)?(?P<open>\[+)(?P<array>\w+)(?P<close>\]+)"
    r"|(?P<plain>\w+))(?:<tag: (?P<tag>\d{1,9})>)?"
)
_MARKERS = frozenset({"TAG_BUFFER", "_tagged_fields"})
# The guide on Kafka's site is HTML. Other angle brackets, such as `<tag 0>`, belong to the notation.
_HTML = re.compile(r"</?(?:a|b|br|code|div|h\d|p|pre|table|tbody|td|th|tr)\b[^>]*>")
_KEYS = (
    re.compile(r"\b(?P<name>\w+) API \(Key: (?P<key>\d{1,9})\)"),
    re.compile(r"\bAPI ?Key: *(?P<name>\w+)\s*=\s*(?P<key>\d{1,9})\b", re.I),
    re.compile(
        r"\b(?P<name>\w+) request\b[^.]*? api[ _]key (?:of|is|=)\s*(?P<key>\d{1,9})\b", re.I
    ),
)
_NULLABLE = re.compile(r"\W*(?P<name>\w+)\W*(?: field)? is nullable\b")
_HEADER_VERSION = re.compile(r"\W*(?P<kind>Request|Response) header version: (?P<version>\d{1,9})")

# As in definitions.
_MAX_DEPTH = 16
_SCALARS = {
    "BOOL": "bool",
    "BOOLEAN": "bool",
    "FLOAT64": "float64",
    "INT8": "int8",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "UINT16": "uint16",
    "UINT32": "uint32",
    "UUID": "uuid",
    "VARINT": "varint",
    "VARLONG": "varlong",
}
_TEXT = re.compile(r"(?P<form>COMPACT_|VARINT_)?(?P<null>NULLABLE_)?(?P<kind>STRING|BYTES|RECORDS)")
# An array in an array, in guides before Kafka 2.
_ARRAY = re.compile(r"ARRAY\((\S+)\)")
_SIZED = re.compile(r"BYTES\[(?P<field>\w+) - (?P<minus>\d{1,9})\]")


@dataclass(frozen=True)
class Answers:
    """What a text does not say.

    ``keys`` are API keys by the name of the API. ``types`` are types of definitions by their word in the text.
    ``nullable`` are paths such as ``FetchRequest.topics``, and ``defaults`` are defaults by path.
    """

    keys: Mapping[str, int] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)
    nullable: frozenset[str] = frozenset()
    defaults: Mapping[str, str] = field(default_factory=dict)


def import_guides(
    paths: Sequence[Path], answers: Answers, diagnostics: Diagnostics
) -> ImportResult | None:
    """Convert the messages in texts to definitions.

    Returns:
        None if there were errors. They are in ``diagnostics``, and so are warnings.

    Raises:
        SchemaError: a text cannot be read, the texts contain no messages, or an answer concerns no message.
    """
    reader = _Reader(answers, diagnostics)
    for path in paths:
        try:
            reader.read(path, path.read_text(encoding="utf-8"))
        except UnicodeDecodeError as error:
            raise SchemaError(path, 0, f"is not UTF-8: {error}") from None
    reader.resolve()
    if not reader.messages and not diagnostics.has_errors:
        raise SchemaError(
            paths[0],
            0,
            "contains no message in the notation of Kafka's protocol guide, such as "
            "`Ping Request (Version: 0) => text`",
        )
    schemas = _Merger(reader, answers, diagnostics).merge()
    if diagnostics.has_errors:
        return None
    try:
        files = write_definitions(schemas, [])
    except SchemaError as error:
        position = Position(error.path, max(error.line, 1), 1)
        diagnostics.add("E605", error.message, position, "rename one of the fields in the text")
        return None
    return ImportResult(files, (), tuple(sorted(schema.name for schema in schemas)))


# Finding messages


@dataclass(slots=True)
class _Node:
    """A field of a message-version.

    A struct has ``fields``; any other type is ``type``, and ``sized`` its length field. ``compact`` is None for
    types that have a single form. ``marked`` is whether TAG_BUFFER ends a struct.
    """

    name: str
    position: Position
    brackets: int = 0
    varint: bool = False
    nullable: bool = False
    tag: int | None = None
    type: str = ""
    compact: bool | None = None
    records: bool = False
    fields: list[_Node] | None = None
    marked: bool = False

    def walk(self) -> Iterator[_Node]:
        yield self
        for child in self.fields or []:
            yield from child.walk()

    def shape(self) -> tuple[object, ...]:
        """All facts, without positions."""
        inner = None if self.fields is None else tuple(child.shape() for child in self.fields)
        facts = (self.name, self.brackets, self.varint, self.nullable, self.tag)
        return (*facts, self.type, self.compact, self.marked, inner)


@dataclass(slots=True)
class _Message:
    """The versions of a message; the version of a struct without versions is None."""

    name: str
    versions: dict[int | None, _Node] = field(default_factory=dict)
    # Versions that the text calls flexible by their header.
    header_flexible: dict[int | None, bool] = field(default_factory=dict)

    @property
    def position(self) -> Position:
        return next(iter(self.versions.values())).position

    @property
    def title(self) -> str:
        """The name of the API, without Request or Response."""
        return re.sub(r"(Request|Response)$", "", self.name)


class _Reader:
    """Collects the messages, keys and nullable fields of texts."""

    def __init__(self, answers: Answers, diagnostics: Diagnostics) -> None:
        self.messages: dict[str, _Message] = {}
        self.keys: dict[str, set[int]] = {}
        self._answers = answers
        self._diagnostics = diagnostics
        self._lines: list[str] = []
        self._path = Path()
        # Fields whose type is no word of the notation.
        self._named: list[tuple[str, Position]] = []

    def read(self, path: Path, text: str) -> None:
        text = html.unescape(_HTML.sub("", text.expandtabs(8)))
        self._path, self._lines = path, text.replace("\r\n", "\n").split("\n")
        self._diagnostics.add_source(path, "\n".join(self._lines))
        recent: list[tuple[_Message, int | None]] = []
        number = 0
        while number < len(self._lines):
            line = self._lines[number]
            title = _TITLE.fullmatch(line.rstrip())
            if title:
                number, found = self._message(title, number)
                if found:
                    recent.append(found)
                continue
            self._facts(line, recent)
            number += 1

    def resolve(self) -> None:
        """Report unknown types. The name of a struct in the texts is a type."""
        for word, at in self._named:
            if word not in self.messages:
                hint = did_you_mean(word.upper(), [*_SCALARS, "STRING", "BYTES", "RECORDS"])
                hint = hint or f"give it with --type {word}=TYPE"
                self._error("E606", f"unknown type {word}", at, hint)

    def _facts(self, line: str, recent: list[tuple[_Message, int | None]]) -> None:
        for pattern in _KEYS:
            for match in pattern.finditer(line):
                self.keys.setdefault(match["name"], set()).add(int(match["key"]))
        if nullable := _NULLABLE.match(line):
            for message, _ in reversed(recent):
                if _make_nullable(message, nullable["name"]):
                    break
        if recent and (header := _HEADER_VERSION.match(line)):
            message, version = recent[-1]
            # The header of ApiVersions' response has version 0 in all versions (KIP-511).
            if message.name.endswith(header["kind"]) and message.name != "ApiVersionsResponse":
                flexible = int(header["version"]) >= (2 if header["kind"] == "Request" else 1)
                message.header_flexible[version] = flexible

    def _message(
        self, title: re.Match[str], number: int
    ) -> tuple[int, tuple[_Message, int | None] | None]:
        """Parse the message whose title is in line ``number``. Return the line after it, and what was read."""
        begin = number
        number, block = self._block(number + 1)
        digits = title["version"] or title["v"]
        root = _Node("", self._at(begin, title.start("name"), len(title["name"])))
        words = title["words"].split()
        if digits is None and not (
            block and title["name"][0].isupper() and all(map(_WORD.fullmatch, words))
        ):
            # Prose and code contain arrows too. Only a rule with rules below it looks like a message.
            if block:
                self._diagnostics.add(
                    "W603", "this rule is skipped: it does not describe a message", root.position
                )
            return number, None
        name = title["name"] + (title["kind"] or "")
        version = None if digits is None else int(digits)
        if version is not None and version > 0x7FFF:
            self._error("E601", f"version {version} is higher than 32767", root.position)
            return number, None
        before = len(self._diagnostics.found)
        self._struct(root, (begin, title.start("words")), title["words"], block)
        message = self.messages.setdefault(name, _Message(name))
        same = message.versions.setdefault(version, root)
        if same.shape() != root.shape() and len(self._diagnostics.found) == before:
            self._error(
                "E604",
                f"{_shown(name, version)} differs from its text in line {same.position.line}",
                root.position,
                "remove one of the texts",
            )
        return number, (message, version)

    def _block(self, number: int) -> tuple[int, list[tuple[int, re.Match[str]]]]:
        """The indented rules from line ``number`` on. Blank lines between them are allowed."""
        block: list[tuple[int, re.Match[str]]] = []
        end = number
        while number < len(self._lines):
            line = self._lines[number]
            if line.strip():
                match = _LINE.fullmatch(line.rstrip())
                # A rule that begins another message ends this one.
                title = _TITLE.fullmatch(line.rstrip())
                versioned = title and (title["version"] or title["v"] or title["kind"])
                if versioned or not line.startswith(" ") or "=>" not in line:
                    break
                if match:
                    block.append((number, match))
                else:
                    self._error(
                        "E601",
                        "this line is not a field and its type",
                        self._at(number, len(line) - len(line.lstrip()), len(line.strip())),
                    )
                end = number + 1
            number += 1
        return end, block

    def _struct(
        self,
        node: _Node,
        place: tuple[int, int],
        words: str,
        block: list[tuple[int, re.Match[str]]],
        depth: int = 1,
    ) -> None:
        """Parse the fields of a struct from its words, and from the rules below it."""
        node.fields = []
        if depth > _MAX_DEPTH:
            self._error(
                "E601", f"structs are nested more than {_MAX_DEPTH} levels deep", node.position
            )
            return
        begin, column = place
        expected: dict[str, _Node] = {}
        for match in re.finditer(r"\S+(?: \d+>|<tag: \d+>)?", words):
            word, at = match[0], self._at(begin, column + match.start(), len(match[0]))
            if word in _MARKERS:
                node.marked = True
                continue
            child = self._word(word, at)
            if child is None:
                continue
            if child.name in expected:
                self._error("E602", f"the field {child.name} appears twice", at)
            expected[child.name] = child
            node.fields.append(child)
        indent = min((len(match["indent"]) for _, match in block), default=0)
        starts = [i for i, (_, match) in enumerate(block) if len(match["indent"]) == indent]
        if starts and starts[0] != 0:
            number, match = block[0]
            self._error(
                "E601",
                "this line is indented more than the first line of its struct",
                self._at(number, match.start("label"), len(match["label"])),
            )
        for start, end in pairwise([*starts, len(block)]):
            number, match = block[start]
            self._rule(node, expected, number, match, block[start + 1 : end], depth)
        for child in expected.values():
            if child.fields is None and not child.type:
                self._error(
                    "E602",
                    f"the field {child.name} has no type",
                    child.position,
                    f"add a line such as `{child.name} => INT32` below",
                )

    def _rule(
        self,
        node: _Node,
        expected: dict[str, _Node],
        number: int,
        match: re.Match[str],
        below: list[tuple[int, re.Match[str]]],
        depth: int,
    ) -> None:
        """Parse the line of a field, and the lines below it."""
        at = self._at(number, match.start("label"), len(match["label"]))
        # The guide of Kafka 4 writes `name<tag: 0> => …`, and krammar `<tag 0> name => …`.
        label = match["label"]
        if tagged := re.fullmatch(r"<tag (\d+)> ", match["before"] or ""):
            label = f"{label}<tag: {tagged[1]}>"
        child = self._word(label, at)
        if child is None:
            return
        known = expected.get(child.name)
        if known is None and tagged and node.fields is not None:
            known = expected[child.name] = child
            node.fields.append(child)
        elif known is None:
            hint = did_you_mean(child.name, expected)
            self._error("E602", f"{child.name} is not a field of the struct above", at, hint)
            return
        elif known.fields is not None or known.type:
            self._error("E602", f"the field {child.name} has two lines", at)
            return
        known.tag = known.tag if known.tag is not None else child.tag
        body = match["body"].strip()
        if below or body in _MARKERS:
            self._struct(known, (number, match.start("body")), match["body"], below, depth + 1)
        elif body and not self._type(known, body):
            self._named.append((body, self._at(number, match.start("body") + 1, len(body))))
            known.type = body

    def _word(self, word: str, at: Position) -> _Node | None:
        match = _WORD.fullmatch(word)
        if not match or len(match["open"] or "") != len(match["close"] or ""):
            self._error(
                "E601",
                f"{word} is not a field: needs a name, or an array such as [name]",
                at,
                "a tagged field is `<tag 0> name => TYPE` on a line of its own",
            )
            return None
        name = match["struct"] or match["array"] or match["plain"]
        return _Node(
            name,
            at,
            brackets=len(match["open"] or ""),
            varint=match["prefix"] == "varint",
            nullable="nullable" in (match["prefix"], match["null"]),
            tag=None if match["tag"] is None else int(match["tag"]),
        )

    def _type(self, node: _Node, word: str) -> bool:
        """Set the type of a field. Return False if the type is unknown."""
        while inner := _ARRAY.fullmatch(word):
            node.brackets += 1
            word = inner[1]
        if word in self._answers.types:
            node.type = self._answers.types[word]
        elif sized := _SIZED.fullmatch(word):
            node.type = f"length-field-minus => {_camel(sized['field'])} - {sized['minus']}"
        elif text := _TEXT.fullmatch(word.upper()):
            node.records = text["kind"] == "RECORDS"
            node.type = "bytes" if node.records else text["kind"].lower()
            if text["form"] == "VARINT_":
                node.type = f"varint-{node.type}"
                return True
            node.compact = text["form"] is not None
            # Records are always nullable in Kafka. Elements of arrays never are.
            if not node.brackets:
                node.nullable = node.nullable or bool(text["null"]) or node.records
        else:
            node.type = _SCALARS.get(word.upper(), "")
        return bool(node.type)

    def _at(self, number: int, column: int, length: int) -> Position:
        return Position(self._path, number + 1, column + 1, max(length, 1))

    def _error(self, code: str, message: str, at: Position, hint: str = "") -> None:
        self._diagnostics.add(code, message, at, hint)


def _make_nullable(message: _Message, name: str) -> bool:
    """Make the fields ``name`` of a message nullable. Return whether there were any."""
    found = [
        node for root in message.versions.values() for node in root.walk() if node.name == name
    ]
    for node in found:
        node.nullable = True
    return bool(found)


def _shown(name: str, version: int | None) -> str:
    return name if version is None else f"{name} v{version}"


def _camel(word: str) -> str:
    """Convert ``topic_id`` to ``TopicId``, so that the attribute of the field is ``topic_id`` again."""
    parts = word.strip("_").split("_")
    name = "".join(part[:1].upper() + part[1:] for part in parts)
    if snake_case(name) == snake_case(word.strip("_")):
        return name
    return "_".join(part[:1].upper() + part[1:] for part in parts)


# Merging versions


class _Merger:
    """Merges the versions of each message."""

    def __init__(self, reader: _Reader, answers: Answers, diagnostics: Diagnostics) -> None:
        self._messages = reader.messages
        self._keys = reader.keys
        self._answers = answers
        self._diagnostics = diagnostics
        # Without any TAG_BUFFER in the texts, its absence says nothing.
        self._marks = any(
            node.marked
            for message in self._messages.values()
            for root in message.versions.values()
            for node in root.walk()
        )
        self._paths: set[str] = set()

    def merge(self) -> list[Schema]:
        schemas = []
        for name, message in self._messages.items():
            if name.endswith("Response") and f"{message.title}Request" in self._messages:
                continue
            if name.endswith("Request"):
                response = self._messages.get(f"{message.title}Response")
                schemas += self._together([message, *([response] if response else [])])
            else:
                schemas += self._together([message])
        _lower_headers(schemas, self._diagnostics)
        self._check_answers()
        return schemas

    def _together(self, messages: list[_Message]) -> list[Schema]:
        """Merge a message, or a request and its response, which have the same versions."""
        versions = sorted({v for each in messages for v in each.versions if v is not None})
        if not versions:
            versions = [0]
        elif any(None in each.versions for each in messages):
            lone = next(each for each in messages if None in each.versions)
            self._error("E605", f"{lone.name} appears without a version too", lone.versions[None])
            return []
        span = (versions[0], versions[-1])
        flexible_from = self._flexible_from(messages)
        schemas = []
        for message in messages:
            known = {0 if v is None else v: root for v, root in message.versions.items()}
            self._report_gaps(message, sorted(known), span)
            schema = Schema(
                path=message.position.path,
                kind=_kind(message.name, [each.name for each in messages]),
                name=message.name,
                key=None,
                versions=span,
                flexible_from=flexible_from,
                unstable=False,
                release="",
                file=_file(message),
                open_ended=None in message.versions,
            )
            if schema.kind == "request":
                schema.key = self._key(message)
            elif message.name.endswith("Response") and schema.kind == "data":
                self._diagnostics.add(
                    "W604",
                    f"{message.name} has no request in the text; it becomes a struct without API key",
                    message.position,
                    f"add a {message.title} Request",
                )
            schema.fields = self._fields(known, span, flexible_from, message.name)
            schemas.append(schema)
        return schemas

    def _report_gaps(self, message: _Message, known: list[int], span: Range) -> None:
        missing = sorted({*range(span[0], span[1] + 1)} - {*known})
        if missing:
            self._diagnostics.add(
                "W601",
                f"the text does not contain {message.name} {ir.version_ranges(missing)}",
                message.position,
                "a missing version gets the fields of the version below it, or else of the lowest "
                "version in the text",
            )

    def _key(self, message: _Message) -> int:
        title = message.title
        found = self._keys.get(title, set())
        if title in self._answers.keys:
            found = {self._answers.keys[title]}
        if len(found) == 1:
            return min(found)
        what = "does not contain the API key" if not found else "contains several API keys"
        numbers = f": {', '.join(map(str, sorted(found)))}" if found else ""
        self._diagnostics.add(
            "E603",
            f"the text {what} of {title}{numbers}",
            message.position,
            f"give it with --key {title}=NUMBER",
        )
        return 0

    def _flexible_from(self, messages: list[_Message]) -> int | None:
        """The first flexible version of messages that share their versions."""
        evidence: dict[int, list[tuple[bool, _Node]]] = {}
        for message in messages:
            for version, root in message.versions.items():
                known = self._flexible(root, message.header_flexible.get(version))
                if known is not None:
                    evidence.setdefault(version or 0, []).append((known, root))
        first = min((v for v, facts in evidence.items() if any(f for f, _ in facts)), default=None)
        if first is None:
            return None
        for version, facts in sorted(evidence.items()):
            for flexible, root in facts:
                if version >= first and not flexible:
                    self._error(
                        "E605",
                        f"version {version} is not flexible, but version {first} is",
                        root,
                        "each struct of a flexible version ends with TAG_BUFFER",
                    )
        return first

    def _flexible(self, root: _Node, by_header: bool | None) -> bool | None:
        """Whether a message-version is flexible. None if the text does not say it."""
        nodes = list(root.walk())
        if any(node.marked for node in nodes):
            for node in nodes:
                if node.fields is not None and not node.marked:
                    self._error(
                        "E607",
                        f"{node.name or 'the message'} does not end with TAG_BUFFER, but other structs of "
                        "this version do",
                        node,
                        "add TAG_BUFFER at the end of the line",
                    )
            return True
        if any(node.compact or node.tag is not None for node in nodes) or by_header:
            return True
        if self._marks or by_header is False or any(node.compact is False for node in nodes):
            return False
        return None

    def _fields(
        self, roots: Mapping[int, _Node], span: Range, flexible_from: int | None, path: str
    ) -> list[Field]:
        """Merge the fields of a struct. ``roots`` are its versions in the text, ``span`` all of its versions."""
        known = sorted(roots)
        order: list[str] = []
        forms: dict[str, dict[int, _Node]] = {}
        for version in known:
            names = []
            for node in roots[version].fields or []:
                name = _camel(node.name)
                names.append(name)
                forms.setdefault(name, {})[version] = node
            merged = _merge_order(order, names)
            if merged is None:
                self._error(
                    "E605",
                    f"{path}: the fields have another order in version {version}",
                    roots[version],
                )
                return []
            order = merged
        return [self._field(name, forms[name], known, span, flexible_from, path) for name in order]

    def _field(
        self,
        name: str,
        forms: dict[int, _Node],
        known: list[int],
        span: Range,
        flexible_from: int | None,
        path: str,
    ) -> Field:
        present = sorted(forms)
        node = forms[present[-1]]
        path = f"{path}.{node.name}"
        self._paths.add(path)
        begin, end = known.index(present[0]), known.index(present[-1])
        if known[begin : end + 1] != present:
            missing = min({*known[begin : end + 1]} - {*present})
            self._error("E605", f"{path} is missing in version {missing}, but not after it", node)
        versions = (
            span[0] if begin == 0 else present[0],
            span[1] if end == len(known) - 1 else known[end + 1] - 1,
        )
        for version in present[:-1]:
            self._same_type(path, forms[version], version, node, present[-1])
        result = Field(
            name=name,
            type=f"{'[' * (node.brackets - 1)}{node.type}{']' * (node.brackets - 1)}",
            array=node.brackets > 0,
            versions=versions,
            declared=versions,
            nullable=self._nullable(path, forms, present, versions),
            tag=node.tag,
            default=self._default(path, node),
            flexible=self._is_flexible(path, forms, flexible_from),
            about="",
            line=node.position.line,
            struct="",
            varint=node.varint,
        )
        if node.tag is not None and path not in self._answers.defaults:
            self._diagnostics.add(
                "W602",
                f"the text does not contain the default of the tagged field {path}",
                node.position,
                f"it is zero, empty or null; give another one with --default {path}=VALUE",
            )
        if node.fields is not None:
            inner = {version: forms[version] for version in present}
            result.fields = self._fields(inner, versions, flexible_from, path)
            if node.brackets > 1:
                self._error("E601", f"{path} is an array of arrays of structs", node)
        return result

    def _same_type(self, path: str, one: _Node, version: int, other: _Node, last: int) -> None:
        facts = [
            (n.type, n.fields is None, n.brackets, n.varint, n.tag, n.records) for n in (one, other)
        ]
        if facts[0] != facts[1]:
            what = "another tag" if facts[0][:4] == facts[1][:4] else "another type"
            self._error(
                "E605",
                f"{path} has {what} in version {version} than in version {last}",
                one,
                "rename the field in one of the versions",
            )

    def _nullable(
        self, path: str, forms: dict[int, _Node], present: list[int], versions: Range
    ) -> Range | None:
        null = [v for v in present if forms[v].nullable or path in self._answers.nullable]
        if not null:
            return None
        is_struct = forms[null[0]].fields is not None and not forms[null[0]].brackets
        plain = [v for v in present if v not in null]
        if not plain or (plain[-1] < null[0] and not is_struct):
            return (versions[0] if not plain else null[0], versions[1])
        if is_struct:
            # A presence byte precedes a nullable struct, so other bytes would result.
            self._error("E605", f"{path} is nullable in some of its versions only", forms[null[0]])
        else:
            self._diagnostics.add(
                "W605",
                f"{path} is nullable in {ir.version_ranges(null)} only; the definition allows null in all versions",
                forms[null[0]].position,
            )
        return versions

    def _default(self, path: str, node: _Node) -> str | None:
        if path in self._answers.defaults:
            return self._answers.defaults[path]
        nullable = node.nullable or path in self._answers.nullable
        is_struct = node.fields is not None and not node.brackets
        return "null" if nullable and (is_struct or node.records) else None

    def _is_flexible(self, path: str, forms: dict[int, _Node], flexible_from: int | None) -> bool:
        """Whether a field has compact lengths in flexible versions."""
        flexible = {
            version: node.compact
            for version, node in forms.items()
            if node.compact is not None and flexible_from is not None and version >= flexible_from
        }
        if len({*flexible.values()}) > 1:
            version = next(v for v in sorted(flexible) if not flexible[v])
            self._error("E605", f"{path} is compact in some flexible versions only", forms[version])
        return all(flexible.values())

    def _check_answers(self) -> None:
        """Raise SchemaError if an answer concerns no message or field."""
        titles = {each.title for each in self._messages.values() if each.name.endswith("Request")}
        for option, given, known in (
            ("--key", self._answers.keys, titles),
            ("--nullable", self._answers.nullable, self._paths),
            ("--default", self._answers.defaults, self._paths),
        ):
            for name in given:
                if name not in known:
                    what = "request" if option == "--key" else "field"
                    hint = did_you_mean(name, known) or f"the texts contain no such {what}"
                    path = next(iter(self._messages.values())).position.path
                    raise SchemaError(path, 0, f"{option} {name}: unknown {what} ({hint})")

    def _error(self, code: str, message: str, node: _Node, hint: str = "") -> None:
        self._diagnostics.add(code, message, node.position, hint)


def _merge_order(old: list[str], new: list[str]) -> list[str] | None:
    """Merge two lists and preserve both orders, or return None if they contradict each other."""
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


def _kind(name: str, pair: list[str]) -> str:
    if name in ("RequestHeader", "ResponseHeader"):
        return "header"
    if name.endswith("Request"):
        return "request"
    return "response" if len(pair) == 2 else "data"


def _file(message: _Message) -> str:
    if message.name in ("RequestHeader", "ResponseHeader"):
        return "headers"
    return snake_case(message.title)


def _lower_headers(schemas: list[Schema], diagnostics: Diagnostics) -> None:
    """Add the header version of requests that are not flexible, if the text contains only the flexible one."""
    classic = any(
        schema.kind == "request"
        and (schema.flexible_from is None or schema.flexible_from > schema.span[0])
        for schema in schemas
    )
    for schema in schemas:
        low, high = schema.span
        if schema.kind != "header" or schema.flexible_from != low or low == 0 or not classic:
            continue
        position = Position(schema.path, 1, 1)
        diagnostics.add(
            "W601",
            f"the text does not contain {schema.name} v{low - 1}, the header of versions that are not "
            f"flexible; it gets the fields of v{low}",
            position,
        )
        for item in schema.fields:
            if item.versions[0] == low and item.tag is None:
                item.versions = item.declared = (low - 1, item.versions[1])
                if item.nullable and item.nullable[0] == low:
                    item.nullable = (low - 1, item.nullable[1])
        schema.versions = (low - 1, high)
