"""Changes of texts: quick fixes, formatting, and renaming."""

from __future__ import annotations

import difflib
import keyword
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from lsprotocol import types as lsp

from krammar.compiler.formatter import format_source
from krammar.compiler.front.syntax import StructNode
from krammar.lsp.project import Analysis, Project, SourceFile, definition_target
from krammar.lsp.symbols import Occurrence, Symbol, SymbolKind
from krammar.util.diagnostics import STYLE, Diagnostic

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_PAIR = ("Request", "Response")


class RenameError(Exception):
    """A name cannot be given. The message is for the user."""


def as_lsp(file: SourceFile, diagnostic: Diagnostic) -> lsp.Diagnostic:
    """Convert a diagnostic of the compiler."""
    message = diagnostic.message
    if diagnostic.hint:
        message += f"\nhint: {diagnostic.hint}"
    warning = diagnostic.is_style
    return lsp.Diagnostic(
        file.text.at(diagnostic.position),
        message,
        severity=lsp.DiagnosticSeverity.Warning if warning else lsp.DiagnosticSeverity.Error,
        code=diagnostic.code,
        source="krammar",
    )


def quick_fixes(
    file: SourceFile, diagnostics: Sequence[Diagnostic], area: lsp.Range
) -> Iterator[lsp.CodeAction]:
    """Yield the corrections of diagnostics in a range."""
    first, last = (file.text.offset(each) for each in (area.start, area.end))
    style = False
    for diagnostic in diagnostics:
        start, end = file.text.span(diagnostic.position)
        if start > last or end < first:
            continue
        fix = diagnostic.fix
        if fix is not None and fix.position.path == file.path:
            old = file.text.text[slice(*file.text.span(fix.position))]
            edit = lsp.TextEdit(file.text.at(fix.position), fix.text)
            yield lsp.CodeAction(
                f'replace "{old}" with "{fix.text}"' if old.strip() else "write one space",
                kind=lsp.CodeActionKind.QuickFix,
                diagnostics=[as_lsp(file, diagnostic)],
                is_preferred=True,
                edit=lsp.WorkspaceEdit(changes={file.uri: [edit]}),
            )
        style |= diagnostic.code.startswith(STYLE)
    edits = formatting(file) if style else []
    if edits:
        yield lsp.CodeAction(
            "format the file",
            kind=lsp.CodeActionKind.QuickFix,
            edit=lsp.WorkspaceEdit(changes={file.uri: edits}),
        )


def formatting(file: SourceFile) -> list[lsp.TextEdit]:
    """Return the edits of ``krammar fmt``. A file with errors of syntax is not changed."""
    if file.diagnostics.has_errors:
        return []
    before = file.text.text.splitlines(keepends=True)
    after = format_source(file.text.text).splitlines(keepends=True)
    offsets = [0]
    for line in before:
        offsets.append(offsets[-1] + len(line))
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    return [
        lsp.TextEdit(file.text.range(offsets[start], offsets[end]), "".join(after[first:last]))
        for tag, start, end, first, last in matcher.get_opcodes()
        if tag != "equal"
    ]


def renameable(file: SourceFile, offset: int) -> Occurrence | None:
    """Return the name at an offset, if it can be renamed there."""
    found = file.at(offset)
    if found is None or (found.target.kind is SymbolKind.MEMBER and found.node is None):
        return None  # the number of a member, used as a default
    return found


def rename_edit(project: Project, file: SourceFile, offset: int, name: str) -> lsp.WorkspaceEdit:
    """Return the edits that rename the name at an offset, wherever it is used.

    A request and its response are renamed together.

    Raises:
        RenameError: there is no name at the offset, or the new name would cause an error.
    """
    found = renameable(file, offset)
    if found is None:
        raise RenameError("there is no name to rename here")
    analysis = project.analysis(file.path)
    if not next(analysis.declarations(found.target), None):
        raise RenameError(f'"{found.target.path[-1]}" is not defined in this folder')
    owner, dot, _ = found.target.path[0].rpartition(".")
    if owner and found.target.kind is SymbolKind.DEFINITION:
        # A struct of a message, which can be named without the message.
        _check_name(found.target, name.removeprefix(owner + dot))
        name = owner + dot + name.removeprefix(owner + dot)
    else:
        _check_name(found.target, name)
    changes: dict[Path, list[tuple[int, int, str]]] = {}
    for target, new in _renamed(analysis, found.target, name):
        other = analysis.definitions.get(new) if target.kind is SymbolKind.DEFINITION else None
        if other is not None and new != target.path[0]:
            at = other.name.position
            raise RenameError(f'"{new}" is already defined at {at.path.name}:{at.line}')
        for where, each in analysis.occurrences(target):
            if target.kind is not SymbolKind.MEMBER or each.node is not None:
                start, end = where.text.span(each.position)
                changes.setdefault(where.path, []).append((start, end, new))
    _check_result(project, file.path, analysis, changes)
    return lsp.WorkspaceEdit(
        changes={
            analysis.files[path].uri: [
                lsp.TextEdit(analysis.files[path].text.range(start, end), new)
                for start, end, new in edits
            ]
            for path, edits in changes.items()
        }
    )


def _check_name(target: Symbol, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise RenameError(
            f'"{name}" is not a name: use letters, digits and `_`, and begin with a letter'
        )
    if target.kind is not SymbolKind.DEFINITION:
        return
    if not name[0].isupper() or keyword.iskeyword(name):
        raise RenameError(
            f'"{name}" cannot be the name of a definition: begin it with a capital letter, and avoid '
            "Python's keywords"
        )


def _renamed(analysis: Analysis, target: Symbol, name: str) -> Iterator[tuple[Symbol, str]]:
    """The target with its new name, its structs, and the response of a request, or the reverse, with its structs."""
    yield target, name
    old = target.path[0]
    if target.kind is not SymbolKind.DEFINITION:
        return
    yield from _structs(analysis, old, name)
    for own, other in (_PAIR, _PAIR[::-1]):
        if old.endswith(own):
            partner = old.removesuffix(own) + other
            if not isinstance(analysis.definitions.get(partner), StructNode):
                return
            if not _is_message(analysis, old):
                return
            if not name.endswith(own):
                raise RenameError(
                    f'"{name}" must end with "{own}", because {old} and {partner} are a request and its '
                    "response"
                )
            yield definition_target(partner), name.removesuffix(own) + other
            yield from _structs(analysis, partner, name.removesuffix(own) + other)


def _structs(analysis: Analysis, message: str, name: str) -> Iterator[tuple[Symbol, str]]:
    """The structs of a message, with their names after it is renamed."""
    for each in analysis.definitions:
        if each.startswith(f"{message}."):
            yield definition_target(each), f"{name}{each.removeprefix(message)}"


def _is_message(analysis: Analysis, name: str) -> bool:
    """Whether a struct is a request, or the response of one."""
    request = analysis.definitions.get(
        name.removesuffix("Response").removesuffix("Request") + "Request"
    )
    return isinstance(request, StructNode) and any(kind == "key" for kind, _ in request.modifiers)


def _check_result(
    project: Project,
    path: Path,
    analysis: Analysis,
    changes: dict[Path, list[tuple[int, int, str]]],
) -> None:
    """Compile the renamed texts, and refuse what would cause an error."""
    texts = {}
    for each, edits in changes.items():
        text = analysis.files[each].text.text
        for start, end, new in sorted(edits, reverse=True):
            text = text[:start] + new + text[end:]
        texts[each] = text

    def errors(of: Analysis) -> set[tuple[str, Path, int]]:
        return {
            (each.code, each.position.path, each.position.line)
            for found in of.diagnostics().values()
            for each in found
            if not each.is_style
        }

    before = errors(analysis)
    after = project.analysis_with(path, texts)
    for found in after.diagnostics().values():
        for problem in found:
            at = problem.position
            if not problem.is_style and (problem.code, at.path, at.line) not in before:
                raise RenameError(f"{problem.message} ({problem.code}, {at.path.name}:{at.line})")
