"""Journals in files: fragments, heads, jumps, damage, threads and forks."""

from __future__ import annotations

import errno
import os
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from krammar.journal import (
    AckIntent,
    AppendError,
    CorruptJournalError,
    FileJournals,
    JournalSpec,
    UnknownJournalError,
    append_intents,
)
from krammar.journal import file_reader as module
from tests.journal.stores import frame, opened
from tests.support.waiting import PATIENCE


def read(
    journals: FileJournals, begin: int = 0, end: int | None = None, **more: Any
) -> list[bytes]:
    reader = journals.reader("x", begin, end, **more)
    texts = []
    at = None
    while frames := reader.read():
        for begin, end, data in frames:
            assert len(data) == end - begin
            assert at is None or begin >= at
            at = end
            texts.append(data[8:])
    assert reader.read() == []
    return texts


@pytest.fixture
def small(tmp_path: Path) -> FileJournals:
    """Journals whose fragments have 30 bytes or a frame more."""
    journals = opened(tmp_path, fragment_bytes=30)
    journals.create("x")
    return journals


def fragments(folder: Path) -> dict[int, int]:
    return {int(path.stem): path.stat().st_size for path in sorted(folder.glob("*.fragment"))}


# Which journals there are.


def test_journals_are_made_once(tmp_path: Path) -> None:
    journals = opened(tmp_path)
    spec = JournalSpec("a/b", "application/x-ndjson", {"topic": "orders"})
    assert journals.create(spec) == spec
    assert journals.create(JournalSpec("a/b", "application/x-ndjson")) == spec
    assert opened(tmp_path).spec("a/b") == spec
    with pytest.raises(ValueError, match="a/b exists with the content type 'application/x-ndjson'"):
        journals.create("a/b")
    assert journals.create("a/c", topic="bills").labels == {"topic": "bills"}
    assert sorted(path.name for path in (tmp_path / "a/b").iterdir()) == ["head", "spec"]


def test_a_journal_whose_fsync_fails_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fsync(file: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        with pytest.raises(OSError, match="Input/output error"):
            opened(tmp_path).create("x")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    opened(tmp_path).create("x")
    assert sorted(path.name for path in (tmp_path / "x").iterdir()) == ["head", "spec"]


def test_intents_of_a_journal_that_is_gone_hold_up_no_others(tmp_path: Path) -> None:
    journals = opened(tmp_path)
    journals.create("x")
    intents = [AckIntent("gone", frame(b"1")), AckIntent("x", frame(b"2"))]
    with pytest.raises(UnknownJournalError, match="journal 'gone' does not exist"):
        append_intents(journals, intents)
    assert read(journals) == [b"2"]


def test_lists(tmp_path: Path) -> None:
    journals = opened(tmp_path)
    assert journals.list() == []
    for name in ("b/1", "b/0", "a", "b/1/deep"):
        journals.create(name)
    assert [spec.name for spec in journals.list()] == ["a", "b/0", "b/1", "b/1/deep"]
    assert [spec.name for spec in journals.list("b/")] == ["b/0", "b/1", "b/1/deep"]
    at_once = journals.partitions("b/", refresh_ms=0)
    later = journals.partitions("b/")
    before = at_once()
    assert at_once() is before
    assert later() == before
    journals.create("b/2")
    assert [spec.name for spec in at_once()] == ["b/0", "b/1", "b/1/deep", "b/2"]
    assert later() == before


def test_journals_that_are_not_there(tmp_path: Path) -> None:
    journals = opened(tmp_path)
    for use in (journals.spec, journals.reader, journals.offsets):
        with pytest.raises(UnknownJournalError, match="journal 'x' does not exist in"):
            use("x")
    with pytest.raises(UnknownJournalError, match="journal 'x' does not exist in"):
        journals.append("x", b"")
    with pytest.raises(ValueError, match="is not a valid name of a journal"):
        journals.reader("../x")


# Appending and reading.


def test_what_lies_where(small: FileJournals, tmp_path: Path) -> None:
    appends = [small.append("x", frame(b"12")) for _ in range(5)]
    appends[0].result()
    # What waited was written together.
    assert all(append.done for append in appends)
    assert [(a.begin, a.end) for a in appends] == [(n, n + 10) for n in range(0, 50, 10)]
    assert appends[0].journal == "x"
    assert small.append("x", frame(b"34")).result().begin == 50
    assert small.append("x", frame(b"5" * 30)).result().end == 98
    assert small.append("x", frame(b"")).result().begin == 98
    assert fragments(tmp_path / "x") == {0: 50, 50: 48, 98: 8}
    assert (tmp_path / "x" / f"{0:020}.fragment").read_bytes() == frame(b"12") * 5
    assert small.offsets("x") == (0, 106)
    expected = [b"12"] * 5 + [b"34", b"5" * 30, b""]
    assert read(small) == expected
    for size in (1, 3, 9, 11, 40):
        assert read(small, chunk_bytes=size) == expected
    assert read(small, 10, 60) == expected[1:6]
    # Frames that begin before the end.
    assert read(small, 60, 61) == [b"5" * 30]
    assert read(small, 60, 60) == []
    assert read(small, 500) == []
    with pytest.raises(ValueError, match="offset -1 is negative"):
        small.reader("x", -1)
    with small.reader("x").between(10, 30) as reader:
        assert [frame[0] for frame in reader.read()] == [10, 20]


def test_nothing_is_read_of_an_empty_journal(small: FileJournals) -> None:
    assert read(small) == []
    assert small.offsets("x") == (0, 0)


def test_the_end_is_that_of_when_the_reader_was_made(small: FileJournals) -> None:
    small.append("x", frame(b"1")).result()
    reader = small.reader("x")
    small.append("x", frame(b"2")).result()
    assert len(reader.read()) == 1
    assert reader.read() == []


def test_a_reader_that_follows(small: FileJournals) -> None:
    reader = small.reader("x", follow=True)
    texts: list[bytes] = []
    first = threading.Event()

    def follow() -> None:
        while frames := reader.read():
            texts.extend(frame[2][8:] for frame in frames)
            first.set()

    thread = threading.Thread(target=follow)
    thread.start()
    small.append("x", frame(b"0")).result()
    assert first.wait(PATIENCE)
    for number in range(1, 20):
        small.append("x", frame(b"%d" % number)).result()
    reader_of_all = small.reader("x", follow=True)
    assert sum(1 for _ in reader_of_all.read()) > 0
    while len(texts) < 20:
        assert thread.is_alive()
        first.clear()
        first.wait(1)
    reader.close()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert texts == [b"%d" % number for number in range(20)]


def test_appends_that_nobody_waits_for(small: FileJournals) -> None:
    append = small.append("x", frame(b"1"))
    reader = small.reader("x", follow=True)
    assert [frame[:2] for frame in reader.read()] == [(0, 9)]
    assert append.result().done


def test_a_full_buffer_is_written(tmp_path: Path) -> None:
    journals = opened(tmp_path, buffer_bytes=20, linger_ms=1e9)
    journals.create("x")
    first = journals.append("x", frame(b"1"))
    assert not first.done
    second = journals.append("x", frame(b"123"))
    assert first.done and second.done
    third = journals.append("x", frame(b"1"))
    journals.flush()
    assert third.done


def test_closing_writes_what_waits(tmp_path: Path) -> None:
    with FileJournals(tmp_path, linger_ms=1e6, fsync=True) as journals:
        journals.create("x")
        append = journals.append("x", frame(b"1"))
    assert append.done
    assert read(opened(tmp_path)) == [b"1"]
    with pytest.raises(AppendError, match="the journals are closed"):
        journals.append("x", b"")


# Offsets after which no frame remains.


def test_fragments_are_pruned(small: FileJournals, tmp_path: Path, caplog: Any) -> None:
    for number in range(10):
        small.append("x", frame(b"%d1" % number)).result()
    assert list(fragments(tmp_path / "x")) == [0, 30, 60, 90]
    followed = small.reader("x", 10, chunk_bytes=10)
    assert followed.read()[0][0] == 10
    assert small.prune("x", 59) == 30
    assert small.prune("x", 1000) == 90
    assert small.offsets("x") == (90, 100)
    assert caplog.text == ""
    # An open fragment stays readable; then reading continues with the remaining ones.
    assert [f[0] for f in iter(lambda: (followed.read() or [None])[0], None)] == [20, 90]
    assert "x: offsets 30 to 90 do not exist any more; skipping them" in caplog.text
    assert read(small) == [b"91"]
    assert "x: offsets 0 to 90 do not exist any more" in caplog.text
    assert read(small, 0, 50) == []


def test_a_fragment_in_the_middle_is_gone(small: FileJournals, tmp_path: Path, caplog: Any) -> None:
    for number in range(10):
        small.append("x", frame(b"%d1" % number)).result()
    (tmp_path / "x" / f"{30:020}.fragment").unlink()
    assert read(small) == [b"01", b"11", b"21", b"61", b"71", b"81", b"91"]
    assert "x: offsets 30 to 60 do not exist any more" in caplog.text
    caplog.clear()
    # And one that ends too early, in the middle of a frame: the rest is reported as damaged.
    os.truncate(tmp_path / "x" / f"{60:020}.fragment", 14)
    reader = small.reader("x", 60)
    found = [f for _ in range(5) for f in reader.read()]
    assert [f[:2] for f in found] == [(60, 70), (70, 74), (90, 100)]
    assert "x: offsets 74 to 90 do not exist any more" in caplog.text


def test_ranges_whose_first_ones_are_gone(tmp_path: Path) -> None:
    """Large frames too, after which a read would return early."""
    journals = opened(tmp_path, fragment_bytes=10_000)
    journals.create("x")
    ends = [0]
    for text in (b"a" * 9000, b"b" * 9000, b"c" * 9000, b"d"):
        ends.append(ends[-1] + 8 + len(text))
        journals.append("x", frame(text)).result()
    reader = journals.reader("x", 0).ranges(list(pairwise(ends)))
    assert journals.prune("x", ends[3]) > ends[1]
    found = []
    while frames := reader.read():
        found += [data[8:9] for _, _, data in frames]
    assert found[-1:] == [b"d"]


def test_all_fragments_are_gone(small: FileJournals, tmp_path: Path, caplog: Any) -> None:
    small.append("x", frame(b"12")).result()
    (tmp_path / "x" / f"{0:020}.fragment").unlink()
    assert small.offsets("x") == (10, 10)
    assert read(small) == []
    journals = opened(tmp_path)
    assert journals.append("x", frame(b"34")).result().begin == 10
    assert "x: offsets 0 to 10 are lost: the last fragment ends before" in caplog.text
    assert read(journals) == [b"34"]


def test_a_tail_that_a_power_cut_took(small: FileJournals, tmp_path: Path, caplog: Any) -> None:
    for _ in range(2):
        small.append("x", frame(b"12")).result()
    os.truncate(tmp_path / "x" / f"{0:020}.fragment", 13)
    reader = small.reader("x")
    assert [f[:2] for f in reader.read()] == [(0, 10)]
    assert reader.read() == []
    assert "x: the 3 bytes at the end, from offset 10, are not a complete frame" in caplog.text
    # Offsets that may have been read are not given to others.
    assert opened(tmp_path).append("x", frame(b"34")).result().begin == 20
    assert fragments(tmp_path / "x") == {0: 13, 20: 10}
    reader = small.reader("x")
    assert [f[:2] for _ in range(4) for f in reader.read()] == [(0, 10), (10, 13), (20, 30)]


# Beginning anywhere.


@pytest.mark.parametrize("chunk", [7, 100])
def test_any_offset_to_begin_at(small: FileJournals, chunk: int) -> None:
    texts = [b"%d" % n * (1 + n % 4) for n in range(12)]
    begins = [small.append("x", frame(text)).result().begin for text in texts]
    end = small.offsets("x")[1]
    assert end > begins[-1]
    for cut in range(end + 1):
        # Two readers that share a journal at any offset read each frame once.
        first = read(small, 0, cut, synchronise=True, chunk_bytes=chunk)
        second = read(small, cut, end, synchronise=True, chunk_bytes=chunk)
        assert first + second == texts
        assert len(first) == sum(begin < cut for begin in begins)


def test_any_offset_in_lines(tmp_path: Path) -> None:
    journals = opened(tmp_path)
    journals.create(JournalSpec("x", "application/x-ndjson"))
    lines = [b"%d\n" % n for n in (1, 22, 333, 4)]
    for line in lines:
        journals.append("x", line)
    journals.flush()
    assert journals.offsets("x") == (0, 11)
    for cut in range(12):
        found = []
        for begin, end in ((0, cut), (cut, 1000)):
            reader = journals.reader("x", begin, end, synchronise=True, chunk_bytes=2)
            while frames := reader.read():
                found += [frame[2] for frame in frames]
        assert found == lines


# Damage.


def test_a_torn_head_is_the_one_before(small: FileJournals, tmp_path: Path) -> None:
    for _ in range(2):
        small.append("x", frame(b"12")).result()
    path = tmp_path / "x" / "head"
    whole = path.read_bytes()
    # The first head sets the limit, and the second append wrote the second slot.
    for at in range(512, 586):
        damaged = bytearray(whole)
        damaged[at] ^= 0x55
        path.write_bytes(damaged)
        assert opened(tmp_path).offsets("x") == (0, 10)
        path.write_bytes(whole[:at])
        assert opened(tmp_path).offsets("x") == (0, 10)
    path.write_bytes(whole)
    assert small.offsets("x") == (0, 20)


def test_a_head_that_is_no_more(small: FileJournals, tmp_path: Path) -> None:
    path = tmp_path / "x" / "head"
    path.write_bytes(bytes(534))
    with pytest.raises(CorruptJournalError, match="head: both slots are damaged"):
        small.offsets("x")
    append = small.append("x", frame(b"1"))
    with pytest.raises(AppendError, match=r"x: .*head: both slots are damaged") as caught:
        append.result()
    assert isinstance(caught.value.__cause__, CorruptJournalError)
    assert append.error is caught.value
    path.unlink()
    with pytest.raises(CorruptJournalError, match="the file head is missing"):
        small.reader("x")


def test_a_spec_that_is_none(tmp_path: Path) -> None:
    opened(tmp_path).create("x")
    (tmp_path / "x" / "spec").write_bytes(b"\0\0\0")
    with pytest.raises(CorruptJournalError, match=r"spec: JournalSpec"):
        opened(tmp_path).spec("x")


def test_a_disk_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journals = opened(tmp_path, linger_ms=1e6)
    journals.create("x")
    journals.append("x", frame(b"1")).result()
    real = os.pwrite

    def full(file: int, data: Any, offset: int) -> int:
        if len(data) > 12:
            raise OSError(28, "No space left on device")
        return real(file, bytes(data)[:5], offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        appends = [journals.append("x", frame(b"12345")) for _ in range(3)]
        for append in appends:
            with pytest.raises(AppendError, match=r"x: .*No space left on device"):
                append.result()
    # Nothing of it is in the journal.
    assert journals.append("x", frame(b"2")).result().begin == 9
    assert read(journals) == [b"1", b"2"]


def test_a_disk_that_does_not_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journals = opened(tmp_path, fsync=True)
    journals.create("x")
    journals.append("x", frame(b"1")).result()
    real, calls = os.fsync, []

    def broken(file: int) -> None:
        calls.append(file)
        if len(calls) == 2:
            raise OSError(5, "Input/output error")
        real(file)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", broken)
        with pytest.raises(AppendError, match="unknown whether the append survives a power cut"):
            journals.append("x", frame(b"2")).result()


def test_an_interrupted_append_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journals = opened(tmp_path, linger_ms=1e6)
    journals.create("x")

    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    append = journals.append("x", frame(b"1"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", interrupted)
        with pytest.raises(KeyboardInterrupt):
            append.result()
    with pytest.raises(AppendError, match="x: KeyboardInterrupt"):
        append.result()
    assert journals.append("x", frame(b"2")).result().begin == 0


# Several at once.


def test_threads_and_objects_append_to_one_journal(tmp_path: Path) -> None:
    stores = [opened(tmp_path, fragment_bytes=500) for _ in range(2)]
    stores[0].create("x")

    def work(store: FileJournals, name: bytes) -> None:
        for number in range(100):
            append = store.append("x", frame(b"%s%03d" % (name, number)))
            if number % 7 == 0:
                append.result()

    threads = [
        threading.Thread(target=work, args=(store, b"%d%c" % (n, c)))
        for n, store in enumerate(stores)
        for c in b"ab"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for store in stores:
        store.close()
    texts = read(opened(tmp_path))
    assert len(texts) == 400
    for name in (b"0a", b"0b", b"1a", b"1b"):
        mine = [text for text in texts if text.startswith(name)]
        assert mine == [b"%s%03d" % (name, number) for number in range(100)]


def test_a_fork_leaves_what_waits_to_its_parent(tmp_path: Path) -> None:
    journals = opened(tmp_path, linger_ms=1e6)
    journals.create("x")
    journals.append("x", frame(b"written")).result()
    waiting = journals.append("x", frame(b"parent"))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            journals.flush()
            journals.append("x", frame(b"child")).result()
            journals.close()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    waiting.result()
    assert read(journals) == [b"written", b"child", b"parent"]


def test_two_make_a_journal_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = opened(tmp_path), opened(tmp_path)
    real = os.link

    def late(source: Any, target: Any) -> None:
        monkeypatch.setattr(os, "link", real)
        second.create("x")
        second.append("x", frame(b"1")).result()
        real(source, target)

    monkeypatch.setattr(os, "link", late)
    first.create("x")
    assert read(first) == [b"1"]
    assert sorted(path.name[0] for path in (tmp_path / "x").iterdir()) == ["0", "h", "s"]


def test_a_fragment_that_goes_while_it_is_looked_for(
    small: FileJournals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(7):
        small.append("x", frame(b"%d1" % number)).result()
    real = module.fragments
    listed: list[list[int]] = []

    def stale(folder: Path) -> list[int]:
        listed.append(real(folder))
        if len(listed) == 1:
            small.prune("x", 30)
            listed[0] = [0, *listed[0][1:]]
        return listed[-1]

    reader = small.reader("x")
    monkeypatch.setattr(module, "fragments", stale)
    found = [f for _ in range(5) for f in reader.read()]
    assert found[0][0] == 30
