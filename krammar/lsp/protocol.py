"""What the server does otherwise than pygls: answers to invalid messages, and changes of texts.

- pygls does not answer a request with invalid parameters, so an editor would wait for ever. JSON-RPC 2.0 and
  LSP 3.17 require an error response with the code InvalidParams (-32602).
- pygls splits lines as Python does, at a form feed too. The positions of a change count other lines, so
  ``Project.change`` applies it.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from cattrs import transform_error
from cattrs.errors import ClassValidationError
from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcInvalidParams, JsonRpcInvalidRequest
from pygls.protocol import LanguageServerProtocol, lsp_method
from pygls.protocol.json_rpc import RPCMessage


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
