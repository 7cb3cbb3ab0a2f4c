"""Journals in files and forks, with threads and with processes that are killed."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from krammar.journal import AppendError, FileJournals, JournalSpec
from tests.journal.stores import frame, opened
from tests.journal.test_power_cuts import read

# A process with a writer forks a child, and is killed while it writes.
KILLED_PARENT = """\
import os, signal, sys
from pathlib import Path

from krammar.journal import FileJournals, journal_file

journals = FileJournals(sys.argv[1], linger_ms=1e6)
journals.append("x", b"\\x66\\x33\\x93\\x36\\1\\0\\0\\0a").result()
begun, begins = os.pipe()
if os.fork() == 0:
    os.write(begins, b"1")
    sys.stdin.read()  # until the test has ended
    os._exit(0)
os.read(begun, 1)


def killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)


journal_file.write_fully = killed
journals.append("x", b"\\x66\\x33\\x93\\x36\\1\\0\\0\\0b").result()
"""


def forked(act: Callable[[], None]) -> None:
    """Call a function in a forked process, which must end well."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            act()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


@pytest.fixture
def switching() -> Iterator[None]:
    """Let threads take turns as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("switching")
def test_threads_of_a_forked_process_lose_nothing(tmp_path: Path) -> None:
    """The first append of each thread finds no writer, all at the same time."""
    journals = opened(tmp_path, linger_ms=1e6)
    journals.create("x")

    def act() -> None:
        start = threading.Barrier(8)

        def append(number: int) -> None:
            start.wait()
            journals.append("x", frame(b"%d" % number))

        threads = [threading.Thread(target=append, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        journals.flush()

    rounds = 60
    for _ in range(rounds):
        forked(act)
    texts = [text for _, text in read(journals)]
    assert sorted(texts) == sorted([b"%d" % number for number in range(8)] * rounds)


@pytest.mark.usefixtures("switching")
def test_forks_while_threads_append(tmp_path: Path) -> None:
    """Each process writes its own appends, and none of another process."""
    journals = opened(tmp_path, linger_ms=0)
    journals.create("x")
    stop = threading.Event()
    counts = [0] * 3

    def append(number: int) -> None:
        while not stop.is_set():
            journals.append("x", frame(b"%d:%05d" % (number, counts[number])))
            counts[number] += 1
            if counts[number] % 5 == 0:
                journals.flush()

    threads = [threading.Thread(target=append, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    children = 20
    try:
        for child in range(children):
            forked(lambda n=child: journals.append("x", frame(b"c:%05d" % n)).result() and None)  # type: ignore[misc]
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    journals.flush()
    texts = [text for _, text in read(journals)]
    for name, count in (("0", counts[0]), ("1", counts[1]), ("2", counts[2]), ("c", children)):
        mine = [text for text in texts if text.startswith(name.encode())]
        assert mine == [b"%s:%05d" % (name.encode(), number) for number in range(count)]


def test_an_append_from_before_the_fork(tmp_path: Path) -> None:
    journals = opened(tmp_path, linger_ms=1e6)
    journals.create("x")
    append = journals.append("x", frame(b"1"))

    def act() -> None:
        with pytest.raises(AppendError, match="x: the append was begun before this process was"):
            append.result()

    forked(act)
    append.result()
    assert read(journals) == [(0, b"1")]


def test_a_killed_process_leaves_no_lock_to_its_children(tmp_path: Path) -> None:
    journals = opened(tmp_path)
    journals.create("x")
    command = [sys.executable, "-c", KILLED_PARENT, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert process.wait() == -signal.SIGKILL
        with open(tmp_path / "x/head", "rb") as head:
            # Raises if another process has the lock.
            fcntl.flock(head, fcntl.LOCK_EX | fcntl.LOCK_NB)
    journals.append("x", frame(b"c")).result()
    assert read(journals) == [(0, b"a"), (9, b"c")]


# Journals that are deleted.


@pytest.mark.parametrize("fsync", [False, True])
def test_a_journal_that_is_deleted_and_created_again(tmp_path: Path, fsync: bool) -> None:
    """An open file can be written after it was deleted, where nobody reads it."""
    journals = opened(tmp_path, fsync=fsync)
    journals.create("x")
    journals.append("x", frame(b"1")).result()
    shutil.rmtree(tmp_path / "x")
    append = journals.append("x", frame(b"2"))
    with pytest.raises(AppendError, match="x: the journal was deleted; create it again, and rep"):
        append.result()
    opened(tmp_path).create("x")
    journals.append("x", frame(b"3")).result()
    assert read(journals) == [(0, b"3")]
    shutil.rmtree(tmp_path / "x")
    opened(tmp_path).create("x")
    with pytest.raises(AppendError, match="was deleted and created again, and nothing was appe"):
        journals.append("x", frame(b"4")).result()
    assert read(journals) == []
    journals.append("x", frame(b"5")).result()
    assert read(journals) == [(0, b"5")]


def test_a_journal_that_is_created_again_with_another_content_type(tmp_path: Path) -> None:
    journals = opened(tmp_path)
    journals.create("x")
    journals.append("x", frame(b"1")).result()
    shutil.rmtree(tmp_path / "x")
    with FileJournals(tmp_path) as others:
        others.create(JournalSpec("x", "application/x-ndjson"))
    with pytest.raises(AppendError, match="was deleted and created again"):
        journals.append("x", frame(b"2")).result()
    assert journals.spec("x").content_type == "application/x-ndjson"


def test_a_fragment_that_is_deleted_while_it_is_written(tmp_path: Path) -> None:
    journals = opened(tmp_path)
    journals.create("x")
    journals.append("x", frame(b"1")).result()
    (tmp_path / "x" / f"{0:020}.fragment").unlink()
    assert journals.append("x", frame(b"2")).result().begin == 9
    assert read(journals) == [(9, b"2")]
