"""The tables of docs/broker.md agree with the code."""

from __future__ import annotations

from tests.broker.page import PAGE, current


def test_tables_are_current() -> None:
    text = PAGE.read_text("utf-8")
    assert current(text) == text, "run `python -m tests.broker.page`"
