"""Small sets of definition files, with a cursor ``‸`` in one of them."""

from __future__ import annotations

from pathlib import Path

from krammar.lsp.project import Analysis, Project, SourceFile

CURSOR = "‸"
FOLDER = Path("/dev/null/sheet")

PING = """\
// Asks for a sign of life.
PingRequest => key 7, max version 4, flexible v2+
  // Any text.
  Text: nullable-string-v1+(null)
  Kind: enum-PingKind(1) // v1+
  Parts: [=>] // v2-v3
    Size: int32
    Data: length-field-minus => Size - 4
  Extra: Shared // tag 0

PingResponse =>
  ThrottleMillis
  Kind: enum-PingKind
"""
SHARED = """\
Shared => not top level, no encoding
  Number: int16(-1)

// How urgent.
PingKind int8 (
  // No hurry.
  0: SLOW
  1: FAST // retriable
)
"""


class Sheet:
    """Open documents, and the place of the cursor."""

    def __init__(self, **texts: str) -> None:
        self.project = Project()
        self.path = FOLDER / f"{next(iter(texts))}.krm"
        self.cursor = 0
        for name, text in texts.items():
            if CURSOR in text:
                self.path = FOLDER / f"{name}.krm"
                self.cursor = text.index(CURSOR)
            self.project.open(FOLDER / f"{name}.krm", text.replace(CURSOR, ""))

    @property
    def analysis(self) -> Analysis:
        return self.project.analysis(self.path)

    @property
    def file(self) -> SourceFile:
        return self.analysis.files[self.path]


def ping(before: str = "", after: str = "") -> Sheet:
    """The definitions above, with the cursor before the text ``after``, which directly follows ``before``."""
    texts = {"ping": PING, "shared": SHARED}
    if before or after:
        name = next(each for each, text in texts.items() if before + after in text)
        texts[name] = texts[name].replace(before + after, before + CURSOR + after, 1)
    return Sheet(**texts)
