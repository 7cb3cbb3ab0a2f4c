"""Journals that tests open in passing, and what they write to them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from krammar.journal import FileJournals, FixedFraming

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


def to(journal: str) -> Callable[[Any], tuple[str, FixedFraming]]:
    """Return a mapping that sends every message to one journal."""
    return lambda message: (journal, FixedFraming())


def amounts(envelopes: Any) -> list[int]:
    """Return the amounts of orders or payments, in order."""
    return [envelope.message.amount for envelope in envelopes]
