"""Journals in files after power cuts and failed fsyncs: heads, bytes and files that are old, missing or zero."""

from __future__ import annotations

import errno
import logging
import os
import shutil
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from krammar.journal import (
    NULL_UUID,
    AppendError,
    FileJournals,
    JournalSpec,
    ReadUncommittedIter,
)
from krammar.journal import heads as module
from krammar.journal.journal_file import JournalFile
from krammar.util import boot as boot_module
from tests.journal.stores import frame, opened


def read(journals: FileJournals, begin: int = 0) -> list[tuple[int, bytes]]:
    """Read all frames of the journal x, with their offsets."""
    reader = journals.reader("x", begin)
    found = []
    while frames := reader.read():
        found += [(at, data[8:]) for at, _, data in frames]
    return found


def restart(patch: pytest.MonkeyPatch) -> None:
    """Let the machine have another run, as after a power cut."""
    boot = uuid4()
    patch.setattr(boot_module, "_boot", lambda: boot)


def fragment(root: Path, begin: int = 0) -> Path:
    return root / "x" / f"{begin:020}.fragment"


def zero(path: Path, begin: int, end: int) -> None:
    with path.open("r+b") as file:
        file.seek(begin)
        file.write(bytes(end - begin))


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """A journal with one message, as a writer leaves it that has not ended; others append three more."""
    journals = opened(tmp_path / "before")
    journals.create("x")
    journals.append("x", frame(b"0")).result()
    shutil.copytree(tmp_path / "before", tmp_path / "early")
    for number in (1, 2, 3):
        journals.append("x", frame(b"%d" % number)).result()
    shutil.copytree(tmp_path / "before", tmp_path / "late")
    return tmp_path


def test_offsets_are_used_once(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With any remains of head and bytes, and any position of a reader."""
    heads = [disk / which / "x/head" for which in ("early", "late")]
    for number, head in enumerate(heads):
        for size in range(37):
            root = disk / f"{number}-{size}"
            shutil.copytree(disk / "late", root)
            shutil.copy(head, root / "x/head")
            os.truncate(fragment(root), size)
            restart(monkeypatch)
            before = read(opened(root))
            assert before == [(9 * n, b"%d" % n) for n in range(len(before))]
            with FileJournals(root) as journals:
                begin = journals.append("x", frame(b"new")).result().begin
                assert begin >= 36
                for checkpoint in (0, 9, 18, 27, 36):
                    assert read(journals, checkpoint)[-1] == (begin, b"new")
                assert read(journals) == [*before, (begin, b"new")]
            if size == 36:
                assert len(before) == (1 if number == 0 else 4)


def test_a_fragment_whose_name_is_lost(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fragment(disk / "late").unlink()
    restart(monkeypatch)
    journals = opened(disk / "late")
    assert journals.offsets("x") == (0, 0)
    begin = journals.append("x", frame(b"new")).result().begin
    assert begin >= 36
    assert read(journals) == [(begin, b"new")]


@pytest.mark.parametrize("content_type", ["application/x-ndjson", "application/x-krammar-fixed"])
@pytest.mark.parametrize("begin", [5, 10, 20], ids=str)
def test_zeros_are_no_messages(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    shop: Any,
    content_type: str,
    begin: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A message of zeros can be decoded, and a line of zeros would hide the message after it."""
    journals = opened(tmp_path)
    spec = journals.create(JournalSpec("x", content_type))

    def order(customer: str) -> bytes:
        message = shop.Order(version=1, customer=customer, amount=1)
        message.set_uuid(UUID(int=1))
        return spec.framing.marshal(message)

    journals.append("x", order("ada")).result()
    monkeypatch.setattr(JournalFile, "unsynced_seconds", 0)
    synced = journals.append("x", order("bob")).result().end
    monkeypatch.undo()
    end = journals.append("x", order("eve")).result().end
    zero(fragment(tmp_path), synced + begin, end)
    restart(monkeypatch)
    again = opened(tmp_path)

    def customers() -> list[str]:
        found = list(ReadUncommittedIter(again.reader("x"), shop.Order))
        assert all(one.message.get_uuid() != NULL_UUID for one in found)
        return [one.message.customer for one in found]

    assert customers() == ["ada", "bob"]
    assert again.append("x", order("new")).result().begin >= end
    assert f"x: offsets {synced} to {end} are lost" in caplog.text
    assert customers() == ["ada", "bob", "new"]


def test_what_is_intact_is_kept(
    disk: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    restart(monkeypatch)
    journals = opened(disk / "late")
    assert journals.offsets("x") == (0, 36)
    assert journals.append("x", frame(b"new")).result().begin > 36
    assert [text for _, text in read(journals)] == [b"0", b"1", b"2", b"3", b"new"]
    assert "Messages after offset 36 may be lost" in caplog.text


def test_a_closed_journal_goes_on_without_a_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(3):
        with FileJournals(tmp_path) as journals:
            journals.create("x")
            assert journals.append("x", frame(b"1")).result().begin == 9 * number
        restart(monkeypatch)
    assert caplog.text == ""


@pytest.mark.parametrize("boot", ["the same", "another"])
def test_with_fsync_nothing_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, boot: str
) -> None:
    journals = opened(tmp_path, fsync=True, fragment_bytes=20)
    journals.create("x")
    for number in range(5):
        assert journals.append("x", frame(b"1")).result().begin == 9 * number
        if boot == "another":
            restart(monkeypatch)
    assert journals.offsets("x") == (0, 45)
    assert caplog.text == ""


def test_readers_see_what_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With fsync, a checkpoint must not be after what a power cut leaves."""
    journals = opened(tmp_path, fsync=True)
    journals.create("x")
    journals.append("x", frame(b"1")).result()
    real, ends = os.fsync, []

    def fsync(file: int) -> None:
        ends.append(journals.offsets("x")[1])
        real(file)

    monkeypatch.setattr(os, "fsync", fsync)
    journals.append("x", frame(b"2")).result()
    assert len(ends) == 2 and set(ends) == {9}
    assert journals.offsets("x") == (0, 18)


def test_an_append_that_was_on_the_disk_but_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its writer was cut off between the fsync of the head and its next write. No offset is used twice."""
    # This thread writes each append, not the journals' own.
    journals = opened(tmp_path, fsync=True, linger_ms=1_000_000)
    journals.create("x")
    journals.append("x", frame(b"1")).result()
    real = os.fsync

    class Cut(BaseException):
        pass

    def fsync(file: int) -> None:
        real(file)
        if os.path.samestat(os.fstat(file), os.stat(tmp_path / "x/head")):
            raise Cut

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        with pytest.raises(Cut):
            journals.append("x", frame(b"2")).result()
    assert [text for _, text in read(journals)] == [b"1"]
    shutil.copytree(tmp_path / "x", tmp_path / "other/x")
    # A process that continues, and the machine after a restart.
    journals.append("x", frame(b"3")).result()
    assert read(journals) == [(0, b"1"), (9, b"2"), (18, b"3")]
    restart(monkeypatch)
    assert read(opened(tmp_path / "other")) == [(0, b"1"), (9, b"2")]


# Failed fsyncs without fsync=True.


def failing(real: Any, root: Path) -> Any:
    def fsync(file: int) -> None:
        if os.path.samestat(os.fstat(file), os.stat(fragment(root))):
            raise OSError(errno.EIO, "Input/output error")
        real(file)

    return fsync


def test_a_failed_fsync_is_repeated_with_all_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The kernel drops what it could not write, and a second fsync would succeed without it."""
    journals = opened(tmp_path)
    journals.create("x")
    journals.append("x", frame(b"1")).result()
    monkeypatch.setattr(JournalFile, "unsynced_seconds", 0)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing(os.fsync, tmp_path))
        journals.append("x", frame(b"2")).result()
        assert "x: offsets 0 to 18 could not be forced to the disk" in caplog.text
        with pytest.raises(AppendError, match=r"x: .*Input/output error"):
            journals.append("x", frame(b"3")).result()
    assert [text for _, text in read(journals)] == [b"1", b"2"]
    real, written = os.pwrite, []

    def pwrite(file: int, data: Any, offset: int) -> int:
        if os.path.samestat(os.fstat(file), os.stat(fragment(tmp_path))):
            written.append((offset, bytes(data)))
        return real(file, data, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    journals.append("x", frame(b"4")).result()
    assert written == [(0, frame(b"1") + frame(b"2")), (18, frame(b"4"))]
    assert [text for _, text in read(journals)] == [b"1", b"2", b"4"]


def test_bytes_that_a_failed_fsync_has_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As they are after the kernel has dropped their pages."""
    journals = opened(tmp_path)
    journals.create("x")
    journals.append("x", frame(b"1")).result()
    monkeypatch.setattr(JournalFile, "unsynced_seconds", 0)
    journals.append("x", frame(b"2")).result()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing(os.fsync, tmp_path))
        journals.append("x", frame(b"3")).result()
    zero(fragment(tmp_path), 18, 27)
    begin = journals.append("x", frame(b"4")).result().begin
    assert "x: offsets 18 to 27 are lost" in caplog.text
    assert read(journals) == [(0, b"1"), (9, b"2"), (begin, b"4")]


def test_closing_a_journal_on_a_broken_disk_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    journals = FileJournals(tmp_path)
    journals.create("x")
    journals.append("x", frame(b"1")).result()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing(os.fsync, tmp_path))
        journals.close()
    assert "x: the last appends may not survive a power cut: [Errno 5]" in caplog.text


# Heads of earlier versions of krammar.


def test_a_head_of_version_0_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    opened(tmp_path).create("x")
    fragment(tmp_path).write_bytes(frame(b"1"))
    slot = bytes.fromhex("0000 0000000000000009 0000000000000000")
    slot += module.crc32(slot).to_bytes(4, "big")
    (tmp_path / "x/head").write_bytes(slot.ljust(512, b"\0") + slot)
    journals = opened(tmp_path)
    assert read(journals) == [(0, b"1")]
    journals.append("x", frame(b"2")).result()
    assert read(journals) == [(0, b"1"), (9, b"2")]
    assert caplog.text == ""
