"""The cluster metadata: in memory, in its log, and in logs written by other software."""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import kafka_wire
import pytest
from kafka_wire import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    EndTransactionRecord,
    ErrorCode,
    FeatureLevelRecord,
    FenceBrokerRecord,
    KRaftVersionRecord,
    LeaderChangeMessage,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
    VotersRecord,
)

from krammar.broker.cluster import ClusterMetadata
from krammar.broker.config import BrokerConfig
from krammar.broker.errors import ApiError, BrokerError
from krammar.broker.meta_properties import (
    MetaProperties,
    random_uuid,
    read_meta_properties,
)
from krammar.broker.metadata_records import encode_frame
from krammar.logfiles.metadata_frame import TYPES, decode_frame
from krammar.logfiles.uuids import format_uuid, parse_uuid
from krammar.util.turns import finish
from krammar.wire.batches import (
    ControlRecord,
    ControlRecordType,
    Record,
    RecordBatch,
    encode_batch,
    encode_control_batch,
    read_batches,
)
from krammar.wire.errors import DecodeError
from krammar.wire.message import Codec
from tests.broker.support import new_topic

TOPIC = 2
NOW = 1_700_000_000_000
ALICE = UserScramCredentialRecord(
    name="alice",
    mechanism=1,
    salt=b"salt",
    stored_key=b"k" * 32,
    server_key=b"k" * 32,
    iterations=4096,
)
ORDERS = UUID("00000000-0000-4000-8000-000000000001")
PAYMENTS = UUID("00000000-0000-4000-8000-000000000002")


@dataclass
class Folder:
    """A log directory, and the warnings when it was opened."""

    path: Path
    properties: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    opened: list[ClusterMetadata] = field(default_factory=list)

    @property
    def log(self) -> Path:
        return self.path / "__cluster_metadata-0"

    @property
    def segment(self) -> Path:
        return self.log / f"{0:020}.log"

    def open(self) -> ClusterMetadata:
        self.warnings.clear()
        config = BrokerConfig.defaults(**{"log.dirs": str(self.path), **self.properties})
        cluster = ClusterMetadata(config, now_ms=lambda: NOW, warn=self.warnings.append)
        self.opened.append(cluster)
        return cluster

    def reopen(self) -> ClusterMetadata:
        self.opened[-1].close()
        return self.open()

    def write(self, *batches: bytes, name: str = f"{0:020}.log") -> None:
        self.log.mkdir(parents=True, exist_ok=True)
        (self.log / name).write_bytes(b"".join(batches))

    def batches(self) -> list[RecordBatch]:
        return list(read_batches(self.segment.read_bytes(), allow_partial=False))


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    folder = Folder(tmp_path)
    yield folder
    for cluster in folder.opened:
        cluster.close()


def frames(batch: RecordBatch) -> list[Codec | int]:
    return [decode_frame(record.value or b"") for record in batch]


def frame(record: Codec, version: int = 0) -> bytes:
    """A record as others frame it, spelled out."""
    number = next(key for key, name in TYPES.items() if name == type(record).__name__)
    return bytes((1, number, version)) + record.encode(version)


def batch(base: int, *values: bytes, epoch: int = 1) -> bytes:
    records = [Record(timestamp=NOW, value=value) for value in values]
    return encode_batch(records, base_offset=base, partition_leader_epoch=epoch)


def control(base: int, kind: ControlRecordType, value: Any, epoch: int = 1) -> bytes:
    records = [ControlRecord(kind, value=value.encode(), timestamp=NOW)]
    return encode_control_batch(records, base_offset=base, partition_leader_epoch=epoch)


def partition(topic: UUID, index: int, **fields: Any) -> PartitionRecord:
    known: dict[str, Any] = {"replicas": [1], "isr": [1], "leader": 1}
    known |= {"leader_epoch": 0, "partition_epoch": 0}
    return PartitionRecord(topic_id=topic, partition_id=index, **(known | fields))


def snapshot(*values: bytes, complete: bool = True) -> bytes:
    parts = [
        control(0, ControlRecordType.SNAPSHOT_HEADER, SnapshotHeaderRecord()),
        batch(1, *values),
        control(1 + len(values), ControlRecordType.SNAPSHOT_FOOTER, SnapshotFooterRecord()),
    ]
    return b"".join(parts if complete else parts[:-1])


class Listener:
    name = "PLAINTEXT"
    protocol = "PLAINTEXT"


# A folder of our own.


def test_new_folder_is_as_kafka_formats_and_starts_one(folder: Folder) -> None:
    cluster = folder.open()
    cluster.register([(Listener(), "localhost", 9092)])  # type: ignore[list-item]

    assert cluster.features == {
        "metadata.version": 25,
        "group.version": 1,
        "transaction.version": 2,
        "kraft.version": 1,
    }
    assert cluster.topics == {}
    properties = read_meta_properties(folder.path)
    assert properties == MetaProperties(cluster.cluster_id, 1, cluster.directory_ids[0])
    first, second, third = folder.batches()
    assert first.is_control and first.base_offset == 0 and first.partition_leader_epoch == 1
    controls = first.control_records()
    assert [one.type for one in controls] == [
        ControlRecordType.LEADER_CHANGE,
        ControlRecordType.KRAFT_VERSION,
        ControlRecordType.KRAFT_VOTERS,
    ]
    assert LeaderChangeMessage.decode(controls[0].value or b"").leader_id == 1
    assert KRaftVersionRecord.decode(controls[1].value or b"").k_raft_version == 1
    [voter] = VotersRecord.decode(controls[2].value or b"").voters
    assert (voter.voter_id, voter.voter_directory_id) == (1, cluster.directory_ids[0])
    assert frames(second) == [
        BeginTransactionRecord(name="Bootstrap records"),
        FeatureLevelRecord(name="metadata.version", feature_level=25),
        FeatureLevelRecord(name="group.version", feature_level=1),
        FeatureLevelRecord(name="transaction.version", feature_level=2),
        EndTransactionRecord(),
    ]
    [registration] = frames(third)
    assert isinstance(registration, RegisterBrokerRecord)
    assert registration.broker_epoch == third.base_offset
    assert not registration.fenced
    assert registration.end_points[0].to_dict() == {
        "name": "PLAINTEXT",
        "host": "localhost",
        "port": 9092,
        "security_protocol": 0,
    }
    assert (folder.log / f"{0:020}.index").read_bytes() == b""
    assert (folder.log / f"{0:020}.timeindex").read_bytes() == b""


def test_everything_is_there_again_after_reopening(folder: Folder) -> None:
    cluster = folder.open()
    orders = new_topic(cluster, "orders", 2, configs={"retention.ms": "1000"})
    given = new_topic(cluster, "given", 1, topic_id=ORDERS)
    cluster.delete_topic(new_topic(cluster, "gone", 1, configs={"retention.ms": "1"}))
    finish(cluster.adding_partitions(orders, 3))
    cluster.set_configs(TOPIC, "orders", {"cleanup.policy": "compact", "retention.ms": None})
    cluster.set_configs(4, "", {"log.retention.ms": "5"})
    first_ids = cluster.allocate_producer_ids(1000)
    cluster.append([ALICE])

    again = folder.reopen()

    assert folder.warnings == []
    assert again.cluster_id == cluster.cluster_id
    assert again.directory_ids == cluster.directory_ids
    assert again.features == cluster.features
    assert sorted(again.topics) == ["given", "orders"]
    assert again.topics_by_id[ORDERS] is again.topics["given"]
    assert given.topic_id == ORDERS
    assert again.topics["orders"].topic_id == orders.topic_id
    assert list(again.topics["orders"].partitions) == [0, 1, 2]
    assert again.topics["orders"].partitions[2].leader == 1
    assert again.configs == {
        (TOPIC, "orders"): {"cleanup.policy": "compact"},
        (4, ""): {"log.retention.ms": "5"},
    }
    assert first_ids == 0
    assert again.next_producer_id == 1000
    assert again.allocate_producer_ids(1000) == 1000
    assert again.scram[1, "alice"].salt == b"salt"
    again.append([RemoveUserScramCredentialRecord(name="alice", mechanism=1)])
    assert folder.reopen().scram == {}


def test_opening_alone_writes_nothing_and_each_writer_begins_an_epoch(folder: Folder) -> None:
    new_topic(folder.open(), "a", 1)
    before = folder.segment.read_bytes()
    again = folder.reopen()
    folder.reopen()
    assert folder.segment.read_bytes() == before
    again = folder.reopen()
    new_topic(again, "b", 1)
    new_topic(again, "c", 1)
    epochs = [(one.partition_leader_epoch, one.is_control) for one in folder.batches()]
    assert epochs == [(1, True), (1, False), (1, False), (2, True), (2, False), (2, False)]
    offsets = [one.base_offset for one in folder.batches()]
    assert [one.next_offset for one in folder.batches()][:-1] == offsets[1:]
    assert again.last_offset == folder.batches()[-1].last_offset


def test_registration_is_written_when_it_differs(folder: Folder) -> None:
    cluster = folder.open()
    cluster.register([(Listener(), "a", 1)])  # type: ignore[list-item]
    size = folder.segment.stat().st_size
    again = folder.reopen()
    again.register([(Listener(), "a", 1)])  # type: ignore[list-item]
    assert folder.segment.stat().st_size == size
    again.register([(Listener(), "a", 2)])  # type: ignore[list-item]
    [last] = frames(folder.batches()[-1])
    assert isinstance(last, RegisterBrokerRecord)
    assert last.end_points[0].port == 2
    again.append([FenceBrokerRecord(id=1, epoch=last.broker_epoch)])
    again.register([(Listener(), "a", 2)])  # type: ignore[list-item]
    [last] = frames(folder.batches()[-1])
    assert isinstance(last, RegisterBrokerRecord) and not last.fenced


def test_internal_topics_are_marked(folder: Folder) -> None:
    cluster = folder.open()
    assert new_topic(cluster, "__consumer_offsets", 1).internal
    assert new_topic(cluster, "__transaction_state", 1).internal
    assert not new_topic(cluster, "__mine", 1).internal


def test_partitions_lie_in_the_only_log_directory_or_nowhere_yet(tmp_path: Path) -> None:
    one = Folder(tmp_path / "one")
    cluster = one.open()
    topic = new_topic(cluster, "t", 1)
    assert topic.partitions[0].directories == cluster.directory_ids
    cluster.close()
    two = Folder(tmp_path / "two", {"log.dirs": f"{tmp_path / 'two'},{tmp_path / 'three'}"})
    cluster = two.open()
    topic = new_topic(cluster, "t", 1)
    assert topic.partitions[0].directories == [UUID(int=1)]
    assert len(set(cluster.directory_ids)) == 2
    other = read_meta_properties(tmp_path / "three")
    assert other == MetaProperties(cluster.cluster_id, 1, cluster.directory_ids[1])
    cluster.close()


# Failed writes.


def test_nothing_changes_when_the_log_cannot_be_written(folder: Folder) -> None:
    cluster = folder.open()
    new_topic(cluster, "before", 1)
    intact = folder.segment.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # The limit falls inside of the batch, so that a part of it is written.
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(intact) + 100, limits[1]))
    try:
        with pytest.raises(ApiError) as caught:
            new_topic(cluster, "during", 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert folder.segment.read_bytes() == intact
    assert list(cluster.topics) == ["before"]
    new_topic(cluster, "after", 1)
    assert list(folder.reopen().topics) == ["before", "after"]


def test_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(BrokerError, match=r"meta\.properties"):
        Folder(blocked / "below").open()


# meta.properties.


def test_meta_properties_of_kafka(folder: Folder) -> None:
    (folder.path / "meta.properties").write_text(
        "#\n#Sat Nov 15 10:00:00 UTC 2025\nnode.id=1\n"
        "directory.id=1UMjcaWrSDKtzsSwQAIGNw\nversion=1\ncluster.id=WjoXsohUQiKFYlsJiwimuA\n"
    )
    before = (folder.path / "meta.properties").read_bytes()
    cluster = folder.open()
    assert cluster.cluster_id == "WjoXsohUQiKFYlsJiwimuA"
    assert cluster.directory_ids == [UUID("d5432371-a5ab-4832-adce-c4b040020637")]
    assert (folder.path / "meta.properties").read_bytes() == before


def test_meta_properties_of_version_0_and_of_another_node(folder: Folder) -> None:
    (folder.path / "meta.properties").write_text("version=0\nbroker.id=7\ncluster.id=abc\n")
    cluster = folder.open()
    assert cluster.cluster_id == "abc"
    assert any("node 7" in warning for warning in folder.warnings)
    assert read_meta_properties(folder.path) == MetaProperties("abc", 7, cluster.directory_ids[0])
    assert folder.reopen().directory_ids == cluster.directory_ids


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("version=2\ncluster.id=abc\n", "version 2"),
        ("version=1\nnode.id=x\n", "'x'"),
        ("version=1\ndirectory.id=short\n", "'short'"),
        ("version=1\nnode.id=\\u00\n", "meta.properties: line 2: "),
    ],
)
def test_meta_properties_that_cannot_be_used(folder: Folder, text: str, problem: str) -> None:
    (folder.path / "meta.properties").write_text(text)
    with pytest.raises(BrokerError, match=problem):
        folder.open()


def test_a_folder_in_place_of_meta_properties(folder: Folder) -> None:
    (folder.path / "meta.properties").mkdir()
    with pytest.raises(BrokerError, match=r"meta\.properties: cannot be read: Is a directory"):
        folder.open()


def test_log_directories_of_two_clusters_are_refused(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "meta.properties").write_text(f"version=1\ncluster.id={name}\n")
    both = Folder(tmp_path / "one", {"log.dirs": f"{tmp_path / 'one'},{tmp_path / 'two'}"})
    with pytest.raises(BrokerError, match="different clusters"):
        both.open()


def test_uuids_in_text() -> None:
    assert format_uuid(UUID(int=0)) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert parse_uuid("AAAAAAAAAAAAAAAAAAAAAQ") == UUID(int=1)
    for _ in range(300):
        value = random_uuid()
        assert parse_uuid(format_uuid(value)) == value
        assert not format_uuid(value).startswith("-")
    foreign = UUID("fbffffff-ffff-4fff-bfff-fffffffffffe")
    for text in (str(foreign), "+///////T/+//////////g==", "-_______T_-__________g"):
        assert parse_uuid(text) == foreign
    for text in ("", "AAAA", "A", "ÄÄ", "AAAAAAAAAAAAAAAAAAAAAAAA", "Ä" * 22, "x" * 36):
        with pytest.raises(ValueError, match=r"uuid|hexadecimal"):
            parse_uuid(text)


# Logs of others.


def test_folder_with_just_topics_and_partitions(folder: Folder) -> None:
    """The smallest possible log: no meta.properties, no snapshot, no control batch."""
    folder.write(
        batch(1, frame(FeatureLevelRecord(name="metadata.version", feature_level=20))),
        batch(
            2,
            frame(TopicRecord(name="orders", topic_id=ORDERS)),
            frame(partition(ORDERS, 0, leader_epoch=3), 1),
            frame(partition(ORDERS, 1), 1),
        ),
        batch(5, frame(TopicRecord(name="payments", topic_id=PAYMENTS))),
        batch(6, frame(partition(PAYMENTS, 0, replicas=[5], isr=[5], leader=5), 0)),
    )
    before = folder.segment.read_bytes()
    cluster = folder.open()
    assert folder.warnings == []
    assert cluster.features == {"metadata.version": 20}
    assert list(cluster.topics) == ["orders", "payments"]
    assert list(cluster.topics["orders"].partitions) == [0, 1]
    assert cluster.topics["orders"].partitions[0].leader_epoch == 3
    # This node is the leader now, although the log names another one.
    assert cluster.topics["payments"].partitions[0].leader == 1
    assert cluster.topics["payments"].partitions[0].replicas == [1]
    assert cluster.topics_by_id[PAYMENTS].name == "payments"
    assert len(cluster.cluster_id) == 22
    assert folder.segment.read_bytes() == before
    # Going on, at the record versions of that level.
    new_topic(cluster, "new", 1)
    assert folder.segment.read_bytes().startswith(before)
    change, written = folder.batches()[-2:]
    assert change.base_offset == 7 and change.partition_leader_epoch == 2
    values = [record.value or b"" for record in written]
    assert [value[:3] for value in values] == [b"\x01\x02\x00", b"\x01\x03\x01"]
    assert list(folder.reopen().topics) == ["orders", "payments", "new"]


def test_oldest_record_versions_without_a_feature_level(folder: Folder) -> None:
    folder.write(batch(0, frame(TopicRecord(name="old", topic_id=ORDERS))))
    cluster = folder.open()
    assert cluster.features == {}
    new_topic(cluster, "new", 1)
    cluster.register([(Listener(), "h", 1)])  # type: ignore[list-item]
    values = [
        record.value or b"" for one in folder.batches() if not one.is_control for record in one
    ]
    assert [value[:3] for value in values[1:]] == [
        b"\x01\x02\x00",
        b"\x01\x03\x00",
        b"\x01\x00\x01",
    ]


def test_changes_of_every_kind_are_followed(folder: Folder) -> None:
    folder.write(
        control(0, ControlRecordType.LEADER_CHANGE, LeaderChangeMessage(leader_id=1)),
        batch(
            1,
            frame(FeatureLevelRecord(name="metadata.version", feature_level=25)),
            frame(FeatureLevelRecord(name="group.version", feature_level=1)),
            frame(FeatureLevelRecord(name="group.version", feature_level=0)),
            frame(NoOpRecord()),
            frame(RegisterBrokerRecord(broker_id=1, broker_epoch=5), 3),
            frame(RegisterBrokerRecord(broker_id=2, broker_epoch=6), 3),
            frame(BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, fenced=-1), 2),
            frame(UnregisterBrokerRecord(broker_id=2, broker_epoch=6)),
            frame(TopicRecord(name="orders", topic_id=ORDERS)),
            frame(partition(ORDERS, 0), 2),
            frame(PartitionChangeRecord(topic_id=ORDERS, partition_id=0, leader=-1), 1),
            frame(PartitionChangeRecord(topic_id=ORDERS, partition_id=0, leader=2, isr=[2]), 2),
            frame(PartitionChangeRecord(topic_id=ORDERS, partition_id=0, isr=[1, 2]), 2),
            frame(PartitionChangeRecord(topic_id=PAYMENTS, partition_id=0, leader=1), 2),
            frame(TopicRecord(name="payments", topic_id=PAYMENTS)),
            frame(partition(PAYMENTS, 0), 2),
            frame(ConfigRecord(resource_type=2, resource_name="payments", name="a", value="b")),
            frame(RemoveTopicRecord(topic_id=PAYMENTS)),
            frame(ConfigRecord(resource_type=2, resource_name="orders", name="a", value="b")),
            frame(ConfigRecord(resource_type=2, resource_name="orders", name="a", value=None)),
            frame(ProducerIdsRecord(broker_id=1, broker_epoch=5, next_producer_id=3000)),
        ),
    )
    cluster = folder.open()
    assert folder.warnings == []
    assert cluster.features == {"metadata.version": 25}
    assert list(cluster.topics) == ["orders"]
    assert list(cluster.topics_by_id) == [ORDERS]
    served = cluster.topics["orders"].partitions[0]
    assert (served.leader, served.leader_epoch, served.partition_epoch) == (1, 2, 3)
    assert served.isr == [1]
    assert cluster.configs == {}
    assert cluster.next_producer_id == 3000


def test_every_known_record_is_taken_in() -> None:
    from krammar.broker.metadata_image import Image

    image = Image(1)
    known = [name for name in TYPES.values() if "Transaction" not in name]
    assert len(known) > 20
    for name in known:
        image.apply(getattr(kafka_wire, name)())  # a KeyError for a record without an effect


def test_transactions_take_effect_when_they_end(folder: Folder) -> None:
    def topic(number: int) -> bytes:
        return frame(TopicRecord(name=f"t{number}", topic_id=UUID(int=number)))

    folder.write(
        batch(0, frame(BeginTransactionRecord(name="x")), topic(1)),
        batch(2, topic(2), frame(EndTransactionRecord())),
        batch(4, frame(BeginTransactionRecord()), topic(3)),
        batch(6, frame(AbortTransactionRecord(reason="y")), topic(4)),
        batch(8, frame(BeginTransactionRecord()), topic(5)),
    )
    cluster = folder.open()
    assert list(cluster.topics) == ["t1", "t2", "t4"]
    new_topic(cluster, "t6", 1)
    assert list(folder.reopen().topics) == ["t1", "t2", "t4", "t6"]
    assert any(
        isinstance(record, AbortTransactionRecord)
        for one in folder.batches()[5:]
        if not one.is_control
        for record in frames(one)
    )


def test_snapshot_and_segments_behind_it(folder: Folder) -> None:
    def topic(number: int) -> bytes:
        return frame(TopicRecord(name=f"t{number}", topic_id=UUID(int=number)))

    folder.write(snapshot(topic(1)), name=f"{3:020}-{1:010}.checkpoint")
    folder.write(snapshot(topic(1), topic(2)), name=f"{6:020}-{4:010}.checkpoint")
    folder.write(snapshot(topic(9), complete=False), name=f"{8:020}-{4:010}.checkpoint")
    folder.write(b"\0" * 10, name=f"{9:020}-{4:010}.checkpoint")
    # The snapshot at 6 covers half of this batch.
    folder.write(batch(0, *[frame(NoOpRecord())] * 5, topic(8), topic(3)))
    folder.write(batch(7, topic(4), epoch=5), name=f"{7:020}.log")
    folder.write(batch(8, topic(5), epoch=6), name=f"{8:020}.log")
    cluster = folder.open()
    assert len(folder.warnings) == 2
    assert list(cluster.topics) == ["t1", "t2", "t3", "t4", "t5"]
    new_topic(cluster, "t6", 1)
    written = list(read_batches((folder.log / f"{8:020}.log").read_bytes()))
    assert [one.base_offset for one in written] == [8, 9, 10]
    assert written[-1].partition_leader_epoch == 7
    assert list(folder.reopen().topics)[-1] == "t6"


def test_segments_that_a_snapshot_covers_are_not_read(folder: Folder) -> None:
    topic = frame(TopicRecord(name="t", topic_id=ORDERS))
    folder.write(b"nothing that could be read")
    folder.write(snapshot(topic), name=f"{30:020}-{1:010}.checkpoint")
    other = frame(TopicRecord(name="u", topic_id=PAYMENTS))
    folder.write(batch(20, *[frame(NoOpRecord())] * 10, other), name=f"{20:020}.log")
    assert list(folder.open().topics) == ["t", "u"]


def test_snapshot_alone(folder: Folder) -> None:
    values = (
        frame(FeatureLevelRecord(name="metadata.version", feature_level=25)),
        frame(TopicRecord(name="t", topic_id=ORDERS)),
        frame(partition(ORDERS, 0), 2),
    )
    folder.write(snapshot(*values), name=f"{40:020}-{7:010}.checkpoint")
    cluster = folder.open()
    assert list(cluster.topics) == ["t"]
    new_topic(cluster, "u", 1)
    assert not folder.segment.exists()
    written = list(read_batches((folder.log / f"{40:020}.log").read_bytes()))
    assert (written[0].base_offset, written[0].partition_leader_epoch) == (40, 8)
    assert list(folder.reopen().topics) == ["t", "u"]


@pytest.mark.parametrize(
    "name", [f"__cluster_metadata-0/{0:020}-{0:010}.checkpoint", "bootstrap.checkpoint"]
)
def test_folder_that_kafka_has_formatted_but_not_started(folder: Folder, name: str) -> None:
    values = (
        frame(FeatureLevelRecord(name="metadata.version", feature_level=33)),
        frame(FeatureLevelRecord(name="group.version", feature_level=1)),
        frame(ALICE),
    )
    folder.log.mkdir()
    (folder.path / name).write_bytes(snapshot(*values))
    cluster = folder.open()
    assert cluster.features == {"metadata.version": 33, "group.version": 1}
    assert list(cluster.scram) == [(1, "alice")]
    # The log contains them too, as after Kafka's first start.
    [change, written] = folder.batches()
    assert change.is_control
    assert [type(record).__name__ for record in frames(written)] == [
        "BeginTransactionRecord",
        "FeatureLevelRecord",
        "FeatureLevelRecord",
        "UserScramCredentialRecord",
        "EndTransactionRecord",
    ]
    assert folder.reopen().features == {"metadata.version": 33, "group.version": 1}


def test_unknown_records_are_skipped_with_one_warning_each_type(folder: Folder) -> None:
    folder.write(
        batch(0, b"\x01\x64\x00abc", frame(TopicRecord(name="t", topic_id=ORDERS))),
        batch(2, b"\x01\xe4\x01\x00abc", b"\x01\x64\x00abc"),
    )
    cluster = folder.open()
    assert list(cluster.topics) == ["t"]
    assert [warning.split("unknown type ")[1].split()[0] for warning in folder.warnings] == [
        "100",
        "228",
    ]
    assert "offset 0" in folder.warnings[0] and "offset 2" in folder.warnings[1]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (b"", "truncated"),
        (b"\x02\x02\x00", "frame version 2"),
        (b"\x01\x02\x63" + TopicRecord(name="t").encode(0), "newer"),
        (b"\x01\x02\x00" + TopicRecord(name="t").encode(0)[:-1], "TopicRecord"),
        (b"\x01\x02\x00" + TopicRecord(name="t").encode(0) + b"x", "TopicRecord"),
        (b"\xff\xff\xff\xff\xff\xff", "truncated or invalid"),
    ],
)
def test_unreadable_record_says_where(folder: Folder, value: bytes, problem: str) -> None:
    folder.write(batch(0, frame(NoOpRecord()), value, frame(NoOpRecord())))
    with pytest.raises(BrokerError, match=problem) as caught:
        folder.open()
    text = str(caught.value)
    assert str(folder.segment) in text and "offset 1 " in text and "restore" in text


def test_log_without_its_beginning_is_an_error(folder: Folder) -> None:
    folder.write(batch(50, frame(NoOpRecord())), name=f"{50:020}.log")
    with pytest.raises(BrokerError, match="begins at offset 50"):
        folder.open()


# Damage.


def test_log_cut_at_every_byte_of_its_last_batch(folder: Folder) -> None:
    cluster = folder.open()
    new_topic(cluster, "kept", 1)
    whole = folder.segment.stat().st_size
    new_topic(cluster, "lost", 1)
    cluster.close()
    data = folder.segment.read_bytes()
    for end in range(whole, len(data)):
        folder.segment.write_bytes(data[:end])
        again = folder.open()
        assert list(again.topics) == ["kept"]
        assert len(folder.warnings) == (end > whole)
        assert folder.segment.stat().st_size == whole
        again.close()
    folder.segment.write_bytes(data[:-3])
    again = folder.open()
    new_topic(again, "next", 1)
    assert list(folder.reopen().topics) == ["kept", "next"]
    assert folder.warnings == []


@pytest.mark.parametrize("tail", [b"\0" * 4096, b"\xff" * 200, bytes(range(256)) * 3])
def test_garbage_at_the_end_is_cut(folder: Folder, tail: bytes) -> None:
    new_topic(folder.open(), "t", 1)
    data = folder.segment.read_bytes()
    folder.segment.write_bytes(data + tail)
    assert list(folder.reopen().topics) == ["t"]
    assert len(folder.warnings) == 1
    assert folder.segment.read_bytes() == data


def test_torn_last_batch_with_all_its_bytes_but_not_their_content(folder: Folder) -> None:
    cluster = folder.open()
    new_topic(cluster, "t", 1)
    data = bytearray(folder.segment.read_bytes())
    data[-1] ^= 1
    folder.segment.write_bytes(data)
    assert list(folder.reopen().topics) == []
    assert "CRC" in folder.warnings[0]


def test_damage_with_good_batches_behind_it_is_an_error(folder: Folder) -> None:
    cluster = folder.open()
    new_topic(cluster, "t", 1)
    cluster.close()
    data = bytearray(folder.segment.read_bytes())
    batches = folder.batches()
    for position in (batches[0].position + 70, batches[1].position + 10, batches[1].position + 16):
        broken = data.copy()
        broken[position] ^= 0x55
        folder.segment.write_bytes(broken)
        with pytest.raises(BrokerError, match="corrupt") as caught:
            folder.open()
        assert f"byte {0 if position < batches[1].position else batches[1].position} " in str(
            caught.value
        )
        assert folder.segment.read_bytes() == broken
    # The last batch of a segment that is not the last was written through before the next began.
    folder.segment.write_bytes(data[:-1])
    folder.write(batch(20, frame(NoOpRecord())), name=f"{20:020}.log")
    with pytest.raises(BrokerError, match="corrupt"):
        folder.open()


# Snapshots of our own.


def fill(cluster: ClusterMetadata) -> None:
    """Something of everything."""
    cluster.register([(Listener(), "h", 1)])  # type: ignore[list-item]
    orders = new_topic(cluster, "orders", 3, configs={"retention.ms": "9"}, topic_id=ORDERS)
    finish(cluster.adding_partitions(orders, 4))
    cluster.set_configs(4, "1", {"a": "b", "c": "d"})
    cluster.allocate_producer_ids(1000)
    entity = [ClientQuotaRecord.EntityData(entity_type="user", entity_name=None)]
    cluster.append(
        [
            UserScramCredentialRecord(
                name="alice",
                mechanism=2,
                salt=b"s",
                stored_key=b"k" * 64,
                server_key=b"k" * 64,
                iterations=4096,
            ),
            ClientQuotaRecord(entity=entity, key="producer_byte_rate", value=5.0),
            ClientQuotaRecord(entity=entity, key="consumer_byte_rate", value=5.0),
            ClientQuotaRecord(entity=entity, key="consumer_byte_rate", remove=True),
            AccessControlEntryRecord(id=UUID(int=5), principal="User:a"),
            AccessControlEntryRecord(id=UUID(int=6), principal="User:b"),
            RemoveAccessControlEntryRecord(id=UUID(int=6)),
        ]
    )


def state(cluster: ClusterMetadata) -> Sequence[Any]:
    return (
        cluster.cluster_id,
        [(topic.name, topic.topic_id, topic.partitions) for topic in cluster.topics.values()],
        cluster.features,
        cluster.configs,
        cluster.scram,
        cluster.next_producer_id,
        list(cluster.records()),
    )


def names(folder: Folder) -> list[str]:
    return sorted(path.name for path in folder.log.iterdir())


def test_files_are_readable_by_their_owner_alone(folder: Folder) -> None:
    """They hold the credentials of users."""
    before = os.umask(0)
    try:
        cluster = folder.open()
        new_topic(cluster, "t", 1)
        assert stat.S_IMODE(folder.segment.stat().st_mode) == 0o600
        cluster._snapshot()
        new_topic(cluster, "u", 1)
    finally:
        os.umask(before)
    for path in (*folder.log.glob("*.checkpoint"), *folder.log.glob("*.log")):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_large_log_gives_way_to_a_snapshot(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClusterMetadata, "snapshot_bytes", 5000)
    cluster = folder.open()
    fill(cluster)
    for number in range(100):
        cluster.set_configs(TOPIC, "orders", {"retention.ms": str(number)})
    expected = state(cluster)
    [checkpoint] = folder.log.glob("*.checkpoint")
    [segment] = folder.log.glob("*.log")
    assert checkpoint.name.startswith(segment.stem)
    assert segment.stat().st_size <= 5000
    assert len(names(folder)) == 4
    offset = cluster.last_offset
    again = folder.reopen()
    assert folder.warnings == []
    assert state(again) == expected
    assert again.last_offset == offset
    parts = list(read_batches(checkpoint.read_bytes(), allow_partial=False))
    header, *middle, footer = parts
    assert [one.type for one in header.control_records()] == [
        ControlRecordType.SNAPSHOT_HEADER,
        ControlRecordType.KRAFT_VERSION,
        ControlRecordType.KRAFT_VOTERS,
    ]
    assert footer.control_records()[0].type == ControlRecordType.SNAPSHOT_FOOTER
    first = frames(middle[0])[0]
    assert isinstance(first, FeatureLevelRecord) and first.name == "metadata.version"
    assert [one.next_offset for one in parts][:-1] == [one.base_offset for one in parts][1:]


def test_crash_at_each_step_of_a_snapshot_loses_nothing(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Crash(BaseException):
        pass

    def crashing(step: str, count: int) -> Callable[..., Any]:
        original = getattr(os, step)
        calls = itertools.count(1)

        def call(*args: Any, **kwargs: Any) -> Any:
            if next(calls) == count:
                raise Crash
            return original(*args, **kwargs)

        return call

    for count, step in itertools.product(range(1, 5), ("fsync", "replace", "close", "unlink")):
        here = Folder(folder.path / f"{step}{count}")
        cluster = here.open()
        fill(cluster)
        expected = state(cluster)
        with monkeypatch.context() as patch, contextlib.suppress(Crash):
            patch.setattr(os, step, crashing(step, count))
            cluster._snapshot()
        again = here.open()
        assert state(again) == expected
        new_topic(again, "more", 1)
        again._snapshot()
        assert len(names(here)) == 1
        assert list(here.open().topics) == ["orders", "more"]
        for one in here.opened:
            one.close()


def test_closing_makes_a_snapshot_of_a_log_that_is_mostly_out_of_date(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ClusterMetadata, "garbage_bytes", 1000)
    cluster = folder.open()
    topic = new_topic(cluster, "t", 30)
    cluster.close()
    assert not list(folder.log.glob("*.checkpoint"))
    cluster = folder.open()
    cluster.delete_topic(cluster.topics["t"])
    expected = state(cluster)
    cluster.close()
    assert list(folder.log.glob("*.checkpoint"))
    assert not list(folder.log.glob("*.log"))
    assert topic.topic_id not in cluster.topics_by_id
    assert state(folder.open()) == expected


def test_changes_through_a_frozen_copy_reach_the_cluster(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ClusterMetadata, "snapshot_bytes", 100)  # each change makes a snapshot
    cluster = folder.open()
    new_topic(cluster, "before", 1)
    frozen = cluster.frozen()
    new_topic(cluster, "after", 1)
    frozen.set_configs(4, "", {"log.retention.ms": "5"})
    assert list(frozen.topics) == ["before"]
    assert cluster.configs == frozen.configs == {(4, ""): {"log.retention.ms": "5"}}
    again = folder.reopen()
    assert list(again.topics) == ["before", "after"]
    assert again.configs == cluster.configs


def test_unknown_records_keep_a_log_from_being_replaced(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ClusterMetadata, "snapshot_bytes", 100)
    folder.write(batch(0, b"\x01\x64\x00abc"))
    new_topic(folder.open(), "t", 1)
    assert not list(folder.log.glob("*.checkpoint"))
    assert folder.segment.exists()


def test_log_goes_on_if_a_snapshot_cannot_be_written(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ClusterMetadata, "snapshot_bytes", 2000)
    cluster = folder.open()
    (folder.log / "blocked").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(
            os, "replace", lambda *args: os.rename(folder.log / "no", folder.log / "thing")
        )
        new_topic(cluster, "many", 100)
    assert any("cannot write a snapshot" in warning for warning in folder.warnings)
    assert list(folder.reopen().topics) == ["many"]


# Frames.


@pytest.mark.parametrize("number", TYPES)
def test_frames_are_as_kafka_writes_them(number: int) -> None:
    record = getattr(kafka_wire, TYPES[number])()
    value = encode_frame(record, 33)
    assert value[:2] == bytes((1, number))
    assert value[2] <= type(record).max_version
    assert decode_frame(value) == record
    for end in range(1, len(value)):
        with pytest.raises(DecodeError):
            decode_frame(value[:end])
