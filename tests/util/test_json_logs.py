"""Log lines as JSON."""

from __future__ import annotations

import json
import logging
import re
import sys

from krammar.util.logs import JsonFormatter


def test_a_record_is_one_object_on_one_line() -> None:
    record = logging.LogRecord("krammar.broker", logging.WARNING, "f", 1, "%s\n%d", ("ä", 2), None)
    line = JsonFormatter().format(record)
    assert "\n" not in line
    entry = json.loads(line)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", entry.pop("time"))
    assert entry == {"level": "WARNING", "logger": "krammar.broker", "message": "ä\n2"}


def test_a_failure_has_its_traceback() -> None:
    try:
        raise ValueError("no")
    except ValueError:
        record = logging.LogRecord("a", logging.ERROR, "f", 1, "failed", None, sys.exc_info())
    entry = json.loads(JsonFormatter().format(record))
    assert entry["message"] == "failed"
    assert entry["traceback"].endswith("ValueError: no")
