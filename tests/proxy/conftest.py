"""Warnings that are errors in the tests of the proxy, and where filters run."""

from __future__ import annotations

from pathlib import Path

import pytest

from krammar.proxy.relay import Resources

_FOLDER = Path(__file__).parent
# pytest reports warnings about coroutines that are never awaited as unraisable exceptions.
_ERRORS = ("error::RuntimeWarning", "error::pytest.PytestUnraisableExceptionWarning")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(_FOLDER):
            for each in _ERRORS:
                item.add_marker(pytest.mark.filterwarnings(each))


@pytest.fixture(params=["proxy", "large frames", "broker"])
def where(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where the filters of a test run. All frames are treated as large ones, which take several turns, if asked for."""
    if request.param == "large frames":
        monkeypatch.setattr(Resources, "loop_bytes", 0)
        return "proxy"
    return str(request.param)
