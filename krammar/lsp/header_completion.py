"""What can be written in the first line of a definition."""

from __future__ import annotations

import re
from collections.abc import Iterator

from krammar.compiler.front.headers import NEWER
from krammar.compiler.front.syntax import StructNode
from krammar.compiler.ir import PRIMITIVES, ROUTINGS
from krammar.lsp.project import Analysis, SourceFile
from krammar.lsp.proposals import Kind, Proposal
from krammar.lsp.rows import HEADER, NAME
from krammar.lsp.words import MODIFIERS


def header_proposals(
    analysis: Analysis, file: SourceFile, index: int, prefix: str
) -> Iterator[Proposal]:
    if re.fullmatch(r"\w*", prefix):
        yield from _responses(file, index, prefix)
    elif match := HEADER.match(prefix):
        yield from _modifiers(analysis, file, match[1], match[2])
    elif match := re.fullmatch(rf"{NAME} (\w*)", prefix):
        yield Proposal("=>", Kind.Operator, len(match[1]), "a struct")
        for name, primitive in PRIMITIVES.items():
            if primitive.is_integer:
                yield Proposal(f"{name} (", Kind.Enum, len(match[1]), "an enum")


def _responses(file: SourceFile, index: int, typed: str) -> Iterator[Proposal]:
    """The response of the request directly before a line."""
    for row in reversed(file.text.rows[:index]):
        match = HEADER.match(row)
        if match is None:
            if row[:1] not in ("", " ", "/"):
                return
            continue
        if match[1].endswith("Request") and "key " in (match[2] or ""):
            name = match[1].removesuffix("Request") + "Response"
            if not any(each.startswith(f"{name} =>") for each in file.text.rows):
                yield Proposal(f"{name} =>", Kind.Struct, len(typed), f"the response of {match[1]}")
        return


def _modifiers(
    analysis: Analysis, file: SourceFile, name: str, written: str | None
) -> Iterator[Proposal]:
    if written is None:
        return
    *before, typed = written.split(", ")
    used = {re.sub(r" v?\d+\+?$", "", each) for each in before}
    response = f"{name.removesuffix('Request')}Response"
    typed_number = re.fullmatch(r"(key|max version|min version) (\d*)", typed)
    if typed_number:
        if typed_number[1] == "key":
            yield Proposal(
                str(_next_key(analysis)), Kind.Value, len(typed_number[2]), "the next key"
            )
        return
    top = next((int(each[12:]) for each in before if re.fullmatch(r"max version \d+", each)), None)
    if match := re.fullmatch(r"flexible (v?\d*\+?)", typed):
        for version in range(top if top is not None else 0, -1, -1):
            yield Proposal(f"v{version}+", Kind.Value, len(match[1]))
        return
    offered: dict[str, str] = {}
    if "key" in used:
        offered |= {"max version": "max version "} if "max version" not in used else {}
        offered |= {"flexible": f"flexible v{top or 0}+", "min version": "min version "}
        if not used & set(ROUTINGS):
            offered |= {each: each for each in ROUTINGS}
        if "push" not in used:
            offered["cluster action"] = "cluster action"
        kind = used & {"one way", "push"}
        offered |= {"header": "header "} if "header" not in used else {}
        if not kind:
            offered |= {"one way": "one way", "push": "push"}
            offered |= {"response header": "response header ", "response key": "response key "}
    elif "not top level" in used:
        offered = {
            "with version field": "with version field",
            "no encoding": "no encoding",
            "flexible": f"flexible v{top or 0}+",
            "min version": "min version ",
            "max version": "max version ",
        }
        if "with version field" in used:
            offered[NEWER] = NEWER
        if "no encoding" in used:
            # The versions are those of the message that contains the struct.
            offered = {}
    elif "." in name and not before:
        # A struct of a message is not encoded alone.
        offered["not top level"] = "not top level, no encoding"
    elif not before:
        offered["not top level"] = "not top level"
        request = f"key {_next_key(analysis)}, max version 0"
        offered = (
            {"key": request, **offered}
            if name.endswith("Request") and response != name
            else {**offered, "key": request}
        )
    for word, insert in offered.items():
        if word not in used:
            yield Proposal(
                insert.rstrip(" "), Kind.Keyword, len(typed), doc=MODIFIERS[word], insert=insert
            )


def _next_key(analysis: Analysis) -> int:
    keys = [
        int(word.text, 0)
        for node in analysis.definitions.values()
        if isinstance(node, StructNode)
        for kind, word in node.modifiers
        if kind == "key"
    ]
    return max(keys, default=-1) + 1
