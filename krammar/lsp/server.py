"""The server: connects the features to an editor with pygls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcInvalidParams

from krammar.compiler.layout_table import LayoutTable, layout_table
from krammar.lsp.completion import TRIGGERS, complete
from krammar.lsp.documents import DefinitionServer, path_of
from krammar.lsp.editing import RenameError, formatting, quick_fixes, rename_edit, renameable
from krammar.lsp.layouts import message_page, versions_text
from krammar.lsp.project import Analysis, Project, SourceFile
from krammar.lsp.showing import (
    LEGEND,
    SHOW_BYTES,
    foldings,
    hints,
    hover,
    lenses,
    outline,
    semantic_tokens,
    workspace_symbols,
)


def create_server() -> DefinitionServer:
    """Create a server with all features."""
    server = DefinitionServer()
    _synchronisation(server)
    _reading(server)
    _structure(server)
    _changing(server)
    _bytes(server)
    return server


def _synchronisation(server: DefinitionServer) -> None:
    @server.feature(lsp.INITIALIZE)
    def initialize(ls: DefinitionServer, params: lsp.InitializeParams) -> None:
        ls.project = Project(ls.workspace.position_encoding or lsp.PositionEncodingKind.Utf16)

    @server.feature(lsp.INITIALIZED)
    async def initialized(ls: DefinitionServer, params: lsp.InitializedParams) -> None:
        watched = ls.client_capabilities.workspace
        ability = watched.did_change_watched_files if watched else None
        if ability is not None and ability.dynamic_registration:
            options = lsp.DidChangeWatchedFilesRegistrationOptions(
                [lsp.FileSystemWatcher("**/*.krm")]
            )
            registration = lsp.Registration(
                "krammar-files", lsp.WORKSPACE_DID_CHANGE_WATCHED_FILES, options
            )
            await ls.client_register_capability_async(lsp.RegistrationParams([registration]))

    @server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    def did_open(ls: DefinitionServer, params: lsp.DidOpenTextDocumentParams) -> None:
        document = params.text_document
        ls.project.open(path_of(document.uri), document.text, document.uri)
        ls.change(path_of(document.uri))

    @server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    def did_change(ls: DefinitionServer, params: lsp.DidChangeTextDocumentParams) -> None:
        path = path_of(params.text_document.uri)
        if ls.project.change(path, params.content_changes):
            ls.change(path)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    def did_close(ls: DefinitionServer, params: lsp.DidCloseTextDocumentParams) -> None:
        path = path_of(params.text_document.uri)
        ls.project.close(path)
        ls.change(path)

    @server.feature(lsp.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    def did_change_files(ls: DefinitionServer, params: lsp.DidChangeWatchedFilesParams) -> None:
        folders = {path.parent for path in ls.project.documents}
        for each in params.changes:
            if path_of(each.uri).parent in folders:
                ls.change(path_of(each.uri))


def _for_document(
    server: DefinitionServer, method: str, missing: Any, options: Any = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a feature that needs the compiled files of a document.

    Args:
        missing: the answer for a document that is not known.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        @server.feature(method, options)
        def feature(ls: DefinitionServer, params: Any) -> Any:
            found = ls.look_up(params.text_document.uri)
            return missing if found is None else function(ls, *found, params)

        return feature

    return register


def _reading(server: DefinitionServer) -> None:
    @_for_document(
        server,
        lsp.TEXT_DOCUMENT_COMPLETION,
        None,
        lsp.CompletionOptions(trigger_characters=TRIGGERS),
    )
    def completion(
        ls: DefinitionServer, analysis: Analysis, file: SourceFile, params: lsp.CompletionParams
    ) -> lsp.CompletionList | None:
        items = complete(analysis, file, file.text.offset(params.position))
        return lsp.CompletionList(is_incomplete=False, items=items)

    @_for_document(server, lsp.TEXT_DOCUMENT_HOVER, None)
    def on_hover(
        ls: DefinitionServer, analysis: Analysis, file: SourceFile, params: lsp.HoverParams
    ) -> lsp.Hover | None:
        return hover(analysis, file, file.text.offset(params.position), ls.chosen)

    @server.feature(lsp.TEXT_DOCUMENT_DEFINITION)
    def definition(ls: DefinitionServer, params: lsp.DefinitionParams) -> list[lsp.Location]:
        return list(_places(ls, params, declared=True, used=False))

    @server.feature(lsp.TEXT_DOCUMENT_REFERENCES)
    def references(ls: DefinitionServer, params: lsp.ReferenceParams) -> list[lsp.Location]:
        declared = params.context.include_declaration
        return list(_places(ls, params, declared=declared, used=True))

    @server.feature(lsp.TEXT_DOCUMENT_DOCUMENT_HIGHLIGHT)
    def highlight(
        ls: DefinitionServer, params: lsp.DocumentHighlightParams
    ) -> list[lsp.DocumentHighlight]:
        uri = params.text_document.uri
        return [
            lsp.DocumentHighlight(place.range)
            for place in _places(ls, params, declared=True, used=True)
            if place.uri == uri
        ]


def _places(
    ls: DefinitionServer,
    params: lsp.DefinitionParams | lsp.ReferenceParams | lsp.DocumentHighlightParams,
    *,
    declared: bool,
    used: bool,
) -> Iterator[lsp.Location]:
    """The places of the name at a position: where it is declared, where it is used, or both."""
    found = ls.look_up(params.text_document.uri)
    if found is None:
        return
    analysis, file = found
    name = file.at(file.text.offset(params.position))
    if name is not None:
        for where, each in analysis.occurrences(name.target):
            if declared if each.node is not None else used:
                yield lsp.Location(where.uri, where.text.at(each.position))


def _structure(server: DefinitionServer) -> None:
    @_for_document(server, lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL, [])
    def symbols(
        ls: DefinitionServer, analysis: Analysis, file: SourceFile, params: lsp.DocumentSymbolParams
    ) -> list[lsp.DocumentSymbol]:
        return outline(file)

    @server.feature(lsp.WORKSPACE_SYMBOL)
    def all_symbols(
        ls: DefinitionServer, params: lsp.WorkspaceSymbolParams
    ) -> list[lsp.WorkspaceSymbol]:
        folders = {path.parent: path for path in ls.project.documents}
        analyses = [ls.project.analysis(path) for path in folders.values()]
        return list(workspace_symbols(analyses, params.query))

    @_for_document(server, lsp.TEXT_DOCUMENT_FOLDING_RANGE, [])
    def folding(
        ls: DefinitionServer, analysis: Analysis, file: SourceFile, params: lsp.FoldingRangeParams
    ) -> list[lsp.FoldingRange]:
        return foldings(file.text)

    @_for_document(server, lsp.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL, None, LEGEND)
    def tokens(
        ls: DefinitionServer, analysis: Analysis, file: SourceFile, params: lsp.SemanticTokensParams
    ) -> lsp.SemanticTokens | None:
        return semantic_tokens(file.text)

    @_for_document(server, lsp.TEXT_DOCUMENT_INLAY_HINT, [])
    def inlay_hints(
        ls: DefinitionServer, analysis: Analysis, file: SourceFile, params: lsp.InlayHintParams
    ) -> list[lsp.InlayHint]:
        first, last = (
            file.text.row_at(file.text.offset(each))
            for each in (params.range.start, params.range.end)
        )
        return hints(analysis, file, first, last)

    @_for_document(server, lsp.TEXT_DOCUMENT_CODE_LENS, [])
    def code_lens(
        ls: DefinitionServer, analysis: Analysis, file: SourceFile, params: lsp.CodeLensParams
    ) -> list[lsp.CodeLens]:
        return lenses(analysis, file)


def _changing(server: DefinitionServer) -> None:
    @_for_document(
        server,
        lsp.TEXT_DOCUMENT_CODE_ACTION,
        [],
        lsp.CodeActionOptions(code_action_kinds=[lsp.CodeActionKind.QuickFix]),
    )
    def code_action(
        ls: DefinitionServer, analysis: Analysis, file: SourceFile, params: lsp.CodeActionParams
    ) -> list[lsp.CodeAction]:
        return list(quick_fixes(file, analysis.diagnostics()[file.path], params.range))

    @_for_document(server, lsp.TEXT_DOCUMENT_FORMATTING, [])
    def on_formatting(
        ls: DefinitionServer,
        analysis: Analysis,
        file: SourceFile,
        params: lsp.DocumentFormattingParams,
    ) -> list[lsp.TextEdit]:
        return formatting(file)

    @_for_document(server, lsp.TEXT_DOCUMENT_PREPARE_RENAME, None)
    def prepare_rename(
        ls: DefinitionServer, analysis: Analysis, file: SourceFile, params: lsp.PrepareRenameParams
    ) -> lsp.PrepareRenamePlaceholder | None:
        name = renameable(file, file.text.offset(params.position))
        if name is None:
            return None
        start, end = file.text.span(name.position)
        return lsp.PrepareRenamePlaceholder(file.text.range(start, end), file.text.text[start:end])

    @_for_document(server, lsp.TEXT_DOCUMENT_RENAME, None, lsp.RenameOptions(prepare_provider=True))
    def on_rename(
        ls: DefinitionServer, analysis: Analysis, file: SourceFile, params: lsp.RenameParams
    ) -> lsp.WorkspaceEdit | None:
        try:
            return rename_edit(ls.project, file, file.text.offset(params.position), params.new_name)
        except RenameError as error:
            raise JsonRpcInvalidParams(message=str(error)) from error


def _bytes(server: DefinitionServer) -> None:
    @server.command(SHOW_BYTES)
    async def show_bytes(ls: DefinitionServer, *arguments: Any) -> str | None:
        """Show the bytes of a message: its URI, its name, and its version; without one, ask."""
        if len(arguments) not in (2, 3):
            raise JsonRpcInvalidParams(
                message=f"{SHOW_BYTES} needs a URI, a name and optionally a version, not {len(arguments)} arguments"
            )
        uri, name, *rest = arguments
        found = ls.look_up(str(uri))
        struct = found[0].structs.get(str(name)) if found is not None else None
        if struct is None:
            raise JsonRpcInvalidParams(
                message=f'"{name}" does not compile; correct its errors first'
            )
        table = layout_table(struct)
        version = rest[0] if rest else await _ask(ls, table)
        if version is None:
            return None
        if not isinstance(version, int) or not table.min_version <= version <= table.max_version:
            raise JsonRpcInvalidParams(
                message=f"{name} has the versions {table.min_version} to {table.max_version}, not {version}"
            )
        ls.chosen[struct.name] = version
        page = message_page(struct, version)
        await _show(ls, f"{struct.name}-v{version}.md", page)
        return page


async def _ask(ls: DefinitionServer, table: LayoutTable) -> int | None:
    """Ask for one of the layouts, the newest first. Returns a version, or None if the user does not choose."""
    groups = sorted(table.layouts, key=lambda group: group.versions[-1], reverse=True)
    choices = {versions_text(group.versions): group.versions[-1] for group in groups}
    if len(choices) == 1:
        return table.max_version
    answer = await ls.window_show_message_request_async(
        lsp.ShowMessageRequestParams(
            lsp.MessageType.Info,
            f"The bytes of {table.struct.name} in which version?",
            [lsp.MessageActionItem(text) for text in choices],
        )
    )
    return None if answer is None else choices.get(answer.title)


async def _show(ls: DefinitionServer, name: str, page: str) -> None:
    """Open a page in the editor, or show it as a message if the editor cannot open files."""
    window = ls.client_capabilities.window
    if window is not None and window.show_document is not None and window.show_document.support:
        path = Path(ls.pages.name) / name
        path.write_text(page, "utf-8")
        await ls.window_show_document_async(lsp.ShowDocumentParams(path.as_uri(), take_focus=True))
    else:
        ls.window_show_message(lsp.ShowMessageParams(lsp.MessageType.Info, page))
