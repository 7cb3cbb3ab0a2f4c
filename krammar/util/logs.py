"""Log lines: as text and as JSON, in which clients can forge nothing, and in numbers that flood nobody."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from krammar.util.clock import monotonic
from krammar.util.printable import escape, printable_json


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
        clock: Callable[[], float] = monotonic,
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


class JsonFormatter(logging.Formatter):
    """Formats a record as a JSON object: ``time`` (UTC), ``level``, ``logger``, ``message``, ``traceback``."""

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        entry = {
            "time": f"{seconds}.{int(record.msecs):03}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return printable_json(entry)

    def line(self, logger: str, message: str) -> str:
        """Format a line of level INFO that no logger has created."""
        fields = {"name": logger, "levelname": "INFO", "msg": message}
        return self.format(logging.makeLogRecord(fields))


class FewWarnings:
    """Passes on the first warnings about many things of one kind, and counts the others.

    A folder of a stranger can give reason for millions of them.
    """

    def __init__(self, warn: Callable[[str], None], most: int = 20) -> None:
        self._warn = warn
        self._left = most
        self._others = 0

    def __call__(self, text: str) -> None:
        if self._left:
            self._left -= 1
            self._warn(text)
        else:
            self._others += 1

    def end(self, where: object) -> None:
        """Report how many warnings about ``where`` were not passed on, if any."""
        if self._others:
            self._warn(f"{where}: {self._others} more warnings like the last one")
        self._others = 0
