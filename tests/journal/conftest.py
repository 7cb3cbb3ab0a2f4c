"""Messages of the tests: generated classes, in a package that processes of tests can import too."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from krammar.cli import main
from krammar.journal import FileJournals
from tests.journal.stores import close_all

DEFINITIONS = """\
// An order. It has its version in it.
Order => not top level, with version field, max version 1
  Version: int16
  UUID: uuid
  Customer: string
  Amount: int64
  Note: nullable-bytes(null) // v1+

// A payment, whose version the framing says.
Payment => not top level, max version 2
  UUID: uuid
  Amount: int64
  Method: string // v2+

// No message.
Plain => not top level
  Text: string
"""


def generate(folder: Path, name: str, definitions: str) -> Path:
    """Generate the package ``name``; returns the folder that it can be imported from."""
    source = folder / f"{name}_definitions"
    (source / name).mkdir(parents=True)
    (source / name / "messages.krm").write_text(definitions)
    result = CliRunner().invoke(main, ["gen", str(source), "-o", str(folder)])
    assert result.exit_code == 0, result.output
    return folder


@pytest.fixture(scope="session")
def shop_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return generate(tmp_path_factory.mktemp("shop"), "journal_test_shop", DEFINITIONS)


@pytest.fixture(scope="session")
def shop(shop_folder: Path) -> Iterator[Any]:
    """The package with Order, Payment and Plain."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(shop_folder)
        importlib.invalidate_caches()
        yield importlib.import_module("journal_test_shop")


@pytest.fixture
def journals(tmp_path: Path) -> Iterator[FileJournals]:
    with FileJournals(tmp_path / "journals") as journals:
        yield journals


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Closes what a test opened with ``opened``, and fails one that leaves other journals open: their
    threads and files would be there for all tests to come."""
    before = set(threading.enumerate())
    yield
    close_all()
    left = set(threading.enumerate()) - before
    assert not [thread for thread in left if thread.name == "krammar-journal"]
