"""The notation of one message-version: its lines in, a tree of nodes out.

Kafka has changed its notation several times:

- up to 4.1, ``TAG_BUFFER`` or ``_tagged_fields`` ends each struct of a flexible version;
- in 4.2, tagged fields have types: ``[nodes]<tag: 0>``;
- from 4.3 on, braces enclose the fields of a struct. ``(topics)`` is a compact array and ``[topics]`` a classic
  one. A question mark says that an array or a struct can be null. Tagged arrays have no brackets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from krammar.compiler.front import type_hints
from krammar.compiler.front.types import LENGTHS
from krammar.compiler.guide.nodes import GuideNode, camel
from krammar.util.diagnostics import Diagnostics, Position, did_you_mean, meant

Rule = tuple[int, "re.Match[str]"]
"""A line of the notation: its index in the file, and the match of ``RULE``."""

RULE = re.compile(
    r"(?P<indent>\s*)(?P<before><tag \d{1,9}> )?(?P<label>\S+(?: \d+>)?) =>(?P<body>.*)"
)
MARKERS = frozenset({"TAG_BUFFER", "_tagged_fields"})
SCALARS = {
    "BOOL": "bool",
    "BOOLEAN": "bool",
    "FLOAT32": "float32",
    "FLOAT64": "float64",
    "INT8": "int8",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "UINT8": "uint8",
    "UINT16": "uint16",
    "UINT32": "uint32",
    "UINT64": "uint64",
    "UUID": "uuid",
    "UVARINT": "uvarint",
    "UVARLONG": "uvarlong",
    "VARINT": "varint",
    "VARLONG": "varlong",
}

_WORD = re.compile(
    r"(?:(?P<null>nullable(?:-bool)?|classic(?:-nullable(?:-bool)?)?|plain)\((?P<struct>\w+)\)"
    r"|(?P<prefix>(?:(?:classic|nullable|u?varint|int16|int32)-?)+|\?)?(?P<open>\[+|\(+)"
    r"(?:(?P<element>nullable(?:-bool)?)\()?(?P<array>\w+)(?(element)\))(?P<close>\]+|\)+)"
    r"|(?P<plain>\w+))(?:<tag: (?P<tag>\d{1,9})>)?"
)
_WORDS = re.compile(r"\S+(?: \d+>|<tag: \d+>)?")
_BRACES = re.compile(r"\s*(?P<null>\?)?\{(?P<words>.*)\}\s*")
# As in definitions.
_MAX_DEPTH = 16
_TEXT = re.compile(
    r"(?P<form>COMPACT_|U?VARINT_|INT16_|INT32_)?(?P<null>NULLABLE_)?(?P<kind>STRING|BYTES|RECORDS)"
)
# An array in an array, in guides before Kafka 2.
_ARRAY = re.compile(r"ARRAY\((\S+)\)")
_SIZED = re.compile(r"BYTES\[(?P<field>\w+) - (?P<minus>\d{1,9})\]")


def are_fields(words: str) -> bool:
    """Whether the words after the arrow of a title could all be fields."""
    braces = _BRACES.fullmatch(words)
    each = (braces["words"] if braces else words).split()
    return all(_WORD.fullmatch(word) for word in each if word not in MARKERS)


class Parser:
    """Parses message-versions of one file. Problems are in ``diagnostics``.

    ``named`` collects the types that are no words of the notation, with their places.
    """

    def __init__(self, path: Path, types: Mapping[str, str], diagnostics: Diagnostics) -> None:
        self.named: list[tuple[str, Position]] = []
        self._path = path
        self._types = types
        self._diagnostics = diagnostics
        # Whether braces enclose the fields of the current message.
        self._braces = False

    def message(
        self, place: tuple[int, int, int], words: tuple[int, str], block: list[Rule]
    ) -> GuideNode:
        """Parse a message.

        Args:
            place: the line, column and length of its name; the first line and column are 0.
            words: the column of its fields, and their text.
            block: the rules below it.
        """
        root = GuideNode("", self.at(*place))
        self._braces = _BRACES.fullmatch(words[1]) is not None
        self._struct(root, (place[0], words[0]), words[1], block)
        return root

    def at(self, number: int, column: int, length: int) -> Position:
        """Return the position of some characters of the file."""
        return Position(self._path, number + 1, column + 1, max(length, 1))

    def error(self, code: str, message: str, at: Position, hint: str = "") -> None:
        """Report a problem."""
        self._diagnostics.add(code, message, at, hint)

    def _struct(
        self, node: GuideNode, place: tuple[int, int], words: str, block: list[Rule], depth: int = 1
    ) -> None:
        """Parse the fields of a struct from its words, and from the rules below it."""
        node.fields = []
        if depth > _MAX_DEPTH:
            self.error(
                "E601", f"structs are nested more than {_MAX_DEPTH} levels deep", node.position
            )
            return
        if braces := _BRACES.fullmatch(words):
            place = (place[0], place[1] + braces.start("words"))
            words = braces["words"]
            self._null_struct(node, braces["null"] is not None)
        expected = self._listed(node, place, words)
        indent = min((len(match["indent"]) for _, match in block), default=0)
        starts = [i for i, (_, match) in enumerate(block) if len(match["indent"]) == indent]
        if starts and starts[0] != 0:
            number, match = block[0]
            self.error(
                "E601",
                "this line is indented more than the first line of its struct",
                self.at(number, match.start("label"), len(match["label"])),
            )
        for start, end in pairwise([*starts, len(block)]):
            number, match = block[start]
            self._rule(node, expected, number, match, block[start + 1 : end], depth)
        for child in expected.values():
            if child.fields is None and not child.type:
                self.error(
                    "E602",
                    f"the field {child.name} has no type",
                    child.position,
                    f"add a line such as `{child.name} => INT32` below",
                )

    def _null_struct(self, node: GuideNode, nullable: bool) -> None:
        if nullable and (node.brackets or not node.name):
            what = f"elements of {node.name}" if node.name else "message"
            self.error("E601", f"the {what} cannot be null", node.position, "remove the `?`")
        elif nullable:
            node.nullable = True

    def _listed(self, node: GuideNode, place: tuple[int, int], words: str) -> dict[str, GuideNode]:
        """The fields in the line of a struct, by name. Adds them to it."""
        expected: dict[str, GuideNode] = {}
        for match in _WORDS.finditer(words):
            word, at = match[0], self.at(place[0], place[1] + match.start(), len(match[0]))
            if word in MARKERS:
                node.marked = True
                continue
            child = self._word(word, at)
            if child is None:
                continue
            if child.name in expected:
                self.error("E602", f"the field {child.name} appears twice", at)
            expected[child.name] = child
            assert node.fields is not None
            node.fields.append(child)
        return expected

    def _rule(
        self,
        node: GuideNode,
        expected: dict[str, GuideNode],
        number: int,
        match: re.Match[str],
        below: list[Rule],
        depth: int,
    ) -> None:
        """Parse the line of a field, and the lines below it."""
        at = self.at(number, match.start("label"), len(match["label"]))
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
            self.error("E602", f"{child.name} is not a field of the struct above", at, hint)
            return
        elif known.fields is not None or known.type:
            self.error("E602", f"the field {child.name} has two lines", at)
            return
        known.tag = known.tag if known.tag is not None else child.tag
        known.maybe_array = self._braces and known.tag is not None and not known.brackets
        body = match["body"].strip()
        if below or body in MARKERS or _BRACES.fullmatch(body):
            self._struct(known, (number, match.start("body")), match["body"], below, depth + 1)
        elif body and not self._type(known, body):
            self.named.append((body, self.at(number, match.start("body") + 1, len(body))))
            known.type = body

    def _word(self, word: str, at: Position) -> GuideNode | None:
        match = _WORD.fullmatch(word)
        pairs = str.maketrans("[(", "])")
        if not match or (match["open"] or "").translate(pairs) != (match["close"] or ""):
            self.error(
                "E601",
                f"{word} is not a field: needs a name, or an array such as [name]",
                at,
                "a tagged field is `<tag 0> name => TYPE` on a line of its own",
            )
            return None
        opened = match["open"] or ""
        marks = (match["prefix"] or match["null"] or "").split("-")
        classic = "classic" in marks
        return GuideNode(
            match["struct"] or match["array"] or match["plain"],
            at,
            brackets=len(opened),
            length=next((mark for mark in marks if mark in LENGTHS), ""),
            nullable="nullable" in marks or "?" in marks,
            presence_bool="bool" in marks or match["element"] == "nullable-bool",
            null_elements=match["element"] is not None,
            plain="plain" in marks,
            classic=classic,
            tag=None if match["tag"] is None else int(match["tag"]),
            # Without braces, square brackets enclose compact arrays too.
            compact=False if classic else opened[0] == "(" if opened and self._braces else None,
        )

    def _type(self, node: GuideNode, word: str) -> bool:
        """Set the type of a field. Return False if the type is unknown."""
        while inner := _ARRAY.fullmatch(word):
            node.brackets += 1
            word = inner[1]
        if word in self._types:
            node.type = self._types[word]
        elif sized := _SIZED.fullmatch(word):
            node.type = f"length-field-minus => {camel(sized['field'])} - {sized['minus']}"
        elif text := _TEXT.fullmatch(word.upper()):
            self._set_text(node, text)
        else:
            node.type = SCALARS.get(word.upper(), "")
        return bool(node.type)

    def _set_text(self, node: GuideNode, text: re.Match[str]) -> None:
        node.records = text["kind"] == "RECORDS"
        node.type = "bytes" if node.records else text["kind"].lower()
        if text["form"] == "VARINT_":
            node.type = f"varint-{node.type}"
            return
        if text["form"] not in (None, "COMPACT_"):
            node.type = f"{text['form'].rstrip('_').lower()}-{node.type}"
            node.nullable = node.nullable or bool(text["null"])
            return
        compact = text["form"] is not None
        if node.compact not in (None, compact):
            forms = ("compact", "classic") if node.compact else ("classic", "compact")
            self.error(
                "E601",
                f"the array {node.name} is {forms[0]}, but its elements are {forms[1]}",
                node.position,
                "a compact array is (name), and a classic one [name]",
            )
        node.compact = compact
        # Elements of arrays can never be null in Kafka. Records always can in guides before Kafka 4.3.
        if node.brackets:
            node.null_elements = node.null_elements or bool(text["null"])
        else:
            always = node.records and not self._braces
            node.nullable = node.nullable or bool(text["null"]) or always


def report_unknown(
    named: Sequence[tuple[str, Position]], known: Mapping[str, object], diagnostics: Diagnostics
) -> None:
    """Report types that no text defines. The name of a struct in the texts is a type."""
    words = [*SCALARS, "STRING", "BYTES", "RECORDS"]
    for word, at in named:
        if word not in known:
            near = type_hints.similar_type(word.upper(), words)
            hint = type_hints.explain(word) or meant(near) or "no type has this name"
            hint += "" if near else f"; give it with --type {word}=TYPE"
            diagnostics.add("E606", f"unknown type {word}", at, hint)
