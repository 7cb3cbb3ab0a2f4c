"""Log lines as JSON objects, one per line, in which all characters are printable."""

from __future__ import annotations

import logging
import time

from krammar.util.printable import printable_json


class JsonFormatter(logging.Formatter):
    """Formats a record as an object: ``time`` (UTC, milliseconds), ``level``, ``logger``, ``message``, ``traceback``."""

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
