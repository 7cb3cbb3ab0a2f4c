"""Writes to journals on disks that are full or fail, and drivers that are killed before a power cut."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from krammar.spark.errors import SparkSourceError
from krammar.spark.journal import delivery as delivery_module
from tests.journal.disks import ERRORS, Disk, each_call
from tests.spark.test_journal_intents import Query, committed, written


@pytest.mark.parametrize("stays", [False, True], ids=["once", "for a while"])
@pytest.mark.parametrize("error", ERRORS, ids=os.strerror)
def test_a_micro_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int, stays: bool
) -> None:
    """At each call that changes a file, in tasks and driver. Spark then runs the batch again."""
    monkeypatch.setattr(os, "fsync", lambda file: None)  # no power is cut here
    folders = iter(range(10_000))
    messages = set()

    def act(disk: Disk) -> None:
        folder = tmp_path / str(next(folders))
        Query(folder).run(0, ["a"])
        query = Query(folder)
        with disk.mounted():
            try:
                published = query.publish(1, ["b"], ["c"])
                writer = query.writer()
                try:
                    writer.commit(published, 1)
                except SparkSourceError:
                    writer.abort(published, 1)
                    raise
            except SparkSourceError as failure:
                messages.add(str(failure).replace(str(folder), "FOLDER"))
        for number, values in ((1, ["b", "c"]), (2, ["d"])):
            Query(folder).run(number, values)
        assert committed(folder) == ["a", "b", "c", "d"]

    failed = Counter[str]()
    for disk in each_call(act, error, stays=stays):
        failed.update(disk.failed[:1])
    assert failed["pwrite"] > 5 and failed["fsync"] > 5 and failed["rename"] and failed["create"]
    assert messages and all(os.strerror(error) in message for message in messages)
    assert any("intents" in message for message in messages)


def test_a_commit_is_on_the_disk_before_it_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver was killed before the flush. Otherwise the next one would acknowledge rows that a power cut can undo."""
    query = Query(tmp_path)
    query.run(0, ["a"])
    published = query.publish(1, ["b"])

    class Killed(BaseException):
        pass

    with monkeypatch.context() as patch:
        real = os.rename

        def rename(old: Any, new: Any) -> None:
            real(old, new)
            if str(new).endswith(".last"):
                raise Killed

        patch.setattr(os, "rename", rename)
        with pytest.raises(Killed):
            query.commit(1, published)
    [batches] = (tmp_path / "intents").iterdir()
    calls: list[str] = []
    real_fsync, real_append = os.fsync, delivery_module.append_intents

    def fsync(file: int) -> None:
        if os.path.samestat(os.fstat(file), batches.stat()):
            calls.append("sync")
        real_fsync(file)

    def append(*args: Any) -> None:
        calls.append("append")
        real_append(*args)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(delivery_module, "append_intents", append)
    before = written(tmp_path)
    Query(tmp_path).writer()
    assert calls[:2] == ["sync", "append"]
    assert written(tmp_path) == before + 1
    assert committed(tmp_path) == ["a", "b"]
