"""A file of keys for the tests of Encrypt."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.proxy.filters.encrypted import line


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys.txt"
    path.write_text("# keys of the tests\n" + line("2026-11"))
    return path
