"""A folder whose records have hostile values: a clear refusal or a working server, whatever the field and the value.

``hostile_records`` builds the records from the definitions. `make test` runs a part of them, and `make test-sweeps` all.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import kafka_wire as kw
import pytest

from krammar.broker import Broker
from krammar.broker.errors import BrokerError
from krammar.broker.metadata_records import KAFKA_FEATURES, encode_frame
from krammar.client import Client
from krammar.logfiles.internal_topics import KINDS
from krammar.logfiles.metadata_frame import TYPES
from krammar.logfiles.names import METADATA_TOPIC
from krammar.logfiles.snapshot import CRC_AT, CRC_COVERS_FROM
from krammar.wire.batches import (
    ControlRecord,
    Record,
    crc32c,
    encode_batch,
    encode_control_batch,
)
from krammar.wire.batches.header import HEADER_SIZE
from krammar.wire.message import Codec

pytest.importorskip("pyspark", reason="PySpark is not installed")

from tests.broker.hostile_folders import SETTINGS, Outcome, append, examine, fill, listing
from tests.broker.hostile_records import NEW, Case, internal_cases, metadata_cases
from tests.broker.support import RawClient

NOWHERE = Path(tempfile.gettempdir(), f"krammar-outside-{os.getpid()}")
CASES = list(metadata_cases(NOWHERE))
# Cases per test, and the part of them that `make test` runs.
PER_TEST, SHARE = 40, 24
OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"


@pytest.fixture(scope="session")
def ordinary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ordinary folder, for copies."""
    data = tmp_path_factory.mktemp("ordinary") / "data"
    fill(data)
    return data


Copy = Callable[[], Path]


@pytest.fixture
def fresh(ordinary: Path, tmp_path: Path) -> Copy:
    """Return a new copy of the ordinary folder, alone in its parent."""

    def copy() -> Path:
        home = tmp_path / "home"
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(ordinary, home / "data")
        return home / "data"

    return copy


def problems(cases: Iterable[Case], fresh: Copy) -> dict[str, list[str]]:
    """What is wrong with each case, by its name; empty if nothing is."""
    found = {}
    for case in cases:
        data = fresh()
        append(data, case)
        outcome = examine(data)
        wrong = list(outcome.problems)
        wrong += map(str, NOWHERE.parent.glob(f"{NOWHERE.name}*"))
        wrong += (f"names no file: {t}" for t in outcome.refusals.values() if str(data) not in t)
        if wrong:
            found[case.name] = wrong
    return found


def test_an_ordinary_folder_is_served(fresh: Copy) -> None:
    data = fresh()
    outcome = examine(data)
    assert outcome == Outcome(lines=outcome.lines)


def test_all_records_of_the_definitions_have_cases() -> None:
    names = {case.name.partition(".")[0] for case in CASES}
    # A NoOpRecord and the end of a transaction have no fields.
    assert set(TYPES.values()) - names == {"NoOpRecord", "EndTransactionRecord"}
    for topic in (OFFSETS, TRANSACTIONS):
        first = next(internal_cases(topic, NOWHERE))
        numbers = {int.from_bytes((record.key or b"")[:2], "big") for record in first.records}
        found = {kind for number, kind in enumerate(KINDS[topic]) if number in numbers}
        # Kafka's definitions have no class for the last one.
        assert set(KINDS[topic]) - found <= {"StreamsGroupPartitionMetadata"}


@pytest.mark.parametrize("begin", range(0, len(CASES) // SHARE, PER_TEST))
def test_the_metadata_log(fresh: Copy, begin: int) -> None:
    assert problems(CASES[3::SHARE][begin : begin + PER_TEST], fresh) == {}


@pytest.mark.search
@pytest.mark.parametrize("begin", range(0, len(CASES), PER_TEST))
def test_the_metadata_log_with_all_values(fresh: Copy, begin: int) -> None:
    assert problems(CASES[begin : begin + PER_TEST], fresh) == {}


@pytest.mark.parametrize("topic", [OFFSETS, TRANSACTIONS])
def test_internal_topics(fresh: Copy, topic: str) -> None:
    assert problems(list(internal_cases(topic, NOWHERE))[3::9], fresh) == {}


@pytest.mark.search
@pytest.mark.parametrize("topic", [OFFSETS, TRANSACTIONS])
def test_internal_topics_with_all_values(fresh: Copy, topic: str) -> None:
    assert problems(internal_cases(topic, NOWHERE), fresh) == {}


# The reported cases.


def metadata(*records: Codec) -> Case:
    frames = [Record(value=encode_frame(record, 25)) for record in records]
    return Case(METADATA_TOPIC, "reported", tuple(frames))


def refusal(data: Path, *records: Codec) -> str:
    """Why a broker does not start on a folder with more records."""
    file = append(data, metadata(*records))
    outcome = examine(data)
    assert outcome.problems == []
    text = outcome.refusals["broker"]
    assert text.startswith(f"{file}: the {type(records[0]).__name__} at offset ")
    return text


@pytest.mark.parametrize(
    "name", ["../created", "/tmp/absolute", "..", "", "a/b", "nul\0", "x" * 250]
)
def test_names_of_topics_that_would_be_other_paths(fresh: Copy, name: str) -> None:
    partition = kw.PartitionRecord(topic_id=NEW, partition_id=0, replicas=[1], isr=[1], leader=1)
    text = refusal(fresh(), kw.TopicRecord(name=name, topic_id=NEW), partition)
    assert "Topic name is invalid: " in text


def test_a_folder_of_another_installation_is_not_taken_over(fresh: Copy, ordinary: Path) -> None:
    """Its `partition.metadata` would be overwritten, and DeleteTopics would delete the folder."""
    data = fresh()
    other = data.parent / "other"
    shutil.copytree(ordinary, other)
    before = listing(data.parent, without=data)
    refusal(data, kw.TopicRecord(name="../other/orders", topic_id=NEW))
    assert listing(data.parent, without=data) == before


@pytest.mark.parametrize(
    ("name", "level", "problem"),
    [
        ("metadata.version", 99, "Unsupported metadata.version 99: this broker only supports"),
        ("metadata.version", 6, "Unsupported metadata.version 6: this broker only supports"),
        ("transaction.version", -3, "Unsupported transaction.version -3"),
        ("group.version", 2, "Unsupported group.version 2"),
        ("no.such.version", 1, "Unsupported no.such.version 1: this broker does not support"),
    ],
)
def test_unknown_levels_of_features(fresh: Copy, name: str, level: int, problem: str) -> None:
    assert problem in refusal(fresh(), kw.FeatureLevelRecord(name=name, feature_level=level))


@pytest.mark.parametrize("name", KAFKA_FEATURES)
def test_all_levels_of_kafkas_features_are_served(fresh: Copy, name: str) -> None:
    levels = [level for level in KAFKA_FEATURES[name] if level]
    served = []
    for level in levels:
        data = fresh()
        append(data, metadata(kw.FeatureLevelRecord(name=name, feature_level=level)))
        with Broker.start(data_dir=data, properties=SETTINGS) as broker:
            served.append(broker.cluster.features[name])
    assert served == levels


def test_the_metadata_topic_is_not_created_on_use(fresh: Copy) -> None:
    """Its log would be the metadata log."""
    data = fresh()
    with (
        Broker.start(data_dir=data, properties=SETTINGS) as broker,
        RawClient(broker.port) as client,
    ):
        asked = kw.MetadataRequest.Topic(name=METADATA_TOPIC)
        client.call(kw.MetadataRequest(topics=[asked], allow_auto_topic_creation=True))
        assert METADATA_TOPIC not in broker.cluster.topics


def test_a_topic_without_partitions_gets_some(fresh: Copy) -> None:
    data = fresh()
    append(data, metadata(kw.TopicRecord(name="empty", topic_id=NEW)))
    with Broker.start(data_dir=data, properties=SETTINGS) as broker:
        with Client(broker.bootstrap_servers) as client:
            client.admin.create_partitions("empty", 2)
        assert sorted(broker.cluster.topics["empty"].partitions) == [0, 1]


def test_settings_that_are_invalid_here_have_no_effect(
    fresh: Copy, caplog: pytest.LogCaptureFixture
) -> None:
    data = fresh()
    setting = kw.ConfigRecord(
        resource_type=2, resource_name="orders", name="segment.bytes", value="0"
    )
    file = append(data, metadata(setting))
    with Broker.start(data_dir=data, properties=SETTINGS) as broker:
        log = broker.logs.get("orders", 0)
        assert log is not None
        assert log.config.segment_bytes == 1 << 30
    [warning] = [r.getMessage() for r in caplog.records if "segment.bytes" in r.getMessage()]
    assert warning.startswith(f"{file}, offset ")
    assert "segment.bytes='0': must be at least 1048576; the setting has no effect" in warning


def test_a_symbolic_link_is_not_a_partition(fresh: Copy) -> None:
    data = fresh()
    elsewhere = data.parent / "elsewhere"
    (data / "orders-0").rename(elsewhere)
    (data / "orders-0").symlink_to(elsewhere)
    before = listing(data.parent, without=data)
    with pytest.raises(BrokerError, match=r"orders-0 is a symbolic link to .*elsewhere"):
        Broker.start(data_dir=data, properties=SETTINGS)
    assert listing(data.parent, without=data) == before
    (data / "orders-0").unlink()
    elsewhere.rename(data / "orders-0")
    log = data / f"{METADATA_TOPIC}-0"
    log.rename(elsewhere)
    log.symlink_to(elsewhere)
    with pytest.raises(BrokerError, match="is a symbolic link to"):
        Broker.start(data_dir=data, properties=SETTINGS)


def test_records_of_groups_and_transactions_are_skipped_one_by_one(
    fresh: Copy,
) -> None:
    """The numbers would leave their range with the next rebalance or transaction. The others are served."""
    data = fresh()
    key: Any = kw.GroupMetadataKey(group="hostile")
    value: Any = kw.GroupMetadataValue(version=3, protocol_type="consumer", generation=2**31 - 1)
    groups = append(data, Case(OFFSETS, "", (Record(key=key.encode(), value=value.encode()),)))
    key = kw.TransactionLogKey(transactional_id="hostile")
    value = kw.TransactionLogValue(
        version=1, producer_id=2**63 - 1, producer_epoch=0, transaction_status=0
    )
    states = append(data, Case(TRANSACTIONS, "", (Record(key=key.encode(), value=value.encode()),)))
    outcome = examine(data)
    assert outcome.problems == []
    assert not outcome.refusals
    assert warnings(outcome, groups) == ["generation: 2147483647 is not an epoch"]
    assert warnings(outcome, states) == ["producer_id: 9223372036854775807 is not a number from 0"]
    with (
        Broker.start(data_dir=data, properties=SETTINGS) as broker,
        RawClient(broker.port) as client,
    ):
        found = client.call(kw.ListGroupsRequest(), 5)
        assert "hostile" not in [group.group_id for group in found.groups]


def warnings(outcome: Outcome, file: Path) -> list[str]:
    """Why records of a file were skipped, up to a comma or the limit."""
    pattern = rf"{re.escape(str(file))}: the record at offset \d+ is skipped: (.*?)(?:,| to ).*"
    return [found[1] for line in outcome.lines if (found := re.fullmatch(pattern, line))]


def test_many_warnings_are_counted(fresh: Copy) -> None:
    data = fresh()
    key: Any = kw.OffsetCommitKey(group="g", topic="../x", partition=0)
    value: Any = kw.OffsetCommitValue(version=3, offset=1)
    record = Record(key=key.encode(), value=value.encode())
    file = append(data, Case(OFFSETS, "", (record,) * 50))
    outcome = examine(data)
    about = [line for line in outcome.lines if str(file.parent) in line]
    assert len(about) == 21
    assert about[-1] == f"{file.parent}: 30 more warnings like the last one"


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        ({"base_offset": 2**63 - 10}, f"{2**63 - 10} is not an offset"),
        ({"base_offset": 100, "partition_leader_epoch": 2**31 - 1}, "2147483647 is not an epoch"),
    ],
)
def test_batches_of_the_metadata_log_with_impossible_numbers(
    fresh: Copy, header: dict[str, int], problem: str
) -> None:
    data = fresh()
    file = data / f"{METADATA_TOPIC}-0" / f"{0:020}.log"
    size = file.stat().st_size
    [record] = metadata(kw.NoOpRecord()).records
    fields = {"partition_leader_epoch": 1} | header
    file.write_bytes(file.read_bytes() + encode_batch([record], **fields))
    text = examine(data).refusals["broker"]
    place = f"{file}: the batch at byte {size} (offset {header['base_offset']}): "
    assert text.startswith(place + problem)


def test_a_snapshot_that_ends_with_an_empty_batch_is_incomplete(fresh: Copy) -> None:
    data = fresh()
    empty = bytearray(encode_control_batch([ControlRecord(0, value=b"")], base_offset=0))
    empty = empty[:HEADER_SIZE]
    empty[8:12] = (HEADER_SIZE - 12).to_bytes(4, "big")
    empty[HEADER_SIZE - 4 :] = bytes(4)  # the number of records
    empty[17:21] = crc32c(bytes(empty[21:])).to_bytes(4, "big")
    path = data / f"{METADATA_TOPIC}-0" / f"{5:020}-{1:010}.checkpoint"
    path.write_bytes(empty)
    outcome = examine(data)
    assert outcome.problems == []
    assert "broker" not in outcome.refusals
    assert any(f"{path}: the snapshot is incomplete" in line for line in outcome.lines)


@pytest.mark.parametrize(
    ("name", "row", "problem"),
    [
        ("log-start-offset-checkpoint", f"orders 0 {2**63 - 1}", "is not an offset"),
        ("log-start-offset-checkpoint", "orders 0 -1", "-1 is not an offset"),
        ("recovery-point-offset-checkpoint", "orders -1 0", "-1 is not a partition"),
        ("recovery-point-offset-checkpoint", "../orders 0 0", "has characters other than"),
        ("recovery-point-offset-checkpoint", f"orders 0 {'9' * 5000}", "not a number"),
    ],
)
def test_checkpoints_with_impossible_rows_are_ignored(
    fresh: Copy, name: str, row: str, problem: str
) -> None:
    data = fresh()
    (data / name).write_text(f"0\n1\n{row}\n")
    outcome = examine(data)
    assert outcome.problems == []
    assert "broker" not in outcome.refusals
    [warning] = [line for line in outcome.lines if name in line and "ignored" in line]
    assert warning.startswith(f"{data / name}: ")
    assert problem in warning
    assert len(warning) < 1000


@pytest.mark.parametrize(
    "field", ["producer_id", "epoch", "last_offset", "current_txn_first_offset"]
)
def test_snapshots_of_producers_with_impossible_numbers_are_skipped(
    fresh: Copy, field: str
) -> None:
    data = fresh()
    entry: Any = kw.ProducerSnapshot.ProducerEntry(producer_id=1, epoch=1, timestamp=1 << 60)
    setattr(entry, field, -2)
    content = bytearray(kw.ProducerSnapshot(producer_entries=[entry]).encode(1))
    content[CRC_AT:CRC_COVERS_FROM] = crc32c(bytes(content[CRC_COVERS_FROM:])).to_bytes(4, "big")
    path = max((data / "orders-0").glob("*.snapshot"))
    path.write_bytes(content)
    outcome = examine(data)
    assert outcome.problems == []
    assert any(f"{path}: " in line and f"{field}: -2" in line for line in outcome.lines)
