"""Lists of journals that are refreshed."""

from __future__ import annotations

import pytest

from krammar.journal.listing import refreshing
from krammar.journal.specs import JournalSpec


def test_a_first_list_that_fails_is_asked_for_again() -> None:
    answers: list[list[JournalSpec] | Exception] = [OSError("no broker"), [JournalSpec("a")]]

    def find() -> list[JournalSpec]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    partitions = refreshing(find, 10_000)
    with pytest.raises(OSError, match="no broker"):
        partitions()
    assert [each.name for each in partitions()] == ["a"]
    assert [each.name for each in partitions()] == ["a"]
    assert answers == []


def test_the_last_list_is_used_if_a_refresh_fails() -> None:
    answers: list[list[JournalSpec] | Exception] = [[JournalSpec("a")], OSError("no broker")]

    def find() -> list[JournalSpec]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    partitions = refreshing(find, 0)
    assert [each.name for each in partitions()] == ["a"]
    with pytest.raises(OSError, match="no broker"):
        partitions()
