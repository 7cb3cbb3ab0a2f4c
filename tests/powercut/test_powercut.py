"""A part of ``make powercut``, and the models of disks."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.powercut.disk import State, states
from tests.powercut.explore import explore
from tests.powercut.recorder import ROOT, Create, Mark, Op, Rename, Sync, Write, available, record
from tests.powercut.runs import RUNS, Run

needs_strace = pytest.mark.skipif(
    not available(), reason="strace is not installed, or may not trace processes"
)


@needs_strace
@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_power_cuts(tmp_path: Path, run: Run) -> None:
    if "sink" in run.module:
        pytest.importorskip("pyspark", reason="PySpark is not installed")
    outcome = run.explore(tmp_path, every=run.every)
    assert outcome.states > 10
    assert not outcome.failures


@needs_strace
def test_a_program_without_fsyncs_fails(tmp_path: Path) -> None:
    """The models find what they are for."""
    run = Run("without fsyncs", "tests.powercut.journals", ("broken",), 150)
    outcome = run.explore(tmp_path, every=run.every)
    assert len(outcome.failures) > 5
    assert any("has lost" in failure for failure in outcome.failures)


PROGRAM = """\
import os, sys
os.chdir(sys.argv[1])
with open("a", "wb", buffering=0) as file:
    file.write(b"1")
    file.write(b"2")
    os.fsync(file.fileno())
    file.write(b"3")
os.rename("a", "b")
descriptor = os.open(".", os.O_RDONLY)
os.fsync(descriptor)
print("done", flush=True)
os.pwrite(os.open("b", os.O_RDWR), b"0", 0)
"""


@needs_strace
def test_what_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    folder = str(tmp_path / "data")
    command = [sys.executable, "-c", PROGRAM, folder]
    assert record(command, Path(folder), tmp_path / "trace") == [
        Create(f"{folder}/a", 2),
        Write(2, 0, b"1"),
        Write(2, 1, b"2"),
        Sync(2, 3),
        Write(2, 2, b"3"),
        Rename(f"{folder}/a", f"{folder}/b"),
        Sync(ROOT, 6),
        Mark("done"),
        Write(2, 0, b"0"),
    ]


def contents(ops: list[Op], model: str) -> list[dict[str, bytes]]:
    """The files after all operations, in the states of a model."""
    found = [s for s in states([*ops, Mark("end")], "/r") if s.marks and s.model.startswith(model)]
    return [{path[3:]: data for path, data in state.files.items()} for state in found]


def test_bytes_are_lost_until_they_are_forced_to_the_disk() -> None:
    ops: list[Op] = [Create("/r/a", 2), Write(2, 0, b"old"), Sync(2, 2), Sync(ROOT, 3)]
    ops += [Write(2, 0, b"n"), Write(2, 3, b"ew")]
    assert contents(ops, "nothing") == [{"a": b"nldew"}]
    assert contents(ops, "data, all as if") == [{"a": b"old"}]
    assert contents(ops, "data, all zeros") == [{"a": b"old\0\0"}]
    assert contents(ops, "names") == []


def test_an_fsync_forces_what_was_written_before_it_began() -> None:
    ops: list[Op] = [Create("/r/a", 2), Sync(ROOT, 1), Write(2, 0, b"1"), Write(2, 1, b"2")]
    assert contents([*ops, Sync(2, 3)], "data, all as if") == [{"a": b"1"}]
    assert contents([*ops, Sync(2, 4)], "data, all as if") == []


def test_names_are_lost_until_their_folder_is_forced_to_the_disk() -> None:
    ops: list[Op] = [Create("/r/a", 2), Write(2, 0, b"1"), Sync(2, 2), Sync(ROOT, 3)]
    ops += [Create("/r/a.tmp", 3), Write(3, 0, b"2"), Sync(3, 6), Rename("/r/a.tmp", "/r/a")]
    assert contents(ops, "nothing") == [{"a": b"2"}]
    assert contents(ops, "names, all") == [{"a": b"1"}]
    assert contents([*ops, Sync(ROOT, 8)], "names, all") == []


def test_the_last_write_is_torn_at_its_sectors() -> None:
    data = os.urandom(1000)
    ops: list[Op] = [Create("/r/a", 2), Write(2, 0, b"x" * 100), Sync(2, 2), Sync(ROOT, 3)]
    ops += [Write(2, 100, data)]
    assert contents(ops, "torn, the first") == [{"a": b"x" * 100 + data[:412]}]
    assert contents(ops, "torn, all but") == [{"a": b"x" * 100 + bytes(412) + data[412:]}]


def test_failures_are_collected(tmp_path: Path) -> None:
    def check(folder: Path, state: State) -> list[str]:
        if not (folder / "a").exists():
            raise ValueError("nothing")
        return [f"{(folder / 'a').read_bytes()!r}"]

    ops: list[Op] = [Create("/r/a", 2), Write(2, 0, b"1")]
    outcome = explore(ops, Path("/r"), lambda folder, state: iter(check(folder, state)))
    assert outcome.states == 4
    assert outcome.failures[1:3] == [
        "after operation 1 (names, all): ValueError: nothing",
        "after operation 2 (nothing lost): b'1'",
    ]
