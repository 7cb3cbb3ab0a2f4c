"""Journals in files on disks that are full or return errors, at each call that changes a file."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from krammar.journal import AppendError, FileJournals
from krammar.journal.journal_file import JournalFile
from tests.journal.disks import ERRORS, Disk, each_call
from tests.journal.stores import frame
from tests.journal.test_power_cuts import read, restart


@pytest.mark.parametrize("stays", [False, True], ids=["once", "for a while"])
@pytest.mark.parametrize("error", ERRORS, ids=os.strerror)
@pytest.mark.parametrize("fsync", [False, True], ids=["without fsync", "fsync"])
def test_appends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fsync: bool, error: int, stays: bool
) -> None:
    """Acknowledged frames are read, in order; errors are raised; the writer continues when the disk works again."""
    monkeypatch.setattr(JournalFile, "unsynced_seconds", 0)
    monkeypatch.setattr(os, "fsync", lambda file: None)  # no power is cut here
    folders = iter(range(10_000))

    def act(disk: Disk) -> None:
        root = tmp_path / str(next(folders))
        acknowledged, unknown = [], []
        with FileJournals(root, fsync=fsync, fragment_bytes=25, linger_ms=1e6) as journals:
            journals.create("x")
            journals.create("other")
            journals.append("x", frame(b"0")).result()
            acknowledged.append(b"0")
            with disk.mounted():
                for number in range(1, 6):
                    text = b"%d" % number
                    append = journals.append("x", frame(text))
                    with suppress(AppendError):
                        append.result()
                    if append.error is None:
                        acknowledged.append(text)
                        continue
                    said = str(append.error)
                    assert said.startswith("x: ") and os.strerror(error) in said
                    if "unknown" in said:
                        unknown.append(text)
            # The disk works again: nothing has to be opened or created again.
            for number in range(6, 9):
                journals.append("x", frame(b"%d" % number)).result()
                acknowledged.append(b"%d" % number)
            journals.append("other", frame(b"1")).result()
            found = [text for _, text in read(journals)]
            assert [text for text in found if text not in unknown] == acknowledged
        # Others read the same, also after a restart of the machine.
        with FileJournals(root) as again, monkeypatch.context() as patch:
            assert [text for _, text in read(again)] == found
            restart(patch)
            assert [text for _, text in read(again)] == found

    failed = Counter[str]()
    for disk in each_call(act, error, stays=stays):
        failed.update(disk.failed[:1])
    # Five appends in two fragments.
    assert failed["pwrite"] >= 12 and failed["fsync"] >= 5 and failed["create"] == 1


@pytest.mark.parametrize("error", ERRORS, ids=os.strerror)
def test_a_journal_is_created(tmp_path: Path, error: int) -> None:
    """If that fails, it can be repeated."""
    folders = iter(range(10_000))

    def act(disk: Disk) -> None:
        root = tmp_path / str(next(folders))
        journals = FileJournals(root)
        with suppress(OSError), disk.mounted():
            journals.create("a/x")
        journals.create("a/x")
        with journals:
            journals.append("a/x", frame(b"1")).result()
            assert journals.offsets("a/x") == (0, 9)

    assert len(list(each_call(act, error, stays=True))) > 5
