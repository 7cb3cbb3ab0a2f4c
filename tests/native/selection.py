"""A pytest plugin: selects the tests whose parameter is a compiled message."""

from __future__ import annotations

from typing import Any

import pytest

from krammar.wire import native


def pytest_report_header() -> list[str]:
    return [native.status("kafka_wire"), native.status("wafka_wire")]


def pytest_collection_modifyitems(config: pytest.Config, items: list[Any]) -> None:
    """Raises UsageError if nothing is compiled, which no test would say."""
    kept, left_out = [], []
    compiled = False
    for item in items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        group = parameters.get("group")  # of what an oracle knows of one message
        message = group[0].message if group else parameters.get("message")
        cls = getattr(message, "cls", None)
        if cls is None or hasattr(cls, "_stands_for"):
            kept.append(item)
        else:
            left_out.append(item)
        compiled = compiled or hasattr(cls, "_stands_for")
    if not compiled:
        raise pytest.UsageError("no test is of anything compiled")
    items[:] = kept
    config.hook.pytest_deselected(items=left_out)
