"""A process of a long search. It cannot be in ``__main__``, which new processes do not import."""

from __future__ import annotations

import tempfile
import traceback
from multiprocessing.queues import Queue
from pathlib import Path

from tests.random_definitions.model import Protocol
from tests.random_definitions.search import search

_done: Queue[int] | None = None


def start(done: Queue[int]) -> None:
    """Prepare the process: it reports each protocol to ``done``."""
    global _done
    _done = done


def _progress(_: Protocol) -> None:
    assert _done is not None
    _done.put(1)


def search_here(seed: int, count: int) -> str:
    """Return the failure of a search, or an empty text."""
    with tempfile.TemporaryDirectory(prefix="krammar-random-") as place:
        try:
            search(Path(place), count, seed, _progress)
        except Exception as error:
            notes = "\n".join(getattr(error, "__notes__", ()))
            return f"==== seed {seed}\n{''.join(traceback.format_exception(error))}{notes}"
    return ""
