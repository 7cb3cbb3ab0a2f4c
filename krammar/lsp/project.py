"""Reads and compiles the definition files around a document.

All definition files of a folder are compiled together. A file is read again if its time or size changed, and
parsed again if its text changed; the text of an open document is the editor's. The front end is fast enough to
resolve and check the whole folder after each change.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from lsprotocol import types as lsp

from krammar.compiler import ir
from krammar.compiler.front.parser import parse_file
from krammar.compiler.front.source import compile_files, definition_files
from krammar.compiler.front.syntax import EnumNode, StructNode, SyntaxFile
from krammar.lsp.symbols import Occurrence, Symbol, SymbolKind, occurrences
from krammar.lsp.text import SourceText
from krammar.util.diagnostics import Diagnostic, Diagnostics


class SourceFile:
    """A parsed definition file."""

    def __init__(self, path: Path, text: SourceText, data: bytes | None = None) -> None:
        """Parse ``data``; without it, the text, which then comes from an editor."""
        self.path = path
        self.text = text
        self.uri = path.as_uri()
        self.diagnostics = Diagnostics()
        if data is None:
            # An editor can send halves of surrogate pairs, which the parser reports as invalid UTF-8.
            data = text.text.encode("utf-8", "surrogatepass")
        self.syntax: SyntaxFile = parse_file(path, data, self.diagnostics)

    @cached_property
    def occurrences(self) -> list[Occurrence]:
        """The names that the file defines and uses, in the order of the text."""
        found = occurrences(self.syntax)
        return sorted(found, key=lambda each: (each.position.line, each.position.column))

    def at(self, offset: int) -> Occurrence | None:
        """Return the name at an offset, or None. The end of a name belongs to it."""
        row = self.text.row_at(offset) + 1
        for each in self.occurrences:
            if each.position.line == row:
                start, end = self.text.span(each.position)
                if start <= offset <= end:
                    return each
        return None


class Analysis:
    """The compiled files of a folder, at one moment."""

    def __init__(self, files: Sequence[SourceFile]) -> None:
        self.files = {file.path: file for file in files}

    @cached_property
    def _compiled(self) -> tuple[ir.Protocol, Diagnostics]:
        diagnostics = Diagnostics()
        for file in self.files.values():
            diagnostics.merge(file.diagnostics)
        syntax = [file.syntax for file in self.files.values()]
        folder = syntax[0].path.parent
        return compile_files("", syntax, folder, diagnostics), diagnostics

    @property
    def protocol(self) -> ir.Protocol:
        """The IR. Without errors it is complete."""
        return self._compiled[0]

    @cached_property
    def structs(self) -> dict[str, ir.Struct]:
        """The structs that could be resolved, without anonymous ones."""
        return {struct.name: struct for file in self.protocol.files for struct in file.structs}

    @cached_property
    def requests(self) -> dict[str, ir.Request]:
        """The requests by the names of their structs."""
        return {request.struct.name: request for request in self.protocol.requests}

    @cached_property
    def definitions(self) -> dict[str, StructNode | EnumNode]:
        """The syntax of all definitions by name."""
        return {
            definition.name.text: definition
            for file in self.files.values()
            for definition in file.syntax.definitions
        }

    def enum(self, name: str) -> EnumNode | None:
        """Return the enum with a name, or None."""
        found = self.definitions.get(name)
        return found if isinstance(found, EnumNode) else None

    def diagnostics(self) -> dict[Path, list[Diagnostic]]:
        """Return the diagnostics of each file, in the order of the text."""
        found: dict[Path, list[Diagnostic]] = {path: [] for path in self.files}
        for diagnostic in self._compiled[1].sorted():
            if diagnostic.position.path in found:
                found[diagnostic.position.path].append(diagnostic)
        return found

    def occurrences(self, target: Symbol) -> Iterator[tuple[SourceFile, Occurrence]]:
        """Yield every occurrence of a target in all files."""
        for file in self.files.values():
            for each in file.occurrences:
                if each.target == target:
                    yield file, each

    def declarations(self, target: Symbol) -> Iterator[tuple[SourceFile, Occurrence]]:
        """Yield the places that define a target. There are several if a name is defined twice."""
        for file, each in self.occurrences(target):
            if each.node is not None:
                yield file, each

    def field(self, path: Sequence[str]) -> tuple[ir.Struct, list[ir.Field]] | None:
        """Return the definition and the chain of fields of a path of names, or None if it does not resolve."""
        struct = outer = self.structs.get(path[0])
        chain: list[ir.Field] = []
        for name in path[1:]:
            member = (
                next((each for each in struct.fields if each.name == name), None)
                if struct
                else None
            )
            if member is None:
                return None
            chain.append(member)
            struct = ir.struct_of(member.type)
        return None if outer is None else (outer, chain)


def definition_target(name: str) -> Symbol:
    """Return the target of a struct or enum."""
    return Symbol(SymbolKind.DEFINITION, (name,))


@dataclass(slots=True)
class _OnDisk:
    """A file as it was read. ``signature`` changes if the file does."""

    signature: tuple[int, int, int]
    file: SourceFile


class Project:
    """The open documents, and all files that were read."""

    def __init__(
        self, encoding: lsp.PositionEncodingKind | str = lsp.PositionEncodingKind.Utf16
    ) -> None:
        self._encoding = encoding
        self._open: dict[Path, SourceFile] = {}
        self._read: dict[Path, _OnDisk] = {}
        self._analyses: dict[tuple[Path, str], Analysis] = {}

    def open(self, path: Path, text: str, uri: str = "") -> None:
        """Set the text of an open document. ``uri`` is the editor's spelling of the path."""
        file = self._open.get(path) or (self._read[path].file if path in self._read else None)
        if file is None or file.text.text != text:
            file = SourceFile(path, SourceText(text, self._encoding))
        file.uri = uri or file.uri
        self._open[path] = file

    def change(self, path: Path, changes: Sequence[lsp.TextDocumentContentChangeEvent]) -> bool:
        """Apply changes of the editor to the text of an open document, each to the result of the one before.

        Returns:
            Whether the document is open.
        """
        if path not in self._open:
            return False
        file = self._open[path]
        text = file.text
        for each in changes:
            if isinstance(each, lsp.TextDocumentContentChangePartial):
                text = SourceText(text.replaced(each.range, each.text), self._encoding)
            else:
                text = SourceText(each.text, self._encoding)
        self.open(path, text.text, file.uri)
        return True

    def close(self, path: Path) -> None:
        """Forget the editor's text of a document."""
        self._open.pop(path, None)

    @property
    def documents(self) -> list[Path]:
        """The open documents."""
        return list(self._open)

    def analysis(self, path: Path) -> Analysis:
        """Return the compiled files of the folder of a document."""
        files = [file for each in self._files(path) if (file := self._file(each)) is not None]
        key = path.parent, path.suffix
        known = self._analyses.get(key)
        # Identity is enough: a file whose text did not change is the same object.
        if known is None or list(map(id, known.files.values())) != list(map(id, files)):
            known = Analysis(files)
            self._analyses[key] = known
        return known

    def analysis_with(self, path: Path, texts: dict[Path, str]) -> Analysis:
        """Return the compiled files as they would be with other texts."""
        return Analysis(
            [
                SourceFile(each, SourceText(texts[each], self._encoding)) if each in texts else file
                for each, file in self.analysis(path).files.items()
            ]
        )

    def _files(self, path: Path) -> list[Path]:
        """The definition files of a document's folder, and the document itself."""
        try:
            with os.scandir(path.parent) as entries:
                visible = [
                    Path(entry.path)
                    for entry in entries
                    if not entry.name.startswith(".")
                    and Path(entry.name).suffix == path.suffix
                    and entry.is_file()
                ]
            beside = definition_files(sorted(visible))
        except OSError:
            beside = []
        siblings = [each for each in self._open if _belongs(each, path)]
        if path.suffix == ".krm" or path in beside:
            return sorted({*beside, *siblings, path})
        return [path]

    def _file(self, path: Path) -> SourceFile | None:
        if path in self._open:
            return self._open[path]
        known = self._read.get(path)
        try:
            status = path.stat()
            signature = status.st_mtime_ns, status.st_size, status.st_ino
            if known is not None and known.signature == signature:
                return known.file
            data = path.read_bytes()
        except OSError:
            self._read.pop(path, None)
            return None
        text = data.decode("utf-8", "replace")
        if known is not None and known.file.text.text == text:
            known.signature = signature
            return known.file
        file = SourceFile(path, SourceText(text, self._encoding), data)
        self._read[path] = _OnDisk(signature, file)
        return file


def _belongs(path: Path, other: Path) -> bool:
    return path.parent == other.parent and path.suffix == other.suffix == ".krm"
