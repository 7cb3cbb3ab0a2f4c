"""Writers that are killed: at every byte that they write, and several at once under load."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from krammar.journal import FileJournals, ReadCommittedIter, ReadUncommittedIter
from krammar.journal import journal_file as module

OLD = b"\x66\x33\x93\x36\x03\0\0\0old"
NEW = b"\x66\x33\x93\x36\x05\0\0\0new 1"


def killed(act: Callable[[], None]) -> bool:
    """Whether ``act``, in a process of its own, is killed; it must not fail otherwise."""
    child = os.fork()
    if child == 0:
        try:
            act()
        except BaseException:
            os._exit(1)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert status == 0 or os.WTERMSIG(status) == signal.SIGKILL
    return status != 0


def append_until(root: Path, limit: int, fragment_bytes: int) -> Callable[[], None]:
    """Append, and be killed when ``limit`` bytes have been written to any files."""

    def act() -> None:
        left = limit

        def write(file: int, data: bytes, offset: int) -> None:
            nonlocal left
            os.pwrite(file, data[:left], offset)
            left -= len(data)
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

        module.write_fully = write
        journals = FileJournals(root, fragment_bytes=fragment_bytes, linger_ms=1e6)
        journals.append("x", NEW)
        journals.append("x", NEW).result()

    return act


def texts(journals: FileJournals) -> list[bytes]:
    reader = journals.reader("x")
    found = []
    while frames := reader.read():
        found += [frame[2] for frame in frames]
    return found


@pytest.mark.parametrize(
    "fragment_bytes",
    [
        pytest.param(1000, id="one fragment"),
        pytest.param(10, id="another fragment", marks=pytest.mark.sweep),
    ],
)
@pytest.mark.parametrize(
    "before",
    [
        pytest.param(1, id="first slot", marks=pytest.mark.sweep),
        pytest.param(2, id="second slot"),
    ],
)
def test_killed_at_every_byte(
    tmp_path: Path, fragment_bytes: int, before: int, caplog: Any
) -> None:
    # The head names another fragment before it is created.
    total = 2 * len(NEW) + (90 if fragment_bytes > 100 else 180)
    for limit in range(total + 1):
        root = tmp_path / f"{limit}"
        with FileJournals(root, linger_ms=1e6) as journals:
            journals.create("x")
            for _ in range(before):
                journals.append("x", OLD).result()
            # The last byte of all makes it an append, of both frames or of none.
            assert killed(append_until(root, limit, fragment_bytes)) == (limit < total)
            expected = [OLD] * before + ([NEW] * 2 if limit == total else [])
            assert texts(journals) == expected
            # Other processes continue, whether they had the journal open or open it now.
            journals.append("x", OLD).result()
            with FileJournals(root, fragment_bytes=fragment_bytes) as others:
                others.append("x", OLD).result()
            assert texts(journals) == [*expected, OLD, OLD]
    assert caplog.text == ""


def test_killed_while_a_journal_is_made(tmp_path: Path) -> None:
    """At every call that changes a file or a folder."""
    calls = ["mkdir", "link", "unlink", "fsync"]
    at = 0
    dead = True
    while dead:
        root = tmp_path / f"{at}"

        def act(root: Path = root, limit: int = at) -> None:
            left = limit

            def counted(real: Callable[..., Any]) -> Callable[..., Any]:
                def call(*args: Any, **more: Any) -> Any:
                    nonlocal left
                    if left == 0:
                        os.kill(os.getpid(), signal.SIGKILL)
                    left -= 1
                    return real(*args, **more)

                return call

            for name in calls:
                setattr(os, name, counted(getattr(os, name)))
            FileJournals(root).create("x")

        dead = killed(act)
        with FileJournals(root) as journals:
            journals.create("x")
            journals.append("x", OLD).result()
            assert texts(journals) == [OLD]
        at += 1
    assert at > 8


def test_processes_that_are_killed(
    tmp_path: Path, shop: Any, shop_folder: Path, caplog: Any
) -> None:
    chance = random.Random(7)
    root = tmp_path / "journals"
    said: dict[str, set[int]] = {}
    path = os.pathsep.join(str(p) for p in (shop_folder, Path(__file__).parents[2]))
    environment = os.environ | {"PYTHONPATH": path}
    for turn in range(4):
        writers = {}
        for number in range(3):
            name = f"{turn}-{number}"
            command = [sys.executable, "-m", "tests.journal.writer", str(root), name, "0"]
            writers[name] = subprocess.Popen(
                command, stdout=subprocess.PIPE, env=environment, text=True
            )
        for name, process in writers.items():
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(chance.randint(1, 30))]
            process.kill()
            lines += process.stdout.readlines()
            process.stdout.close()
            assert process.wait() == -signal.SIGKILL
            said[name] = {int(line) for line in lines if line.endswith("\n")}
            assert said[name]
    journals = FileJournals(root)
    reader = ReadUncommittedIter(journals.reader("x"), shop.Order)
    written = [(e.message.customer, e.message.amount, e.begin, e.end) for e in reader]
    # No byte of the journal is anything but a frame, and they are without gaps.
    assert caplog.text == ""
    assert [begin for _, _, begin, _ in written] == [0, *(end for *_, end in written[:-1])]
    assert written[-1][3] == journals.offsets("x")[1]
    seen: dict[str, list[int]] = {}
    for envelope in ReadCommittedIter(journals.reader("x"), shop.Order):
        seen.setdefault(envelope.message.customer, []).append(envelope.message.amount)
    assert caplog.text == ""
    for name, amounts in said.items():
        # Each once, in order; all that was said to be written, and at most one more step of the writer's.
        assert seen[name] == list(range(len(seen[name])))
        assert amounts <= set(seen[name])
        assert len(seen[name]) <= len(amounts) + 3
