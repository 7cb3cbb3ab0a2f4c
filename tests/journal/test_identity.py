"""Journals that are deleted and created again, and journals whose names could be names of files."""

from __future__ import annotations

import itertools
import os
import pickle
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias
from uuid import UUID, uuid4
from zlib import crc32

import pytest
from journal_wire import JournalHead

from krammar.broker import Broker
from krammar.client import Client
from krammar.journal import (
    Checkpoint,
    FileJournals,
    JournalError,
    Publisher,
    ReadCommittedIter,
    Sequencer,
    TopicJournals,
    UnknownJournalError,
)
from krammar.journal.heads import Head
from tests.journal.stores import amounts, frame, opened, to
from tests.support.waiting import PATIENCE, until

AnyJournals: TypeAlias = FileJournals | TopicJournals
# Journals with a journal "r/0", and a function that deletes it and creates it again.
Place: TypeAlias = tuple[AnyJournals, Callable[[], None]]


@pytest.fixture(params=["files", "renamed files", "topics"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "topics":
        with Broker.start() as broker, Client(broker.bootstrap_servers) as client:
            client.admin.create_topic("r")

            def create_topic_again() -> None:
                client.admin.delete_topic("r")
                client.admin.create_topic("r")

            with TopicJournals(broker.bootstrap_servers) as topics:
                yield topics, create_topic_again
        return
    journals = opened(tmp_path / "a", fragment_bytes=500)
    journals.create("r/0")

    def create_again() -> None:
        shutil.rmtree(journals.folder("r/0"))
        journals.create("r/0")

    def rename_another() -> None:
        other = opened(tmp_path / "b")
        other.create("r/0")
        os.rename(journals.folder("r/0"), tmp_path / "old")
        os.rename(other.folder("r/0"), journals.folder("r/0"))

    yield journals, create_again if request.param == "files" else rename_another


def publish(journals: AnyJournals, shop: Any, numbers: range) -> None:
    publisher = Publisher(journals)
    for number in numbers:
        append = publisher.publish_committed(to("r/0"), shop.Order(amount=number))
    # A write to the deleted journal fails once; see docs/journal.md.
    append.result()


@pytest.mark.parametrize("new", [0, 5, 100, 200])
def test_a_checkpoint_of_an_earlier_journal(place: Place, shop: Any, new: int) -> None:
    """Whether the new journal is shorter than the old one was, as long, or longer."""
    journals, create_again = place
    publish(journals, shop, range(100))
    with ReadCommittedIter(journals.reader("r/0"), shop.Order) as iterator:
        assert amounts(iterator) == list(range(100))
        stored = iterator.checkpoint().encode()
    found = Checkpoint.decode(stored)
    assert found.journal_ids == {"r/0": journals.journal_id("r/0")}
    begin, journal_id = found.read_through["r/0"], found.journal_ids["r/0"]
    with journals.reader("r/0", begin, journal_id=journal_id) as reader:
        assert reader.read() == []
    create_again()
    journals.close()
    with journals_again(journals) as again:
        if new:
            publish(again, shop, range(1000, 1000 + new))
        with pytest.raises(
            UnknownJournalError, match=r"r/0: the journal was deleted and created again"
        ) as caught:
            again.reader("r/0", begin, journal_id=journal_id)
        assert caught.value.current_id == again.journal_id("r/0") != journal_id
        assert pickle.loads(pickle.dumps(caught.value)).current_id == caught.value.current_id
        for _ in range(2):
            with pytest.raises(UnknownJournalError, match="begin again with a new reader"):
                again.reader("r/0", begin, journal_id=journal_id, follow=True).read()
        # The choice to begin again.
        with ReadCommittedIter(again.reader("r/0"), shop.Order, Sequencer()) as iterator:
            assert amounts(iterator) == list(range(1000, 1000 + new))


def journals_again(journals: AnyJournals) -> AnyJournals:
    if isinstance(journals, FileJournals):
        return FileJournals(journals.root)
    return TopicJournals(journals._client.settings)


def test_a_reader_that_follows_an_earlier_journal(place: Place, shop: Any) -> None:
    journals, create_again = place
    publish(journals, shop, range(100))
    reader = journals.reader("r/0", follow=True)
    seen: list[int] = []
    errors: list[Exception] = []

    def follow() -> None:
        try:
            for envelope in ReadCommittedIter(reader, shop.Order):
                seen.append(envelope.message.amount)
        except JournalError as error:  # while files are deleted, the journal may look damaged
            errors.append(error)

    thread = threading.Thread(target=follow)
    thread.start()
    until(lambda: len(seen) == 100)
    create_again()
    with journals_again(journals) as again:
        publish(again, shop, range(1000, 1300))
        thread.join(PATIENCE)
    assert not thread.is_alive()
    assert seen == list(range(100))
    assert len(errors) == 1
    with pytest.raises(UnknownJournalError, match="r/0: the journal was deleted and created again"):
        reader.read()
    reader.close()


def test_a_reader_in_the_middle_of_an_earlier_journal(tmp_path: Path) -> None:
    """Wherever it was when the journal was created again, it returns frames of the earlier one only."""
    for turn, count in enumerate(range(1, 41)):
        journals = FileJournals(tmp_path / f"{turn}", fragment_bytes=64)
        journals.create("r")
        for number in range(40):
            journals.append("r", frame(b"old %02d" % number))
            journals.flush()
        reader = journals.reader("r", follow=True, chunk_bytes=16)
        read: list[bytes] = []
        while len(read) < count:
            read += [data for _, _, data in reader.read()]
        shutil.rmtree(journals.folder("r"))
        journals.create("r")
        again = FileJournals(journals.root, fragment_bytes=96)
        for number in range(40):
            again.append("r", frame(b"new %02d" % number))
            again.flush()
        with pytest.raises(UnknownJournalError, match="r: the journal was deleted and created ag"):
            read.extend(data for frames in iter(reader.read, None) for _, _, data in frames)
        assert read == [frame(b"old %02d" % number) for number in range(len(read))]
        for each in (again, journals, reader):
            each.close()


def test_a_journal_that_was_deleted_while_it_is_read(tmp_path: Path) -> None:
    journals = opened(tmp_path, fragment_bytes=16)
    journals.create("r")
    for _ in range(4):
        journals.append("r", frame(b"12345678")).result()
    reader = journals.reader("r", chunk_bytes=16)
    assert len(reader.read()) == 1
    shutil.rmtree(journals.folder("r"))
    with pytest.raises(UnknownJournalError, match=r"the journal in .*r was deleted"):
        list(iter(reader.read, []))


def test_a_journal_of_before_ids_gets_one(tmp_path: Path) -> None:
    journals = opened(tmp_path)
    journals.create("r")
    head = journals.folder("r") / "head"
    older = Head()._asdict()
    del older["journal_id"]
    data = JournalHead(version=1, **older).encode()[:-4]
    slot = (data + crc32(data).to_bytes(4, "big")).ljust(512, b"\0")
    head.write_bytes(slot + slot)
    assert journals.journal_id("r") == UUID(int=0)
    reader = journals.reader("r", follow=True)
    journals.append("r", frame(b"1")).result()
    assert len(reader.read()) == 1
    assert reader.journal_id == journals.journal_id("r") != UUID(int=0)
    for known in (reader.journal_id, UUID(int=0), None):
        assert len(journals.reader("r", journal_id=known).read()) == 1
    with pytest.raises(UnknownJournalError, match="created again"):
        journals.reader("r", journal_id=uuid4())


# Names.

PARTS = [
    "a",
    "b",
    "head",
    "HEAD",
    "spec",
    "spec.fragment",
    f"{0:020}.fragment",
    ".head.0123456789abcdef",
    "..a",
    "x.fragment",
    "h" * 200,
]
# In a random order, because the first one to be created could hide the others.
NAMES = [
    "/".join(parts) for depth in (1, 2) for parts in itertools.product(PARTS, repeat=depth)
] + ["a/head/spec/a", "spec/spec/spec", "head/head/head/head"]


@pytest.mark.parametrize("seed", range(3))
def test_no_names_collide(tmp_path: Path, seed: int) -> None:
    chosen = random.Random(seed).sample(NAMES, 60)
    journals = opened(tmp_path / "journals")
    for name in chosen:
        journals.create(name, name=name)
        journals.append(name, frame(name.encode()))
    journals.flush()
    for name in chosen:
        assert [data for _, _, data in journals.reader(name).read()] == [frame(name.encode())]
    assert [spec.name for spec in journals.list()] == sorted(chosen)
    assert all(spec.labels == {"name": spec.name} for spec in journals.list())
    for name in NAMES:
        if name not in chosen:
            with pytest.raises(UnknownJournalError):
                journals.spec(name)
    assert os.listdir(tmp_path) == ["journals"]


@pytest.mark.parametrize("name", ["", "a/", "/a", "a//b", ".", "a/..", "~a", "a/~head", "x" * 201])
def test_names_that_are_not_valid(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="is not a valid name of a journal: use parts separated"):
        opened(tmp_path).create(name)
    assert list(tmp_path.iterdir()) == []
