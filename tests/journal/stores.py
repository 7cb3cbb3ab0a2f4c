"""Journals that tests open in passing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from krammar.journal import FileJournals

_open: list[FileJournals] = []


def opened(root: Path, **settings: Any) -> FileJournals:
    """Journals in files, which are closed when the test has ended."""
    journals = FileJournals(root, **settings)
    _open.append(journals)
    return journals


def close_all() -> None:
    """Close all journals that the test has opened."""
    while _open:
        _open.pop().close()


def frame(text: bytes) -> bytes:
    """Encode a frame of FixedFraming: magic word, length, text."""
    return b"\x66\x33\x93\x36" + len(text).to_bytes(4, "little") + text
