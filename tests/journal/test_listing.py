"""Lists of journals that are refreshed."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from krammar.journal.mapping import refreshing
from krammar.journal.specs import JournalSpec

REFRESH_MS = 10_000
LIST = [JournalSpec("a")]


def finding(*answers: list[JournalSpec] | Exception) -> Callable[[], list[JournalSpec]]:
    """A function that gives these answers, one per call."""
    left = iter(answers)

    def find() -> list[JournalSpec]:
        answer = next(left)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return find


def test_a_first_list_that_fails_is_asked_for_again() -> None:
    partitions = refreshing(finding(OSError("no broker"), LIST), REFRESH_MS)
    with pytest.raises(OSError, match="no broker"):
        partitions()
    assert partitions() == partitions() == LIST


def test_the_last_list_is_used_after_a_refresh_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    partitions = refreshing(finding(LIST, OSError("no broker"), []), REFRESH_MS)
    assert partitions() == LIST
    now = REFRESH_MS / 1000
    with pytest.raises(OSError, match="no broker"):
        partitions()
    assert partitions() == partitions() == LIST
    now *= 2
    assert partitions() == []
