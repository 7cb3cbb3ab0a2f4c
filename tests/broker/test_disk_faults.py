"""A full or failing disk at each call that changes it: clear errors, no acknowledged loss, other partitions go on."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from kafka_wire import (
    ConfigResourceType,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    ErrorCode,
    IncrementalAlterConfigsRequest,
    InitProducerIdRequest,
)

from krammar.broker import Broker, BrokerError
from krammar.wire.batches import Record, encode_batch, read_batches
from tests.broker.faulty_disk import Disk
from tests.broker.groups.support import codes, commit_request
from tests.broker.groups.support import fetch as committed_offsets
from tests.broker.requests import create_topic, fetch, fetch_request, list_offset, produce
from tests.broker.support import PATIENCE, RawClient

HOUR = "3600000"
PROPERTIES = {
    "krammar.fsync.interval.ms": HOUR,
    "log.cleaner.backoff.ms": HOUR,
    "log.retention.check.interval.ms": HOUR,
    "log.segment.delete.delay.ms": "0",
}
# So that each call of the broker comes up: short segments, and compaction that is always due.
CONFIGS = {
    "cleanup_policy": "compact,delete",
    "internal_segment_bytes": "400",
    "min_cleanable_dirty_ratio": "0",
    "retention_ms": "-1",
    "file_delete_delay_ms": "0",
}


def records(number: int, key: bytes) -> bytes:
    return encode_batch([Record(timestamp=1_700_000_000_000, key=key, value=b"%040d" % number)])


@dataclass
class Job:
    """What a client does, and what was acknowledged.

    ``values``    the keys and values by topic and offset
    ``starts``    the log start offsets that topic t can have
    ``commits``   the offsets that can be committed: the last acknowledged one, and later ones without answer
    ``raised``    what the periodic flushes raised, which `Upkeep` logs
    ``topics``    the topics that exist, by name; None if an answer was an error
    """

    broker: Broker
    client: RawClient
    values: dict[str, dict[int, tuple[bytes, bytes]]] = field(
        default_factory=lambda: {"t": {}, "other": {}}
    )
    starts: set[int] = field(default_factory=lambda: {0})
    commits: set[int] = field(default_factory=lambda: {-1})
    topics: dict[str, bool | None] = field(default_factory=dict)
    setting: set[str] = field(default_factory=lambda: {"1000"})
    producer_ids: list[int] = field(default_factory=list)
    errors: list[tuple[str, ErrorCode]] = field(default_factory=list)
    raised: list[str] = field(default_factory=list)
    number: int = 0

    def _noted(self, what: str, code: int) -> bool:
        if code:
            self.errors.append((what, ErrorCode(code)))
        return not code

    def produce(self, topic: str, key: bytes = b"k") -> bool:
        self.number += 1
        answer = produce(self.client, topic, records(self.number, key))
        if self._noted(f"produce {topic}", answer.error_code):
            self.values[topic][answer.base_offset] = key, b"%040d" % self.number
        return not answer.error_code

    def commit(self, offset: int) -> None:
        code = codes(self.client.call(commit_request({0: offset}), 9))[0]
        if self._noted("commit", code):
            self.commits.clear()
        self.commits.add(offset)

    def create(self, name: str) -> None:
        topic = CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=1, replication_factor=1
        )
        answer = self.client.call(CreateTopicsRequest(topics=[topic], timeout_ms=10000), 7)
        code = answer.topics[0].error_code
        if code == ErrorCode.TOPIC_ALREADY_EXISTS and self.topics.get(name, False) is not False:
            code = 0  # the deletion has failed
        ok = self._noted("create", code)
        self.topics[name] = True if ok else None

    def delete(self, name: str) -> None:
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=10000)
        code = self.client.call(request, 5).responses[0].error_code
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not self.topics[name]:
            code = 0  # the creation has failed
        self.topics[name] = False if self._noted("delete", code) else None

    def delete_records(self, before: int) -> None:
        partition = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=before)
        topic = DeleteRecordsRequest.DeleteRecordsTopic(name="t", partitions=[partition])
        answer = self.client.call(DeleteRecordsRequest(topics=[topic], timeout_ms=1000), 2)
        if self._noted("delete records", answer.topics[0].partitions[0].error_code):
            self.starts.clear()
        self.starts.add(before)

    def configure(self, value: str) -> None:
        change = IncrementalAlterConfigsRequest.AlterableConfig(
            name="max.message.bytes", config_operation=0, value=value
        )
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=ConfigResourceType.TOPIC, resource_name="other", configs=[change]
        )
        answer = self.client.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        if self._noted("configure", answer.responses[0].error_code):
            self.setting.clear()
        self.setting.add(value)

    def new_producer(self) -> None:
        answer = self.client.call(
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4
        )
        if self._noted("producer id", answer.error_code):
            self.producer_ids.append(answer.producer_id)

    def use_up_producer_ids(self) -> None:
        """The next one needs a new block, which is a record of the metadata."""
        self.broker.call(lambda: list(self.broker.transactions._ids._block))

    def keep(self) -> None:
        """What the broker does by itself from time to time."""

        def work() -> None:
            logs = self.broker.logs
            for _ in range(2):
                try:
                    logs.flush()
                except OSError as error:
                    self.raised.append(str(error))
                logs.maintain()
                while logs.compact():
                    pass
            self.broker.cluster._snapshot()

        self.broker.call(work)

    def begin(self) -> None:
        create_topic(self.client, "t", **CONFIGS)
        create_topic(self.client, "other", max_message_bytes="1000", retention_ms="-1")
        self.produce("t", b"first")
        self.produce("other")
        self.commit(0)
        self.new_producer()
        assert self.errors == []

    def work(self, place: tuple[str, str] = ("", "")) -> None:
        """All that changes files. Nothing may go wrong with topic other, unless its new name cannot be stored."""
        steps: list[Callable[[], object]] = [
            *(lambda at=at: self.produce("t", b"%d" % (at % 4)) for at in range(8)),  # type: ignore[misc]
            lambda: self.commit(1),
            lambda: self.create("new"),
            lambda: self.configure("2000"),
            self.use_up_producer_ids,
            self.new_producer,
            lambda: self.delete_records(min(2, max(self.values["t"]))),
            self.keep,
            lambda: self.produce("t"),
            lambda: self.delete("new"),
            lambda: self.create("new"),
            lambda: self.commit(2),
            self.keep,
        ]
        for step in steps:
            step()
            assert self.produce("other") or place == ("fsync", "."), self.errors

    def check(self, broker: Broker, client: RawClient) -> None:
        """Nothing that was acknowledged is lost."""
        self.broker, self.client = broker, client
        for topic, values in self.values.items():
            start = list_offset(client, topic, -2).offset
            assert start <= (max(self.starts) if topic == "t" else 0)
            found = everything(client, topic, start)
            assert set(found.values()) <= {
                (key, b"%040d" % number)
                for key, _ in values.values()
                for number in range(self.number + 1)
            }
            newest = {key: offset for offset, (key, _) in sorted(found.items())}
            for offset, (key, value) in values.items():
                # Records were deleted before the start of topic t, and compaction removes older ones of a key.
                gone = topic == "t" and (offset < start or newest.get(key, -1) > offset)
                assert gone or found.get(offset) == (key, value), (topic, offset)
        for name, exists in self.topics.items():
            assert exists in (None, name in broker.cluster.topics)
        committed, _, code = committed_offsets(client, 7)["t", 0]
        assert code == 0
        assert committed in self.commits
        assert broker.cluster.configs[2, "other"]["max.message.bytes"] in self.setting
        issued = list(self.producer_ids)
        self.new_producer()
        assert self.producer_ids.pop() not in issued


def everything(client: RawClient, topic: str, offset: int) -> dict[int, tuple[bytes, bytes]]:
    """The keys and values of a topic by their offsets."""
    found: dict[int, tuple[bytes, bytes]] = {}
    while True:
        answer = fetch(client, topic, offset)
        assert answer.error_code == 0, (topic, offset, answer)
        if not answer.records:
            return found
        for one in read_batches(answer.records):
            offset = one.next_offset
            for record in one:
                assert record.key is not None and record.value is not None
                found[record.offset] = record.key, record.value


def site(call: str, path: str) -> tuple[str, str]:
    """A call and the kind of file: numbers and unique ids are left out."""
    path = re.sub(r"\.[0-9a-f]{32}-", ".UUID-", path)
    return call, re.sub(r"[0-9]{10,}", "N", path)


@contextlib.contextmanager
def started(folder: Path, fsync: str) -> Iterator[tuple[Broker, RawClient]]:
    with (
        Broker.start(data_dir=folder, properties={**PROPERTIES, "krammar.fsync": fsync}) as broker,
        RawClient(broker.port) as client,
    ):
        yield broker, client


def sites(folder: Path, fsync: str, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The places at which the job changes the disk, those of topic other excepted."""
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


# The errors of coordinators whose log cannot be written; clients retry.
COORDINATOR = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)


@pytest.mark.parametrize(
    ("fsync", "error"),
    [
        ("always", errno.EIO),
        ("interval", errno.ENOSPC),
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
    """A broker starts all the same, or not at all, with an error that says where and why."""
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
    [line] = [each.getMessage() for each in caplog.records if "offline" in each.getMessage()]
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
        deadline = time.monotonic() + PATIENCE
        while len(disk.failed) < 5:
            assert time.monotonic() < deadline
        disk.mend()
        while not (tmp_path / "recovery-point-offset-checkpoint").exists():
            assert time.monotonic() < deadline
    lines = [each.getMessage() for each in caplog.records if "to the disk" in each.getMessage()]
    assert len(lines) == 1 and "No space left on device" in lines[0]


def test_topics_are_flushed_by_their_own_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """flush.ms takes effect at once, whatever the interval of the broker is."""
    disk = Disk(tmp_path, monkeypatch)
    with started(tmp_path, "never") as (broker, client):
        create_topic(client, "t", flush_ms="20")
        create_topic(client, "u", flush_messages="2")
        create_topic(client, "v")
        for name in ("t", "u", "v"):
            assert produce(client, name, records(1, b"k")).error_code == 0
        log = broker.logs.get("t", 0)
        assert log is not None
        deadline = time.monotonic() + PATIENCE
        while log.recovery_point == 0:
            assert time.monotonic() < deadline
        assert not forced(disk, "[uv]-0/.*log")
        assert produce(client, "u", records(2, b"k")).error_code == 0
        assert forced(disk, "u-0/.*log") and not forced(disk, "v-0/.*log")


def forced(disk: Disk, path: str) -> bool:
    return any(call in ("fsync", "fdatasync") and re.fullmatch(path, at) for call, at in disk.calls)
