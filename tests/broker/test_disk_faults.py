"""A full or failing disk at each call that changes it: errors are clear, no acknowledged record is lost, other partitions
continue."""

from __future__ import annotations

import errno
import logging
import os
import re
import shutil
from pathlib import Path

import pytest
from kafka_wire import (
    ErrorCode,
)

from krammar.broker import Broker, BrokerError
from tests.broker.disk_job import COORDINATOR, Job, records, started
from tests.broker.faulty_disk import Disk
from tests.broker.requests import create_topic, fetch, fetch_request, list_offset, produce
from tests.broker.support import RawClient
from tests.support.waiting import until


def site(call: str, path: str) -> tuple[str, str]:
    """Return a call and the kind of file, without numbers and unique ids."""
    path = re.sub(r"\.[0-9a-f]{32}-", ".UUID-", path)
    return call, re.sub(r"[0-9]{10,}", "N", path)


def sites(folder: Path, fsync: str, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Return the places where the job changes the disk, except in the topic ``other``."""
    with monkeypatch.context() as patch:
        disk = Disk(folder, patch)
        with started(folder, fsync) as (broker, client):
            job = Job(broker, client)
            job.begin()
            disk.calls.clear()
            job.work()
            assert job.errors == []
            found = dict.fromkeys(site(*call) for call in disk.calls)
            job.check(broker, client)
    return [(call, path) for call, path in found if not path.startswith("other-")]


def run(
    folder: Path, fsync: str, place: tuple[str, str], error: int, patch: pytest.MonkeyPatch
) -> list[str]:
    """Run the job while a place fails; then check it running, after a crash, and after a shutdown."""
    disk = Disk(folder, patch)
    with started(folder, fsync) as (broker, client):
        job = Job(broker, client)
        job.begin()
        disk.fail_where(lambda call, path: site(call, path) == place, error)
        job.work(place)
        disk.mend()
        assert disk.failed
        assert all(
            code in (ErrorCode.KAFKA_STORAGE_ERROR, *COORDINATOR) for _, code in job.errors
        ), job.errors
        offline = [log.path.name for log in broker.logs if log.offline]
        assert job.produce("t") == ("t-0" not in offline)
        if not offline:
            job.check(broker, client)
        removed = shutil.ignore_patterns("*.deleted", "*-delete")  # the broker is removing them
        shutil.copytree(folder, folder.with_name("crashed"), ignore=removed)
    for each in (folder, folder.with_name("crashed")):
        with started(each, fsync) as (broker, client):
            assert not [log for log in broker.logs if log.offline]
            job.check(broker, client)
            here = Job(broker, client)
            assert here.produce("t") and here.produce("other")
            here.commit(3)
            assert here.errors == []
    return job.raised


@pytest.mark.parametrize(
    ("fsync", "error"),
    [
        pytest.param("always", errno.EIO, marks=pytest.mark.sweep),
        pytest.param("interval", errno.ENOSPC, marks=pytest.mark.sweep),
        pytest.param("always", errno.ENOSPC, marks=pytest.mark.sweep),
        pytest.param("interval", errno.EIO, marks=pytest.mark.sweep),
        pytest.param("never", errno.ENOSPC, marks=pytest.mark.sweep),
        pytest.param("never", errno.EIO, marks=pytest.mark.sweep),
    ],
)
def test_each_place_fails(
    fsync: str,
    error: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    places = sites(tmp_path / "first", fsync, monkeypatch)
    assert len(places) > 40
    problems = []
    for number, place in enumerate(places):
        caplog.clear()
        folder = tmp_path / f"{number}" / "data"
        folder.parent.mkdir()
        problem, raised = "", []
        try:
            with monkeypatch.context() as patch:
                raised = run(folder, fsync, place, error, patch)
        except (AssertionError, BrokerError, OSError) as found:
            problem = f"{type(found).__name__}: {found}"
        # Whoever reads the log learns what happened.
        said = raised + [
            each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING
        ]
        if (
            not problem
            and place not in SILENT
            and not any(os.strerror(error) in line for line in said)
        ):
            problem = f"the log does not mention it: {said}"
        if problem:
            problems.append(f"{place}: {problem}")
        shutil.rmtree(folder.parent)
    assert not problems, "\n".join(problems)


# The next start removes these files.
SILENT = {("unlink", f"t-0/N.{ending}.deleted") for ending in ("log", "index", "timeindex")}


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO], ids=errno.errorcode.get)
def test_each_place_of_a_start_fails(
    error: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker starts anyway, or it fails with an error that says where and why."""
    first = tmp_path / "first"
    with monkeypatch.context() as patch:
        disk = Disk(first, patch)
        with started(first, "interval"):
            pass
        places = list(dict.fromkeys(site(*call) for call in disk.calls))
    assert len(places) > 15
    for number, place in enumerate(places):
        folder = tmp_path / f"{number}"
        text = os.strerror(error)
        caplog.clear()
        with monkeypatch.context() as patch:
            disk = Disk(folder, patch)
            disk.fail_where(lambda call, path, at=place: site(call, path) == at, error)  # type: ignore[misc]
            said = []
            try:
                with started(folder, "interval"):
                    pass
                said = [each.getMessage() for each in caplog.records]
            except BrokerError as refusal:
                said = [str(refusal)]
            assert any(text in line and str(folder) in line for line in said), (place, said)
            assert disk.failed
        with started(folder, "interval") as (_, client):
            create_topic(client, "t")
            assert produce(client, "t", records(1, b"k")).error_code == 0


def test_clients_and_metrics_report_an_offline_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    disk = Disk(tmp_path, monkeypatch)
    with started(tmp_path, "interval") as (broker, client):
        metrics = broker.metrics
        offline = "kafka_server_replicamanager_offlinereplicacount"
        folders = "kafka_log_logmanager_offlinelogdirectorycount"
        for name in ("t", "other"):
            create_topic(client, name, 2)
            for partition in (0, 1):
                assert produce(client, name, records(0, b"k"), partition).error_code == 0
        assert metrics.value(offline) == metrics.value(folders) == 0
        with RawClient(broker.port) as waiting, disk.failing("fsync", "t-1/.*"):
            waiting.send(fetch_request([("t", 1, 1)], max_wait_ms=600_000), 12)
            broker.call(lambda: None)
            broker.call(broker.logs.flush)
            answer = waiting.receive().responses[0].partitions[0]
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert metrics.value(offline) == metrics.value(folders) == 1
        refused = ErrorCode.KAFKA_STORAGE_ERROR
        assert produce(client, "t", records(1, b"k"), 1).error_code == refused
        assert fetch(client, "t", 0, 1).error_code == refused
        assert list_offset(client, "t", -1, 1).error_code == refused
        for name, partition in (("t", 0), ("other", 0), ("other", 1)):
            assert produce(client, name, records(1, b"k"), partition).base_offset == 1
        broker.call(broker.logs.flush)
    [line] = [each.getMessage() for each in caplog.records if "disk failed" in each.getMessage()]
    assert "t-1: the disk failed" in line and "then restart the broker" in line
    with started(tmp_path, "interval") as (broker, client):
        assert produce(client, "t", records(1, b"k"), 1).base_offset == 1
        assert broker.metrics.value(offline) == 0


def test_periodic_flushes_report_an_error_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    disk = Disk(tmp_path, monkeypatch)
    properties = {"krammar.fsync": "interval", "krammar.fsync.interval.ms": "10"}
    with (
        Broker.start(data_dir=tmp_path, properties=properties) as broker,
        RawClient(broker.port) as client,
    ):
        disk.fail("pwrite", "recovery-point.*", errno.ENOSPC)
        create_topic(client, "t")
        assert produce(client, "t", records(1, b"k")).error_code == 0
        until(lambda: len(disk.failed) >= 5)
        disk.mend()
        until((tmp_path / "recovery-point-offset-checkpoint").exists)
    lines = [each.getMessage() for each in caplog.records if "to the disk" in each.getMessage()]
    assert len(lines) == 1 and "No space left on device" in lines[0]


def test_topics_are_flushed_by_their_own_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """flush.ms takes effect at once, and does not depend on the broker's interval."""
    disk = Disk(tmp_path, monkeypatch)
    with started(tmp_path, "never") as (broker, client):
        create_topic(client, "t", flush_ms="20")
        create_topic(client, "u", flush_messages="2")
        create_topic(client, "v")
        for name in ("t", "u", "v"):
            assert produce(client, name, records(1, b"k")).error_code == 0
        log = broker.logs.get("t", 0)
        assert log is not None
        until(lambda: log.durability.recovery_point > 0)
        assert not forced(disk, "[uv]-0/.*log")
        assert produce(client, "u", records(2, b"k")).error_code == 0
        assert forced(disk, "u-0/.*log") and not forced(disk, "v-0/.*log")


def forced(disk: Disk, path: str) -> bool:
    return any(call in ("fsync", "fdatasync") and re.fullmatch(path, at) for call, at in disk.calls)
