"""Journals in topics whose broker has a power cut or a failing disk: acknowledged appends are its records."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from krammar.broker import Broker
from krammar.client import Client
from krammar.journal import AppendError, TopicJournals
from tests.broker.faulty_disk import Disk
from tests.broker.power import KILLED, MODELS, Power, materialize
from tests.journal.stores import frame

SETTINGS = {"delivery.timeout.ms": 1_500, "request.timeout.ms": 1_000, "linger.ms": 0}
JOURNAL = "t/0"


@contextmanager
def journals(folder: Path, fsync: str) -> Iterator[tuple[Broker, TopicJournals]]:
    properties = {"krammar.fsync": fsync, "krammar.fsync.interval.ms": "3600000"}
    with Broker.start(data_dir=folder, properties=properties) as broker:
        with Client(broker.bootstrap_servers) as client:
            if "t" not in client.topics():
                client.admin.create_topic("t", partitions=1)
        with TopicJournals(broker.bootstrap_servers, SETTINGS) as opened:
            yield broker, opened


def texts(opened: TopicJournals) -> list[bytes]:
    reader = opened.reader(JOURNAL)
    found = []
    while frames := reader.read():
        found += [data[8:] for _, _, data in frames]
    return found


@pytest.mark.parametrize(
    ("fsync", "model"),
    [
        *(("always", model) for model in MODELS),
        *(("interval", model) for model in MODELS),
        *(("never", model) for model in MODELS),
        *((fsync, KILLED) for fsync in ("always", "interval", "never", "off")),
    ],
)
def test_power_cuts_and_kills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fsync: str, model: str
) -> None:
    with monkeypatch.context() as patch:
        power = Power(tmp_path / "before", patch)
        with journals(tmp_path / "before", fsync) as (broker, opened):
            opened.append(JOURNAL, frame(b"1")).result()
            if fsync == "never":  # records in complete segments survive
                log = broker.logs.get("t", 0)
                assert log is not None
                broker.call(log.retention.roll)
            broker.call(broker.logs.flush)
            opened.append(JOURNAL, frame(b"2")).result()
            state = broker.call(power.state, model)
        power.close()
    materialize(state, tmp_path / "after")
    with journals(tmp_path / "after", fsync) as (_, opened):
        everything = fsync == "always" or model == KILLED
        found = texts(opened)
        assert found == [b"1", b"2"] or (found == [b"1"] and not everything)
        opened.append(JOURNAL, frame(b"3")).result()
        assert texts(opened) == [*found, b"3"]


@pytest.mark.parametrize(
    ("call", "error"),
    [("p?writev?", errno.ENOSPC), ("p?writev?", errno.EIO), ("fsync|fdatasync", errno.EIO)],
)
def test_a_disk_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, error: int
) -> None:
    with monkeypatch.context() as patch:
        disk = Disk(tmp_path, patch)
        with journals(tmp_path, "always") as (_, opened):
            opened.append(JOURNAL, frame(b"1")).result()
            with (
                disk.failing(call, "t-0/.*log", error),
                pytest.raises(AppendError, match=JOURNAL),
            ):
                opened.append(JOURNAL, frame(b"lost")).result()
    with journals(tmp_path, "always") as (_, opened):
        assert texts(opened) == [b"1"]
        opened.append(JOURNAL, frame(b"2")).result()
        assert texts(opened) == [b"1", b"2"]
