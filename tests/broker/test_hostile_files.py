"""A folder with something else in the place of a file: a clear refusal or a working server, at once and in little memory."""

from __future__ import annotations

import itertools
import os
import shutil
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import kafka_wire as kw
import pytest

from krammar.broker import Broker
from krammar.logfiles.names import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LEADER_EPOCHS,
    LOCK,
    LOG_STARTS,
    METADATA_TOPIC,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    RUNNING,
    stem,
)

pytest.importorskip("pyspark", reason="PySpark is not installed")

from tests.broker.hostile_folders import SETTINGS, examine, fill
from tests.broker.support import RawClient

ORDERS, OFFSETS, STATES = "orders-0", "__consumer_offsets-0", "__transaction_state-0"
METADATA = f"{METADATA_TOPIC}-0"
# The files that a broker reads in a log folder, in that of the metadata log, and in that of a partition.
IN_LOG_DIR = (
    "meta.properties", "bootstrap.checkpoint", "krammar-decoys.key", RECOVERY_POINTS, LOG_STARTS,
    CLEANER_OFFSETS, HIGH_WATERMARKS, CLEAN_SHUTDOWN, RUNNING, LOCK, f"{RECOVERY_POINTS}.tmp", f"{RUNNING}.tmp",
)  # fmt: skip
IN_METADATA = (
    f"{stem(0)}.log", f"{stem(0)}.index", f"{stem(0)}.timeindex", f"{stem(0)}-{0:010}.checkpoint",
    f"{stem(9)}-{1:010}.checkpoint", f"{stem(9)}-{1:010}.checkpoint.part", f"{stem(50)}.log",
)  # fmt: skip
IN_PARTITION = (
    *(f"{stem(0)}{ending}" for ending in (".log", ".index", ".timeindex", ".txnindex", ".snapshot")),
    *(f"{stem(1)}{ending}" for ending in (".log", ".snapshot", ".log.swap", ".log.cleaned", ".log.deleted")),
    LEADER_EPOCHS, PARTITION_METADATA, f"{PARTITION_METADATA}.tmp", f"{LEADER_EPOCHS}.tmp",
)  # fmt: skip
FILES = (
    *IN_LOG_DIR,
    *(f"{METADATA}/{name}" for name in IN_METADATA),
    *(f"{folder}/{name}" for folder in (ORDERS, OFFSETS, STATES) for name in IN_PARTITION),
    ORDERS,
    METADATA,
    "another-0",
)
TERABYTE = 1 << 40


def pipe(path: Path, outside: Path) -> None:
    os.mkfifo(path)


def a_socket(path: Path, outside: Path) -> None:
    home = Path.cwd()
    os.chdir(path.parent)  # the name of a socket must be short
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name[-90:])
        os.rename(path.name[-90:], path.name)
    finally:
        os.chdir(home)


def folder(path: Path, outside: Path) -> None:
    path.mkdir()
    (path / "file").touch()


def device(path: Path, outside: Path) -> None:
    path.symlink_to("/dev/zero")


def link_to_file(path: Path, outside: Path) -> None:
    path.symlink_to(outside / "file")


def link_to_folder(path: Path, outside: Path) -> None:
    path.symlink_to(outside)


def dangling_link(path: Path, outside: Path) -> None:
    path.symlink_to(outside / "missing")


def sparse(path: Path, outside: Path) -> None:
    with path.open("wb") as file:
        os.truncate(file.fileno(), TERABYTE)


def large(path: Path, outside: Path) -> None:
    """The largest file that a reader of segments accepts, without content."""
    with path.open("wb") as file:
        os.truncate(file.fileno(), (1 << 31) - 1)


def garbage(path: Path, outside: Path) -> None:
    path.write_bytes(b"\xff" * 100_000)


def empty(path: Path, outside: Path) -> None:
    path.touch()


Make = Callable[[Path, Path], None]
KINDS: tuple[Make, ...] = (
    pipe, a_socket, folder, device, link_to_file, link_to_folder, dangling_link, sparse, large, garbage, empty,
)  # fmt: skip
CASES = list(itertools.product(FILES, KINDS))
PER_TEST, SHARE = 45, 9


@pytest.fixture(scope="session")
def ordinary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ordinary folder with all files, for copies."""
    data = tmp_path_factory.mktemp("ordinary") / "data"
    fill(data)
    with (
        Broker.start(data_dir=data, properties=SETTINGS) as broker,
        RawClient(broker.port) as client,
    ):
        aborted = kw.EndTxnRequest(
            transactional_id="t", producer_id=0, producer_epoch=0, committed=False
        )
        client.call(aborted, 3)
    return data


def altered(ordinary: Path, home: Path, name: str, make: Make) -> Path:
    """A copy of the folder with something else in the place of a file; ``outside`` is beside it."""
    shutil.rmtree(home, ignore_errors=True)
    data = home / "data"
    shutil.copytree(ordinary, data)
    outside = home / "outside"
    outside.mkdir()
    path = data / name
    (outside / "file").write_bytes(path.read_bytes() if path.is_file() else b"a stranger's")
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    make(path, outside)
    return data


def problems(ordinary: Path, home: Path, cases: Sequence[tuple[str, Make]]) -> dict[str, list[str]]:
    """What is wrong with each case; empty if nothing is."""
    found = {}
    for number, (name, make) in enumerate(cases):
        data = altered(ordinary, home, name, make)
        if number % 2 and name != CLEAN_SHUTDOWN:  # as after a crash
            (data / CLEAN_SHUTDOWN).unlink()
        outcome = examine(data)
        wrong = list(outcome.problems)
        wrong += (f"names no file: {t}" for t in outcome.refusals.values() if str(data) not in t)
        if wrong:
            found[f"{make.__name__} as {name}"] = wrong
    return found


def test_all_files_of_a_folder_have_cases(ordinary: Path) -> None:
    found = {str(path.relative_to(ordinary)) for path in ordinary.rglob("*") if path.is_file()}
    # orders-1 is as orders-0, and snapshots have the offsets of the last shutdown.
    others = {
        name for name in found - set(FILES) if "orders-1/" in name or name.endswith(".snapshot")
    }
    assert found - others <= set(FILES)


@pytest.mark.parametrize("begin", range(0, len(CASES) // SHARE, PER_TEST))
def test_something_else_in_the_place_of_a_file(ordinary: Path, tmp_path: Path, begin: int) -> None:
    # The number of kinds and the step have no common divisor, so all kinds and all files get their turns.
    cases = CASES[::SHARE][begin : begin + PER_TEST]
    assert problems(ordinary, tmp_path / "home", cases) == {}


@pytest.mark.search
@pytest.mark.parametrize("begin", range(0, len(CASES), PER_TEST))
@pytest.mark.parametrize("shift", [0, 1])
def test_everything_else_in_the_place_of_every_file(
    ordinary: Path, tmp_path: Path, begin: int, shift: int
) -> None:
    cases = CASES[begin : begin + PER_TEST]
    assert problems(ordinary, tmp_path / "home", [*cases[shift:], *cases[:shift]]) == {}
