"""Log lines with text of clients."""

from __future__ import annotations

import logging
import sys

from krammar.util.logs import Seldom, TextFormatter


def formatted(message: str, *args: object, exc_info: object = None) -> str:
    record = logging.LogRecord("x", logging.ERROR, "", 0, message, args, exc_info)  # type: ignore[arg-type]
    return TextFormatter().format(record)


def test_a_message_is_one_line_of_printable_characters() -> None:
    text = formatted("topic %s", "a\r\nb\x1b[2J\u202e\x9b\u2028c é")
    assert text.isprintable()
    assert text.endswith(r"ERROR topic a\r\nb\x1b[2J\u202e\x9b\u2028c é")


def test_tracebacks_are_indented() -> None:
    try:
        raise ValueError("forged\n2026-01-01 00:00:00,000 ERROR everything is fine\x1b[0m")
    except ValueError:
        text = formatted("failed", exc_info=sys.exc_info())
    first, *rest = text.split("\n")
    assert first.endswith("ERROR failed")
    assert rest[0] == "  Traceback (most recent call last):"
    assert all(line.startswith("  ") and line.isprintable() for line in rest)
    assert rest[-1] == r"  2026-01-01 00:00:00,000 ERROR everything is fine\x1b[0m"


def test_a_repeated_event_is_logged_seldom() -> None:
    times = iter((0.0, 1.0, 9.9, 10.0, 25.0))
    lines: list[str] = []
    seldom = Seldom(lines.append, 10, lambda: next(times))
    for _ in range(5):
        seldom("full")
    assert lines == ["full", "full (2 more since the last line)", "full"]
