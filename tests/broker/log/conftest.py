"""A folder with one partition's log, for each test that asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.log.support import Setting


@pytest.fixture
def setting(tmp_path: Path) -> Iterator[Setting]:
    """A partition that the test can open, close and open again; its logs are closed afterwards."""
    with Setting(tmp_path) as setting:
        yield setting
