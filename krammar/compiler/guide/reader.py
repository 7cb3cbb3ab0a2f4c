"""Finds messages in texts with markup, and facts about them: API keys, header versions and fields that can be null."""

from __future__ import annotations

import html
import re
from pathlib import Path

from krammar.compiler.guide.nodes import Answers, GuideMessage, Modifiers, shown
from krammar.compiler.guide.notation import MARKERS, RULE, Parser, Rule, are_fields, report_unknown
from krammar.util.diagnostics import Diagnostics, Position

# Lines of plain text: HTML, Markdown and what browsers copy, without markup.

# The guide on Kafka's site is HTML. Other angle brackets, such as `<tag 0>`, belong to the notation.
_HTML = re.compile(
    r"</?(?:a|abbr|article|b|br|button|code|details|div|em|figure|h\d|hr|i|li|main|nav|ol|p|pre|section|small"
    r"|span|strong|summary|table|tbody|thead|ul)(?:\s[^>]*)?/?>"
)
# Cells stay apart, because the tables of guides name tagged fields.
_CELL = re.compile(r"</t[dh]\s*>")
_CELLS = re.compile(r"</?t[dhr]\b[^>]*>")
# Browsers and editors copy the indent of a line as no-break spaces.
_SPACES = str.maketrans({"\xa0": " ", "\u202f": " ", "\u2007": " ", "\ufeff": None, "\u200b": None})
# Outside of code, Markdown escapes the characters of the notation that would format text.
_ESCAPED = re.compile(r"\\([_\[\](){}<>=?*|])")
_QUOTE = re.compile(r"^(?:> ?)+")


def plain_lines(text: str) -> list[str]:
    """Return the lines of a text without markup.

    Each is at the number of its line in the file, but possibly in another column. Tabs separate the cells of
    tables, and become spaces in lines of the notation.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    return [_plain(line) for line in lines]


def _plain(line: str) -> str:
    line = _CELLS.sub("", _CELL.sub("\t", _HTML.sub("", line)))
    line = html.unescape(line).translate(_SPACES)
    line = _QUOTE.sub("", _ESCAPED.sub(r"\1", line))
    return line.expandtabs(8) if "=>" in line else line


# Messages, and facts about them.

_TITLE = re.compile(
    r"\s*(?P<name>[A-Za-z]\w*)(?: (?P<kind>Request|Response|Header))?"
    r"(?: \(Version: ?(?P<version>\d{1,9})(?P<open>\+|, newer versions read as the newest)?\)"
    r"| v(?P<v>\d{1,9}))? =>(?P<words>.*)"
)
_KEYS = (
    re.compile(r"\b(?P<name>\w+) API \(Key: (?P<key>\d{1,9})(?P<more>(?:, [^(),]+)*)\)"),
    re.compile(r"\bAPI ?Key: *(?P<name>\w+)\s*=\s*(?P<key>\d{1,9})\b", re.I),
    re.compile(
        r"\b(?P<name>\w+) request\b[^.]*? api[ _]key (?:of|is|=)\s*(?P<key>\d{1,9})\b", re.I
    ),
)
_NULLABLE = re.compile(r"\W*(?P<name>\w+)\W*(?: field)? is nullable\b")
_HEADER_VERSION = re.compile(
    r"\W*(?P<kind>Request|Response) header version:\W*(?P<version>\d{1,9})"
)
# A row of the table of tagged fields in guides before Kafka 4.2: tag, name, description.
_TAG_ROW = re.compile(r"\W*(?P<tag>\d{1,9})\s*[\t|]\s*(?P<name>\w+)\s*[\t|]")

_Place = tuple[GuideMessage, int | None]


class GuideReader:
    """Collects the messages, keys and nullable fields of texts."""

    def __init__(self, answers: Answers, diagnostics: Diagnostics) -> None:
        self.messages: dict[str, GuideMessage] = {}
        self.keys: dict[str, set[int]] = {}
        # The modifiers of requests, by the name of the API, and those of pushes, with their keys, by their names.
        self.modifiers: dict[str, Modifiers] = {}
        self.pushes: dict[str, tuple[int, Modifiers]] = {}
        # Tagged fields that tables name: their first place and their versions, by message and field.
        self._tabled: dict[tuple[str, str], tuple[Position, int, list[int | None]]] = {}
        self._answers = answers
        self._diagnostics = diagnostics
        self._lines: list[str] = []
        self._path = Path()
        self._parser = Parser(self._path, answers.types, diagnostics)
        self._named: list[tuple[str, Position]] = []
        # Whether the lines since the last message contain the head of a table of tagged fields.
        self._tag_table = False

    def read(self, path: Path, text: str) -> None:
        """Read the messages of a text in HTML, in Markdown, or copied from a browser."""
        self._path, self._lines = path, plain_lines(text)
        self._parser = Parser(path, self._answers.types, self._diagnostics)
        self._diagnostics.add_source(path, "\n".join(self._lines))
        recent: list[_Place] = []
        number = 0
        while number < len(self._lines):
            line = self._lines[number]
            title = _TITLE.fullmatch(line.rstrip())
            if title:
                number, found = self._message(title, number)
                if found:
                    recent.append(found)
                continue
            self._facts(number, line, recent)
            number += 1
        self._named += self._parser.named

    def resolve(self) -> None:
        """Report unknown types, and tagged fields without a type."""
        report_unknown(self._named, self.messages, self._diagnostics)
        for (name, field), (position, tag, versions) in self._tabled.items():
            roots = self.messages[name].versions.values()
            if not any(node.name == field and node.tag == tag for r in roots for node in r.walk()):
                self._diagnostics.add(
                    "W607",
                    f"the text does not contain the type of the tagged field {field} of "
                    f"{shown(name, versions[0])}; the definition lacks the field",
                    position,
                    f"add `<tag {tag}> {field} => TYPE` to the struct, or import a guide from Kafka 4.2 on",
                )

    def _facts(self, number: int, line: str, recent: list[_Place]) -> None:
        for pattern in _KEYS:
            for match in pattern.finditer(line):
                name, key, found = match["name"], int(match["key"]), Modifiers()
                if more := match.groupdict().get("more"):
                    self._modifiers(found, more.split(", ")[1:], number, match)
                if found.push:
                    self.pushes[name] = (key, found)
                    continue
                self.keys.setdefault(name, set()).add(key)
                if more:
                    self.modifiers[name] = found
        if nullable := _NULLABLE.match(line):
            for message, _ in reversed(recent):
                if _make_nullable(message, nullable["name"]):
                    break
        if not recent:
            return
        message, version = recent[-1]
        # The header of ApiVersions' response has version 0 in all versions (KIP-511).
        header = _HEADER_VERSION.match(line)
        if (
            header
            and message.name.endswith(header["kind"])
            and message.name != "ApiVersionsResponse"
        ):
            flexible = int(header["version"]) >= (2 if header["kind"] == "Request" else 1)
            message.header_flexible[version] = flexible
        self._tag_table = self._tag_table or "Tagged field" in line
        row = _TAG_ROW.match(line)
        if row and self._tag_table:
            position = Position(self._path, number + 1, row.start("name") + 1, len(row["name"]))
            known = (message.name, row["name"])
            self._tabled.setdefault(known, (position, int(row["tag"]), []))[2].append(version)

    def _modifiers(
        self, found: Modifiers, words: list[str], number: int, match: re.Match[str]
    ) -> None:
        """Read the modifiers after the key of an API, as in definitions."""
        for word in words:
            hint = found.add(word)
            if hint is not None:
                at = Position(self._path, number + 1, match.start("more") + 1, len(match["more"]))
                self._diagnostics.add("E601", f"{word} is not a modifier of an API", at, hint)

    def _message(self, title: re.Match[str], number: int) -> tuple[int, _Place | None]:
        """Parse the message whose title is in line ``number``. Return the line after it, and what was read."""
        begin, self._tag_table = number, False
        number, block = self._block(number + 1)
        digits = title["version"] or title["v"]
        place = (begin, title.start("name"), len(title["name"]))
        position = self._parser.at(*place)
        words = title["words"]
        is_struct = block or words.strip() in ("{}", *MARKERS)
        if digits is None and not (is_struct and title["name"][0].isupper() and are_fields(words)):
            # Prose and code contain arrows too. Only a rule with rules below it looks like a message.
            if block:
                self._diagnostics.add(
                    "W603", "this rule is skipped: it does not describe a message", position
                )
            return number, None
        name = title["name"] + (title["kind"] or "")
        version = None if digits is None else int(digits)
        if version is not None and version > 0x7FFF:
            self._parser.error("E601", f"version {version} is higher than 32767", position)
            return number, None
        before = len(self._diagnostics.found)
        root = self._parser.message(place, (title.start("words"), words), block)
        message = self.messages.setdefault(name, GuideMessage(name))
        message.open_ended |= version is None or title["open"] == "+"
        message.reads_newer |= title["open"] not in (None, "+")
        same = message.versions.setdefault(version, root)
        if same.shape() != root.shape() and len(self._diagnostics.found) == before:
            self._parser.error(
                "E604",
                f"{shown(name, version)} differs from its text in line {same.position.line}",
                root.position,
                "remove one of the texts",
            )
        return number, (message, version)

    def _block(self, number: int) -> tuple[int, list[Rule]]:
        """The indented rules from line ``number`` on. Blank lines between them are allowed."""
        block: list[Rule] = []
        end = number
        while number < len(self._lines):
            line = self._lines[number]
            if line.strip():
                match = RULE.fullmatch(line.rstrip())
                # A rule that begins another message ends this one.
                title = _TITLE.fullmatch(line.rstrip())
                versioned = title and (title["version"] or title["v"] or title["kind"])
                if versioned or not line.startswith(" ") or "=>" not in line:
                    break
                if match:
                    block.append((number, match))
                else:
                    indent = len(line) - len(line.lstrip())
                    self._parser.error(
                        "E601",
                        "this line is not a field and its type",
                        self._parser.at(number, indent, len(line.strip())),
                    )
                end = number + 1
            number += 1
        return end, block


def _make_nullable(message: GuideMessage, name: str) -> bool:
    """Make the fields ``name`` of a message nullable. Return whether there were any."""
    found = [
        node for root in message.versions.values() for node in root.walk() if node.name == name
    ]
    for node in found:
        node.nullable = True
    return bool(found)
