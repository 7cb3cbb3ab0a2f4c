"""Declares the definitions of a folder by name, and builds the IR of enums.

It reports E201 to E208, E212, E402, E403, E503 and E509.
"""

from __future__ import annotations

import difflib
import keyword
from collections.abc import Iterator, Sequence

from krammar.compiler import ir, names
from krammar.compiler.front import type_hints
from krammar.compiler.front.headers import Header, read_header
from krammar.compiler.front.reporter import Reporter
from krammar.compiler.front.syntax import EnumNode, StructNode, SyntaxFile, Word
from krammar.util.diagnostics import Position, meant

# Enums. They refer to nothing, so their IR is built at once.


def build_enum(node: EnumNode, report: Reporter) -> ir.Enum:
    type_ = ir.PRIMITIVES.get(node.type.text)
    if type_ is None or not type_.is_integer:
        integers = [p.name for p in ir.PRIMITIVES.values() if p.is_integer]
        text = node.type.text
        right = type_hints.spelled(text)
        near = right if right in integers else type_hints.similar_type(text, integers)
        hint = type_hints.explain(text) or meant(near) or "use one of " + ", ".join(integers)
        message = f'"{text}" cannot be the type of an enum'
        report.error("E403", message, node.type, hint, near or None)
        type_ = ir.PRIMITIVES["int32"]
    values: dict[int, str] = {}
    members: dict[str, ir.EnumMember] = {}
    low, high = type_.bounds
    attributes: dict[str, str] = {}
    for member in node.members:
        value = int(member.value.text, 0)
        name = member.name.text
        if value in values:
            report.error("E202", f'"{values[value]}" already has the value {value}', member.value)
        elif name in members:
            report.error("E202", f'"{name}" is already a member of {node.name.text}', member.name)
        elif not low <= value <= high:
            report.error(
                "E402", f"{value} is outside of {type_.name} ({low} to {high})", member.value
            )
        elif node.camelcase and names.constant_name(name) in attributes:
            other = attributes[names.constant_name(name)]
            report.error(
                "E202",
                f'"{name}" and "{other}" would both be {names.constant_name(name)} in Python',
                member.name,
            )
        else:
            attributes[names.constant_name(name)] = name
            values[value] = name
            remarks = tuple(word.text for word in member.remarks)
            members[name] = ir.EnumMember(value, name, remarks, member.doc, member.name.position)
    for member in node.members:
        for word in member.remarks:
            if word.text in members:
                report.error("E202", f'"{word.text}" is already a member of {node.name.text}', word)
    return ir.Enum(
        node.name.text,
        type_,
        node.camelcase,
        tuple(members.values()),
        node.doc,
        node.name.position,
    )


# Declarations.


class Declarations:
    """The headers and enums of the files of a folder, by name.

    Attributes:
        by_file: the same, in the order of each file.
        class_names: where each Python class of the package is defined.
        unread: names of definitions that the parser could not read.
    """

    def __init__(self, files: Sequence[SyntaxFile], report: Reporter) -> None:
        self.report = report
        self.headers: dict[str, Header] = {}
        self.enums: dict[str, ir.Enum] = {}
        self.class_names: dict[str, Position] = {}
        self.unread = {name for file in files for name in file.unread}
        # The name and position of every definition, declared or not.
        self._everywhere = {
            definition.name.text: definition.name.position
            for file in files
            for definition in file.definitions
        }
        self.by_file = [list(self._declare(file)) for file in files]
        self._check_api_key_name()
        self._check_keys()

    def _declare(self, file: SyntaxFile) -> Iterator[Header | ir.Enum]:
        """Register the definitions of a file by name, and pair responses with requests."""
        before: Header | None = None
        for node in file.definitions:
            if not self._take_name(node.name):
                before = None
                continue
            if isinstance(node, EnumNode):
                before = None
                enum = build_enum(node, self.report)
                self.enums[node.name.text] = enum
                yield enum
                continue
            header = read_header(node, self.report)
            self._check_owner(header, file)
            self._pair(header, before)
            self.headers[node.name.text] = header
            before = header
            yield header

    def _take_name(self, word: Word) -> bool:
        other = self.class_names.get(word.text)
        if other is not None:
            where = f"{other.path.name}:{other.line}"
            self.report.diagnostics.add(
                "E201", f'"{word.text}" is already defined at {where}', word.position, "rename one"
            )
            return False
        last = word.text.rpartition(".")[2]
        if not (word.text[0].isupper() and last[0].isupper()) or keyword.iskeyword(last):
            self.report.error(
                "E208",
                f'"{word.text}" cannot be the name of a definition',
                word,
                "it becomes a Python class: begin it with a capital letter, and avoid Python's keywords",
            )
        self.class_names[word.text] = word.position
        return True

    def _check_owner(self, header: Header, file: SyntaxFile) -> None:
        """Check the definition of a message's struct, such as ``FetchRequest.Replica``."""
        owner, _, short = header.node.name.text.rpartition(".")
        if not owner:
            return
        if not any(isinstance(d, StructNode) and d.name.text == owner for d in file.definitions):
            self.report.error(
                "E212",
                f'this file does not define "{owner}", to which "{short}" would belong',
                header.node.name,
                "define both in one file",
            )
        elif not header.plain or header.encoding:
            self.report.error(
                "E502",
                f'"{short}" belongs to {owner}, so it cannot be encoded alone',
                header.node.name,
                "begin its modifiers with `not top level, no encoding`",
            )

    def _pair(self, header: Header, before: Header | None) -> None:
        """Give a response the versions and flexibility of the request directly before it."""
        node = header.node
        if node.modifiers or not node.name.text.endswith("Response"):
            return
        wanted = node.name.text.removesuffix("Response") + "Request"
        if before is not None and before.node.name.text == wanted:
            if before.one_way:
                self.report.error(
                    "E503",
                    f'"{wanted}" is `one way`, so it has no response',
                    node.name,
                    "remove `one way`, or add `not top level` here if it is not the response",
                )
            elif before.key is not None:
                header.request = before
                header.min_version, header.max_version = before.min_version, before.max_version
                header.flexible_from = before.flexible_from
            return
        if wanted in self.unread:
            return
        if wanted in self._everywhere:
            place = self._everywhere[wanted]
            self.report.error(
                "E503",
                f'"{node.name.text}" does not directly follow "{wanted}"',
                node.name,
                f"move it directly after {wanted} ({place.path.name}:{place.line})",
            )
        else:
            names_of_requests = (n for n in self._everywhere if not n.endswith("Response"))
            hint = "add `not top level` if it is not a response"
            if before is not None and before.key is not None:
                hint = f'rename "{before.node.name.text}" to "{wanted}" if it is the request'
            near = self.report.most_similar(wanted, names_of_requests)
            self.report.error(
                "E503",
                f'the response "{node.name.text}" has no request "{wanted}"',
                node.name,
                meant(near) or hint,
                f"{near.removesuffix('Request')}Response" if near else None,
            )

    def check_requests(self) -> None:
        """Check the names of requests, and that each one has a response."""
        answered = {id(header.request) for header in self.headers.values()}
        free = [
            name
            for name, header in self.headers.items()
            if not header.node.modifiers and header.request is None
        ]
        for header in self.headers.values():
            name = header.node.name
            if header.push and name.text.endswith(("Request", "Response")):
                self.report.error(
                    "E509",
                    f'"{name.text}" is a push, but its name is that of a request or a response',
                    name,
                    "rename it, such as to `Deliver`, or remove `push`",
                )
            if header.key is None or header.push or id(header) in answered:
                continue
            wanted = name.text.removesuffix("Request") + "Response"
            if not name.text.endswith("Request"):
                self.report.error(
                    "E509",
                    f'"{name.text}" has a key, but its name does not end with "Request"',
                    name,
                    f'rename it to "{_request_name(name.text)}", or replace its key by `not top level`',
                    _request_name(name.text),
                )
            elif wanted in self.unread:
                continue
            elif wanted in self.headers:
                self.report.error(
                    "E503",
                    f'"{wanted}" has modifiers, so it is not the response of "{name.text}"',
                    self.headers[wanted].node.name,
                    f"remove them: `{wanted} =>`",
                )
            elif near := self.report.nearly(wanted, free):
                self.report.error(
                    "E503",
                    f'the name "{near[0]}" is similar to the missing response of "{name.text}"',
                    self.headers[near[0]].node.name,
                    f'did you mean "{wanted}"? If it is not a response, add `not top level`',
                    wanted,
                )
            elif not header.one_way:
                self.report.error(
                    "W501",
                    f'"{name.text}" has no response',
                    name,
                    f"define `{wanted} =>` directly after it, or write `one way`",
                )

    def _check_keys(self) -> None:
        # The client sends requests, and the server responses and pushes, so their keys can be equal.
        keys: dict[tuple[bool, int], Header] = {}
        constants: dict[str, Word] = {}
        for header in self.headers.values():
            if header.key is None:
                continue
            name = header.node.name
            constant = names.constant_name(name.text.removesuffix("Request") or name.text)
            same = name if header.push else constants.setdefault(constant, name)
            if same is not name:
                self.report.error(
                    "E202",
                    f'"{name.text}" and "{same.text}" (line {same.position.line}) would both be '
                    f"ApiKey.{constant} in Python",
                    name,
                    "rename one of the requests",
                )
            other = keys.setdefault((header.push, header.key), header)
            if other is not header:
                where = other.node.name
                self.report.error(
                    "E203",
                    f'"{where.text}" ({where.position.path.name}:{where.position.line}) already has key '
                    f"{header.key}",
                    next(word for kind, word in header.node.modifiers if kind == "key"),
                    "give each request another key",
                )

    def _check_api_key_name(self) -> None:
        taken = self.class_names.get("ApiKey")
        if taken is not None and any(h.key is not None for h in self.headers.values()):
            self.report.diagnostics.add(
                "E206",
                'the generated package already has an enum "ApiKey" with the keys of requests',
                taken,
                "rename it",
            )


def _request_name(name: str) -> str:
    """Suggest a name for a request: ``PingRequest`` for ``Ping`` and ``PingReqest``."""
    ends = [name[-length:] for length in range(5, min(9, len(name)))]
    near = difflib.get_close_matches("Request", ends, n=1, cutoff=0.8)
    return name.removesuffix(near[0] if near else "") + "Request"
