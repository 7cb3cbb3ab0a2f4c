"""One Spark session and one log folder for all tests here; without Java or PySpark they are skipped."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from krammar.broker import Broker
from krammar.client import Client
from tests.spark import sessions
from tests.spark.connect_server import connect_server
from tests.spark.logs_support import Folder, fill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


if os.environ.get(sessions.MODE) == "connect":
    # The first three look into the process that runs a query, which is the server's then; the page's
    # first sample makes a classic session.
    collect_ignore = [
        *("test_demo.py", "test_stream_queries.py", "test_stream_search.py"),
        "test_docs.py",
    ]


@pytest.hookimpl(tryfirst=True)  # before the hook for all tests, which groups by module
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """If there are several workers, one of them runs all tests that use Spark's session, and one all others that use
    folders and brokers of the session, so that each is made once or twice. All others run anywhere.
    """
    here = Path(__file__).parent
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if item.path.parent == here and "spark" in fixtures:
            item.add_marker(pytest.mark.xdist_group("spark"))
        elif item.path.parent == here and not fixtures.isdisjoint(("folder", "live", "orders")):
            item.add_marker(pytest.mark.xdist_group("spark_folders"))


_ORDERS = """\
// A number for each kind of order.
OrderKind int16 (
  0: NORMAL
  1: RUSH
)

// Version 1 adds what is paid.
OrderPlaced => not top level, max version 1
  Id: uuid
  Customer: nullable-string
  Kind: enum-OrderKind
  Lines: nullable[=>]
    Article: string
    Count: int32
  Total: float64 // v1+
"""


@pytest.fixture(scope="session")
def orders(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """A user's own package, ``mypkg.orders``, which Spark's workers can import too."""
    root = tmp_path_factory.mktemp("orders")
    definitions = root / "definitions" / "mypkg" / "orders"
    definitions.mkdir(parents=True)
    (definitions / "orders.krm").write_text(_ORDERS)
    generated = str(root / "generated")
    command = [sys.executable, "-m", "krammar", "gen", str(root / "definitions"), "-o", generated]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    sys.path.append(generated)
    # Spark passes it on to its workers if it is set before Spark starts.
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [os.environ.get("PYTHONPATH"), generated])
    )
    return import_module("mypkg.orders")


@pytest.fixture(scope="session")
def spark(orders: ModuleType) -> Iterator[SparkSession]:
    pytest.importorskip("pyspark.sql", reason="PySpark is not installed")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Java is not installed")
    if os.environ.get(sessions.MODE) != "connect":
        session = sessions.local()
        yield session
        session.stop()
        return
    with connect_server() as address:
        session = sessions.remote(address)
        yield session
        session.stop()


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A folder that a broker has written, and the records that a consumer has read from it."""
    return fill(tmp_path_factory.mktemp("logs"))


@pytest.fixture(scope="session")
def live(folder: Folder, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with records of librdkafka; ``folder.rows`` are the rows that it reads."""
    copy = tmp_path_factory.mktemp("live") / "data"
    shutil.copytree(folder.path, copy)
    # The records are years old, and some tests take minutes: they would be deleted.
    with Broker.start(data_dir=copy, properties={"log.retention.ms": "-1"}) as broker:
        yield broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """An empty broker for the tests of a module."""
    with Broker.start() as broker:
        yield broker


@pytest.fixture(scope="module")
def client(broker: Broker) -> Iterator[Client]:
    """A client of the module's broker."""
    with Client(broker.bootstrap_servers) as client:
        yield client
