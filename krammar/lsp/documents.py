"""The server without features: its protocol, the open documents, and the diagnostics that the editor has."""

from __future__ import annotations

import asyncio
import gc
import logging
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cattrs import transform_error
from cattrs.errors import ClassValidationError
from lsprotocol import types as lsp
from pygls import uris
from pygls.exceptions import JsonRpcInvalidParams, JsonRpcInvalidRequest
from pygls.lsp.server import LanguageServer
from pygls.protocol import LanguageServerProtocol, lsp_method
from pygls.protocol.json_rpc import RPCMessage

from krammar import __version__
from krammar.lsp.editing import as_lsp
from krammar.lsp.project import Analysis, Project, SourceFile

# The protocol. It differs from that of pygls in the answers to invalid messages, and in changes of texts.
#
# - pygls does not answer a request with invalid parameters, so an editor would wait for ever. JSON-RPC 2.0 and
#   LSP 3.17 require an error response with the code InvalidParams (-32602).
# - pygls splits lines as Python does, at a form feed too. The positions of a change count other lines, so
#   `Project.change` applies it.


class EditorProtocol(LanguageServerProtocol):
    """The protocol of the server."""

    def structure_message(self, data: dict[str, Any]) -> Any:
        """Convert a message. The result is None for an invalid request, which is answered here."""
        request = "jsonrpc" in data and "method" in data and "id" in data
        if request and not isinstance(data["id"], int | str):
            # The id of the answer is null (JSON-RPC 2.0, section 5).
            text = "invalid request: its id must be a number or a string"
            self._refuse(None, JsonRpcInvalidRequest.CODE, text)
            return None
        try:
            return super().structure_message(data)
        except JsonRpcInvalidParams as error:
            if not request:
                raise
            cause = error.__cause__
            found = transform_error(cause) if isinstance(cause, ClassValidationError) else []
            reasons = "; ".join(map(_reason, found))
            text = f"invalid parameters of {data['method']}: {reasons}"
            self._refuse(data["id"], JsonRpcInvalidParams.CODE, text)
            return None

    def handle_message(self, message: RPCMessage | None) -> None:
        """Pass a message on to its handler."""
        if message is not None:
            super().handle_message(message)

    def _refuse(self, id_: int | str | None, code: int, message: str) -> None:
        answer = {"id": id_, "error": {"code": code, "message": message}}
        self._send_data({"jsonrpc": self.VERSION, **answer})

    @lsp_method(lsp.TEXT_DOCUMENT_DID_CHANGE)
    def lsp_text_document__did_change(
        self, params: lsp.DidChangeTextDocumentParams
    ) -> Generator[Any, Any, None]:
        """Pass a change on without applying it to the documents of pygls."""
        handler = self.fm.features.get(lsp.TEXT_DOCUMENT_DID_CHANGE)
        if handler is not None:
            yield handler, (params,), None


def _reason(text: str) -> str:
    """Convert ``required field missing @ $.params.position`` to ``params.position: required field missing``."""
    problem, _, path = text.rpartition(" @ $")
    return f"{path.removeprefix('.')}: {problem}" if path else problem


# The documents.

# Seconds between a change and its diagnostics. Changes that arrive meanwhile are compiled together.
_DELAY = 0.02


class DefinitionServer(LanguageServer):
    """A language server for definition files."""

    def __init__(self) -> None:
        super().__init__(
            "krammar",
            __version__,
            text_document_sync_kind=lsp.TextDocumentSyncKind.Incremental,
            protocol_cls=EditorProtocol,
        )
        self.project = Project()
        # Paths whose folders have changed since their last diagnostics.
        self.changed: set[Path] = set()
        self.published: dict[Path, list[lsp.Diagnostic]] = {}
        # The versions whose bytes the user has asked for, by message.
        self.chosen: dict[str, int] = {}
        self.frozen = False
        self.pages = tempfile.TemporaryDirectory(prefix="krammar-")

    def change(self, path: Path) -> None:
        """Compile the folder of a document soon, and publish its diagnostics."""
        if not self.changed:
            asyncio.get_running_loop().call_later(_DELAY, self.publish)
        self.changed.add(path)

    def publish(self) -> None:
        """Publish the diagnostics that differ from those that the editor has."""
        paths, self.changed = self.changed, set()
        for path in {each.parent: each for each in paths}.values():
            analysis = self.project.analysis(path)
            for each, found in analysis.diagnostics().items():
                file = analysis.files[each]
                self._send(each, file.uri, [as_lsp(file, diagnostic) for diagnostic in found])
            for gone in [each for each in self.published if each.parent == path.parent]:
                if gone not in analysis.files:
                    self._send(gone, gone.as_uri(), [])
        if not self.frozen:
            # Most objects live as long as the server, so the garbage collector need not visit them again.
            self.frozen = True
            gc.collect()
            gc.freeze()

    def _send(self, path: Path, uri: str, diagnostics: list[lsp.Diagnostic]) -> None:
        if self.published.get(path, []) != diagnostics:
            self.published[path] = diagnostics
            self.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, diagnostics))

    def look_up(self, uri: str) -> tuple[Analysis, SourceFile] | None:
        """Return the file of a document, and the compiled files of its folder."""
        path = path_of(uri)
        analysis = self.project.analysis(path)
        file = analysis.files.get(path)
        return None if file is None else (analysis, file)


def is_defect(record: logging.LogRecord) -> bool:
    """Return whether a log record is worth reading: not the refusal of what a user asked for."""
    return not (record.exc_info and isinstance(record.exc_info[1], JsonRpcInvalidParams))


def path_of(uri: str) -> Path:
    """Return the path of a document. A document that is not a file has a folder of its own, which does not exist."""
    path = uris.to_fs_path(uri) if uri.startswith("file:") else None
    return Path(path or f"/dev/null/{quote(uri, safe='')}/document.krm")
