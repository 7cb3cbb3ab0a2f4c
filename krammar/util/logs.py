"""Log lines for people: text of clients cannot forge a line, nor control a terminal."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from krammar.util.printable import escape


class TextFormatter(logging.Formatter):
    """Formats a record as time, level and message, in one line that has only printable characters.

    The lines of a traceback follow, indented, so that none of them looks like another record.
    """

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        return escape(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        return _indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:
        return _indented(stack_info)


def _indented(text: str) -> str:
    return "\n".join(f"  {escape(line)}" for line in text.split("\n"))


class Seldom:
    """Logs a repeated event at most once per interval, with the number of events that were left out.

    Args:
        log: writes a line
        seconds: the interval
        clock: returns the time in seconds
    """

    def __init__(
        self,
        log: Callable[[str], object],
        seconds: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._seconds = seconds
        self._clock = clock
        self._last: float | None = None
        self._left_out = 0

    def __call__(self, text: str) -> None:
        now = self._clock()
        if self._last is not None and now - self._last < self._seconds:
            self._left_out += 1
            return
        more = f" ({self._left_out} more since the last line)" if self._left_out else ""
        self._log(f"{text}{more}")
        self._last, self._left_out = now, 0
