"""docs/oracles.md lists the messages that the oracles know."""

from __future__ import annotations

from tests.generated import coverage


def test_the_document_is_current() -> None:
    written = coverage.PATH.read_text()
    assert written == coverage.text(), "run python -m tests.generated.coverage --write"


def test_ranges() -> None:
    assert coverage.ranges([0, 1, 2, 5, 7, 8]) == "0-2, 5, 7-8"
    assert coverage.ranges([3]) == "3"
