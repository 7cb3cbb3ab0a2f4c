"""The server over its real transport: a client starts ``krammar lsp`` and talks to it over the pipes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from concurrent.futures import Future
from pathlib import Path

import pytest
import pytest_lsp
from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException, JsonRpcInvalidParams, JsonRpcInvalidRequest
from pygls.protocol import default_converter
from pytest_lsp import ClientServerConfig, LanguageClient, client_capabilities
from pytest_lsp.client import register_lsp_features

from krammar.lsp.text import SourceText
from tests.lsp.sheets import PING, SHARED
from tests.support.waiting import PATIENCE

PUBLISH = lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS


class Client(LanguageClient):
    """A client that lets the server watch files."""

    def __init__(self) -> None:
        super().__init__(converter_factory=default_converter)
        self.watched: list[str] = []


def make_client() -> Client:
    client = Client()
    register_lsp_features(client)

    @client.feature(lsp.CLIENT_REGISTER_CAPABILITY)
    def register(params: lsp.RegistrationParams) -> None:
        client.watched += [each.method for each in params.registrations]

    return client


CONFIG = ClientServerConfig(
    server_command=[sys.executable, "-m", "krammar", "lsp", "--stdio"], client_factory=make_client
)
pytestmark = pytest.mark.asyncio(loop_scope="module")
# A character with 2 units in UTF-16 and 4 bytes in UTF-8 precedes the type.
WIDE = "// 😋\nA => not top level\n  B: strin\n"


@pytest_lsp.fixture(config=CONFIG, scope="module")
async def client(lsp_client: Client) -> AsyncIterator[None]:
    result = await lsp_client.initialize_session(
        lsp.InitializeParams(client_capabilities("visual-studio-code"))
    )
    assert result.capabilities.position_encoding == "utf-16"
    yield
    assert lsp_client.watched == [lsp.WORKSPACE_DID_CHANGE_WATCHED_FILES]
    await lsp_client.shutdown_session()
    assert lsp_client._server is not None
    assert lsp_client._server.returncode == 0


class Document:
    """An open document of a client."""

    def __init__(self, client: LanguageClient, path: Path) -> None:
        self.client = client
        self.uri = path.as_uri()
        self.id = lsp.TextDocumentIdentifier(self.uri)
        self.version = 1
        self.text = ""

    async def open(self, text: str) -> list[lsp.Diagnostic]:
        """Open the document. Returns its diagnostics; there must be some."""
        self.text = text
        item = lsp.TextDocumentItem(self.uri, "krammar", self.version, text)
        self.client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))
        return await self.diagnostics()

    async def change(self, text: str) -> list[lsp.Diagnostic]:
        """Replace the text. Returns the new diagnostics, which must differ from those before."""
        self.send(text)
        return await self.diagnostics()

    def send(self, text: str) -> None:
        self.version += 1
        self.text = text
        self.client.text_document_did_change(
            lsp.DidChangeTextDocumentParams(
                lsp.VersionedTextDocumentIdentifier(self.version, self.uri),
                [lsp.TextDocumentContentChangeWholeDocument(text)],
            )
        )

    def edit(self, *edits: tuple[str, str]) -> None:
        """Replace the first occurrences of texts, each in the result of the one before."""
        changes: list[lsp.TextDocumentContentChangeEvent] = []
        for old, new in edits:
            it = SourceText(self.text)
            start = self.text.index(old)
            area = it.range(start, start + len(old))
            changes.append(lsp.TextDocumentContentChangePartial(range=area, text=new))
            self.text = self.text.replace(old, new, 1)
        self.version += 1
        self.client.text_document_did_change(
            lsp.DidChangeTextDocumentParams(
                lsp.VersionedTextDocumentIdentifier(self.version, self.uri), changes
            )
        )

    async def diagnostics(self) -> list[lsp.Diagnostic]:
        async with asyncio.timeout(PATIENCE):
            while True:
                published = await self.client.wait_for_notification(PUBLISH)
                if published.uri == self.uri:
                    return list(published.diagnostics)

    def after(self, text: str) -> lsp.Position:
        """The position after a text; everything is ASCII."""
        before = self.text[: self.text.index(text) + len(text)]
        return lsp.Position(before.count("\n"), len(before) - before.rfind("\n") - 1)


@pytest.fixture
def document(client: LanguageClient, tmp_path: Path) -> Document:
    (tmp_path / "shared.krm").write_text(SHARED)
    return Document(client, tmp_path / "ping.krm")


async def test_diagnostics_follow_what_is_typed(document: Document) -> None:
    [found] = await document.open(PING.replace("Shared", "Shard"))
    assert (found.code, found.severity) == ("E204", lsp.DiagnosticSeverity.Error)
    assert found.message == 'unknown type "Shard"\nhint: did you mean "Shared"?'
    assert found.source == "krammar"
    assert found.range == lsp.Range(lsp.Position(8, 9), lsp.Position(8, 14))
    [style] = await document.change(PING[:-1] + " \n")
    assert style.severity == lsp.DiagnosticSeverity.Warning
    assert await document.change(PING) == []


async def test_changes_of_a_part_of_the_text(document: Document) -> None:
    # Lines of an editor do not end at a form feed or a line separator.
    await document.open(WIDE.replace("// ", "// \x0c \u2028 "))
    document.edit(("strin", "string"), ("😋", "😋😋"), ("  B", "  Bb"), ("string", "sting"))
    [found] = await document.diagnostics()
    assert found.message.startswith('unknown type "sting"')
    assert found.range == lsp.Range(lsp.Position(2, 6), lsp.Position(2, 11))
    document.edit(("sting", "string"))
    assert await document.diagnostics() == []


async def test_a_change_of_a_document_that_is_not_open(client: LanguageClient) -> None:
    place = lsp.Range(lsp.Position(0, 0), lsp.Position(0, 0))
    identifier = lsp.VersionedTextDocumentIdentifier(2, "file:///nowhere/b.krm")
    change = lsp.TextDocumentContentChangePartial(range=place, text="x")
    client.text_document_did_change(lsp.DidChangeTextDocumentParams(identifier, [change]))
    hover = lsp.HoverParams(lsp.TextDocumentIdentifier(identifier.uri), place.start)
    assert await client.text_document_hover_async(hover) is None


@pytest.mark.parametrize(
    ("method", "params", "message"),
    [
        (
            "textDocument/hover",
            {"textDocument": {"uri": "file:///a.krm"}},
            "invalid parameters of textDocument/hover: params.position: required field missing",
        ),
        (
            "textDocument/hover",
            {"textDocument": {"uri": "file:///a.krm"}, "position": {"line": "x", "character": 0}},
            "invalid parameters of textDocument/hover: params.position.line: ",
        ),
        (
            "textDocument/rename",
            ["a"],
            "invalid parameters of textDocument/rename: ",
        ),
        (
            "workspace/executeCommand",
            {"command": "krammar.showBytes", "arguments": ["file:///a.krm"]},
            "krammar.showBytes needs a URI, a name and optionally a version, not 1 arguments",
        ),
    ],
)
async def test_requests_with_invalid_parameters_are_answered(
    client: LanguageClient, method: str, params: object, message: str
) -> None:
    with pytest.raises(JsonRpcInvalidParams) as refusal:
        await answer(client, {"id": "it", "method": method, "params": params})
    assert refusal.value.message.startswith(message)


async def test_a_request_with_an_invalid_id_is_answered(client: LanguageClient) -> None:
    with pytest.raises(JsonRpcInvalidRequest, match="its id must be a number or a string"):
        await answer(client, {"id": [1], "method": "textDocument/hover", "params": None}, None)


async def answer(client: LanguageClient, message: dict[str, object], id: object = "it") -> object:
    """Send data that the client does not check. Returns the answer with an id."""
    future: Future[object] = Future()
    client.protocol._request_futures[id] = future  # type: ignore[index]
    client.protocol._send_data({"jsonrpc": "2.0", **message})
    async with asyncio.timeout(PATIENCE):
        return await asyncio.wrap_future(future)


async def test_errors_in_other_files_of_the_folder(document: Document) -> None:
    await document.open(PING + " \n")
    shared = Document(
        document.client, Path(document.uri.removeprefix("file://")).parent / "shared.krm"
    )
    item = lsp.TextDocumentItem(shared.uri, "krammar", 1, SHARED.replace("Shared =>", "Other =>"))
    shared.client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))
    assert {each.code for each in await document.diagnostics()} >= {"E204"}
    shared.client.text_document_did_close(lsp.DidCloseTextDocumentParams(shared.id))
    assert "E204" not in {each.code for each in await document.diagnostics()}


async def test_a_changed_file_that_is_not_open(document: Document) -> None:
    assert await document.open(PING + " \n")
    shared = Path(document.uri.removeprefix("file://")).with_name("shared.krm")
    shared.write_text(SHARED.replace("Shared =>", "Other =>"))
    changes = [lsp.FileEvent(shared.as_uri(), lsp.FileChangeType.Changed)]
    document.client.workspace_did_change_watched_files(lsp.DidChangeWatchedFilesParams(changes))
    assert "E204" in {each.code for each in await document.diagnostics()}


async def test_a_quick_fix(document: Document) -> None:
    [found] = await document.open(PING.replace("Shared", "Shard"))
    context = lsp.CodeActionContext([found])
    [action] = (
        await document.client.text_document_code_action_async(
            lsp.CodeActionParams(document.id, found.range, context)
        )
        or ()
    )
    assert isinstance(action, lsp.CodeAction) and action.edit is not None
    [(uri, edits)] = (action.edit.changes or {}).items()
    assert uri == document.uri
    assert list(edits) == [lsp.TextEdit(found.range, "Shared")]


async def test_completion_and_hover(document: Document) -> None:
    await document.open(PING + " \n")
    place = document.after("Kind: enum-PingKind(")
    found = await document.client.text_document_completion_async(
        lsp.CompletionParams(document.id, place)
    )
    assert isinstance(found, lsp.CompletionList)
    assert [item.label for item in found.items] == ["SLOW = 0", "FAST = 1"]
    hover = await document.client.text_document_hover_async(
        lsp.HoverParams(document.id, document.after("  Tex"))
    )
    assert hover is not None and isinstance(hover.contents, lsp.MarkupContent)
    assert "Any text." in hover.contents.value


async def test_definition_references_and_highlights(document: Document) -> None:
    await document.open(PING + " \n")
    shared = document.uri.replace("ping.krm", "shared.krm")
    place = document.after("enum-PingK")
    [definition] = (
        await document.client.text_document_definition_async(
            lsp.DefinitionParams(document.id, place)
        )
        or ()
    )  # type: ignore[misc]
    name = lsp.Range(lsp.Position(4, 0), lsp.Position(4, 8))
    assert definition == lsp.Location(shared, name)
    context = lsp.ReferenceContext(include_declaration=True)
    references = await document.client.text_document_references_async(
        lsp.ReferenceParams(context, document.id, place)
    )
    assert [(each.uri, each.range.start.line) for each in references or ()] == [
        *((document.uri, 4), (document.uri, 12), (shared, 4)),
    ]
    context = lsp.ReferenceContext(include_declaration=False)
    references = await document.client.text_document_references_async(
        lsp.ReferenceParams(context, document.id, place)
    )
    assert len(references or ()) == 2
    highlights = await document.client.text_document_document_highlight_async(
        lsp.DocumentHighlightParams(document.id, place)
    )
    assert [each.range.start.line for each in highlights or ()] == [4, 12]


async def test_definition_of_the_number_of_a_member(document: Document) -> None:
    await document.open(PING + " \n")
    [definition] = (
        await document.client.text_document_definition_async(
            lsp.DefinitionParams(document.id, document.after("enum-PingKind("))
        )
        or ()
    )  # type: ignore[misc]
    assert definition.range.start == lsp.Position(7, 5)


async def test_rename(document: Document) -> None:
    await document.open(PING + " \n")
    place = document.after("Extra: Shar")
    prepared = await document.client.text_document_prepare_rename_async(
        lsp.PrepareRenameParams(document.id, place)
    )
    assert isinstance(prepared, lsp.PrepareRenamePlaceholder)
    assert prepared.placeholder == "Shared"
    edit = await document.client.text_document_rename_async(
        lsp.RenameParams(document.id, place, "Common")
    )
    assert edit is not None and len(edit.changes or {}) == 2
    with pytest.raises(JsonRpcException, match=r'"PingKind" is already defined at shared\.krm:5'):
        await document.client.text_document_rename_async(
            lsp.RenameParams(document.id, place, "PingKind")
        )


async def test_format(document: Document) -> None:
    await document.open(PING + " \n")
    options = lsp.FormattingOptions(tab_size=2, insert_spaces=True)
    edits = await document.client.text_document_formatting_async(
        lsp.DocumentFormattingParams(document.id, options)
    )
    assert list(edits or ()) == [
        lsp.TextEdit(lsp.Range(lsp.Position(13, 0), lsp.Position(14, 0)), "")
    ]


async def test_structure(document: Document) -> None:
    await document.open(PING + " \n")
    client = document.client
    symbols = await client.text_document_document_symbol_async(
        lsp.DocumentSymbolParams(document.id)
    )
    assert [each.name for each in symbols or ()] == ["PingRequest", "PingResponse"]
    found = await client.workspace_symbol_async(lsp.WorkspaceSymbolParams("pingkind"))
    assert "PingKind" in [each.name for each in found or ()]
    folds = await client.text_document_folding_range_async(lsp.FoldingRangeParams(document.id))
    assert [(f.start_line, f.end_line) for f in folds or ()] == [(5, 7), (1, 8), (10, 12)]
    tokens = await client.text_document_semantic_tokens_full_async(
        lsp.SemanticTokensParams(document.id)
    )
    assert tokens is not None and list(tokens.data[:5]) == [0, 0, 27, 0, 0]
    everything = lsp.Range(lsp.Position(0, 0), lsp.Position(99, 0))
    hints = await client.text_document_inlay_hint_async(
        lsp.InlayHintParams(document.id, everything)
    )
    assert [(hint.position.line, hint.label) for hint in hints or ()] == [
        *((6, "v2-v3"), (7, "v2-v3"), (8, "v2+")),
    ]


async def test_show_bytes(document: Document) -> None:
    """The lens opens a page, and later hovers begin with its version."""
    await document.open(PING + " \n")
    client = document.client
    lenses = await client.text_document_code_lens_async(lsp.CodeLensParams(document.id))
    command = (lenses or ())[0].command
    assert command is not None and command.title == "versions 0 to 4, flexible from 2, 4 layouts"

    @client.feature(lsp.WINDOW_SHOW_MESSAGE_REQUEST)
    def choose(params: lsp.ShowMessageRequestParams) -> lsp.MessageActionItem:
        assert [each.title for each in params.actions or ()] == ["v4", "v2-v3", "v1", "v0"]
        return lsp.MessageActionItem("v1")

    arguments = [document.uri, "PingRequest"]
    page = await client.workspace_execute_command_async(
        lsp.ExecuteCommandParams("krammar.showBytes", arguments=arguments)
    )
    assert isinstance(page, str) and page.startswith("# PingRequest v1\n")
    assert client.shown_documents[0].uri.endswith("/PingRequest-v1.md")
    hover = await client.text_document_hover_async(
        lsp.HoverParams(document.id, document.after("  Tex"))
    )
    assert hover is not None and isinstance(hover.contents, lsp.MarkupContent)
    assert "**v1**" in hover.contents.value
    with pytest.raises(JsonRpcException, match="PingRequest has the versions 0 to 4, not 9"):
        await client.workspace_execute_command_async(
            lsp.ExecuteCommandParams("krammar.showBytes", arguments=[*arguments, 9])
        )
    with pytest.raises(JsonRpcException, match='"Pong" does not compile; correct its errors first'):
        await client.workspace_execute_command_async(
            lsp.ExecuteCommandParams("krammar.showBytes", arguments=[document.uri, "Pong"])
        )


async def test_a_document_that_is_no_file(client: LanguageClient) -> None:
    document = Document(client, Path("/unused"))
    document.uri = "untitled:Untitled-1"
    document.id = lsp.TextDocumentIdentifier(document.uri)
    [found] = await document.open("A => not top level\n  B: strin\n")
    assert found.code == "E204"
    symbols = await client.text_document_document_symbol_async(
        lsp.DocumentSymbolParams(document.id)
    )
    assert [each.name for each in symbols or ()] == ["A"]


async def test_a_request_about_an_unknown_document(client: LanguageClient) -> None:
    place = lsp.HoverParams(lsp.TextDocumentIdentifier("file:///nowhere/a.krm"), lsp.Position(0, 0))
    assert await client.text_document_hover_async(place) is None


async def test_broken_texts_in_a_row(document: Document) -> None:
    """The server answers after each text, and diagnostics are those of the last one."""
    await document.open(PING + " \n")
    for end in range(0, len(PING), 40):
        for text in (PING[:end], PING[end:], PING[:end] + "\ud800\t[[\r😋=> (" + PING[end:]):
            document.send(text)
            position = lsp.Position(text.count("\n"), 3)
            await document.client.text_document_completion_async(
                lsp.CompletionParams(document.id, position)
            )
            await document.client.text_document_semantic_tokens_full_async(
                lsp.SemanticTokensParams(document.id)
            )
    document.send(WIDE)
    while not (found := await document.diagnostics()) or found[0].code != "E204":
        pass
    assert [each.code for each in found] == ["E204"]


@pytest.mark.parametrize(
    ("encodings", "chosen"),
    [
        (["utf-8", "utf-16"], "utf-8"),
        (None, "utf-16"),
    ],
)
async def test_positions_in_the_encoding_that_was_agreed_on(
    tmp_path: Path, encodings: list[str] | None, chosen: str
) -> None:
    client = await CONFIG.start()
    assert isinstance(client, LanguageClient)
    general = lsp.GeneralClientCapabilities(
        position_encodings=[lsp.PositionEncodingKind(each) for each in encodings or ()] or None
    )
    result = await client.initialize_session(
        lsp.InitializeParams(lsp.ClientCapabilities(general=general))
    )
    assert result.capabilities.position_encoding == chosen
    document = Document(client, tmp_path / "wide.krm")
    # Everything after the default is moved by the wide character.
    found = await document.open("A => not top level\n  B: string(😋) // v2-v1\n")
    error = next(each for each in found if each.code == "E302")
    wide = {"utf-8": 4, "utf-16": 2, "utf-32": 1}[chosen]
    assert error.range.start.character == len("  B: string() // ") + wide
    assert error.range.end.character == len("  B: string() // v2-v1") + wide
    await client.shutdown_session()
    await client.stop()
