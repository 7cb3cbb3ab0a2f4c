"""A proposal for what can be written at a place."""

from __future__ import annotations

from dataclasses import dataclass

from lsprotocol import types as lsp

Kind = lsp.CompletionItemKind


@dataclass(frozen=True, slots=True)
class Proposal:
    """An item of the list. ``insert`` replaces the last ``typed`` characters before the cursor."""

    label: str
    kind: lsp.CompletionItemKind
    typed: int
    detail: str = ""
    doc: str = ""
    insert: str = ""
