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
    while _open:
        _open.pop().close()
