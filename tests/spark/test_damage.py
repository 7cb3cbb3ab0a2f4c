"""Folders that are damaged, torn, in the middle of being cleaned, or written by old brokers.

One test shows what Spark makes of damage. The others read in this process, with what Spark calls.
"""

from __future__ import annotations

import gzip
import os
import pickle
import re
import shutil
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.files import flip

pytest.importorskip("pyspark", reason="PySpark is not installed")

from pyspark.sql import SparkSession

from krammar.spark.datasource import KrammarDataSource
from krammar.spark.errors import DataLossError
from krammar.spark.logs.source import LogReader, schema
from krammar.spark.options import Options
from krammar.wire.batches import Compression, Record, encode_batch, read_headers
from tests.spark.logs_support import Folder, Row, message, write_segment
from tests.spark.support import fails, load, rows

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture
def partition(folder: Folder, tmp_path: Path) -> Path:
    """A partition of many segments, to do harm to."""
    return Path(shutil.copytree(folder.path / "segments-0", tmp_path / "segments-0"))


def logs(partition: Path) -> list[Path]:
    return sorted(partition.glob("*.log"))


def scan(path: Path, **options: object) -> list[Row]:
    """Read a log folder without Spark. Reader and tasks pass through their serialized forms, as between processes."""
    given = {name: str(value) for name, value in options.items()}
    source = KrammarDataSource({"source": "logs", "path": str(path), **given})
    reader = source.reader(source.schema())
    found = []
    for task in reader.partitions():
        copy, part = pickle.loads(pickle.dumps((reader, task)))
        for batch in copy.read(part):
            found += [row_of(each) for each in batch.to_pylist()]
    return sorted(found, key=lambda row: (row.topic, row.partition, row.offset))


def row_of(columns: dict[str, Any]) -> Row:
    """A row of Arrow, whose timestamp is a datetime."""
    headers = columns.get("headers")
    return Row(
        columns["key"],
        columns["value"],
        columns["topic"],
        columns["partition"],
        columns["offset"],
        (columns["timestamp"] - EPOCH) // timedelta(milliseconds=1),
        columns["timestampType"],
        None if headers is None else tuple((each["key"], each["value"]) for each in headers),
    )


def loses(text: str) -> AbstractContextManager[object]:
    """Whether reading fails for lost data, with a text that is taken literally."""
    return pytest.raises(DataLossError, match=re.escape(text))


def without(expected: list[Row], first: int, last: int) -> list[Row]:
    return [row for row in expected if not first <= row.offset <= last]


def test_a_corrupt_batch(folder: Folder, partition: Path) -> None:
    log = logs(partition)[2]
    header = list(read_headers(log.read_bytes()))[1]
    flip(log, header.position + 100)
    with loses("failOnDataLoss=false reads what exists"):
        scan(partition)
    with loses(log.name):
        scan(partition)
    expected = without(folder.rows["segments"], header.base_offset, header.last_offset)
    assert len(expected) == 590
    assert scan(partition, failOnDataLoss=False) == expected


def test_a_header_that_is_none(spark: SparkSession, folder: Folder, partition: Path) -> None:
    log = logs(partition)[1]
    headers = list(read_headers(log.read_bytes()))
    flip(log, headers[3].position + 16)
    with fails(f"no batch at byte {headers[3].position}"):
        load(spark, partition).collect()
    # Where the next batch begins is not known: the rest of the segment is lost.
    expected = without(folder.rows["segments"], headers[3].base_offset, headers[-1].last_offset)
    assert rows(load(spark, partition, failOnDataLoss=False)) == expected


@pytest.mark.parametrize(
    ("byte", "text"), [(57, "negative offset or count"), (0, "negative offset")]
)
def test_a_header_that_cannot_be_right(
    folder: Folder, partition: Path, byte: int, text: str
) -> None:
    log = logs(partition)[1]
    header = list(read_headers(log.read_bytes()))[3]
    flip(log, header.position + byte)
    with loses(f"the batch at byte {header.position} has a {text}"):
        scan(partition)
    # Its size is known: only its own records are lost.
    expected = without(folder.rows["segments"], header.base_offset, header.last_offset)
    assert scan(partition, failOnDataLoss=False) == expected


def test_a_segment_that_is_cut_off(folder: Folder, partition: Path) -> None:
    log = logs(partition)[0]
    last = list(read_headers(log.read_bytes()))[-1]
    with log.open("r+b") as file:
        file.truncate(last.position + 500)
    with loses(f"is cut off at byte {last.position}"):
        scan(partition)
    expected = without(folder.rows["segments"], last.base_offset, last.last_offset)
    assert scan(partition, failOnDataLoss=False) == expected


@pytest.mark.parametrize("kept", [0, 5, 40, 500])
def test_a_torn_tail_is_no_loss(folder: Folder, partition: Path, kept: int) -> None:
    log = logs(partition)[-1]
    last = list(read_headers(log.read_bytes()))[-1]
    with log.open("r+b") as file:
        file.truncate(last.position + kept)
    expected = without(folder.rows["segments"], last.base_offset, last.last_offset)
    assert scan(partition) == expected


def test_room_that_a_broker_has_allocated(folder: Folder, partition: Path) -> None:
    with logs(partition)[-1].open("ab") as file:
        file.write(bytes(100_000))
    for ending in ("index", "timeindex"):
        with logs(partition)[-1].with_suffix(f".{ending}").open("ab") as file:
            file.write(bytes(120))
    assert scan(partition) == folder.rows["segments"]


def test_files_that_do_not_count(folder: Folder, partition: Path) -> None:
    for ending in (".deleted", ".cleaned", ".swap"):
        shutil.copy(logs(partition)[0], f"{logs(partition)[0]}{ending}")
    (partition / f"{10**6:020d}.log.swap").write_bytes(b"nonsense")
    shutil.copytree(partition, partition.parent / "segments-0.0123abcd-delete")
    shutil.copytree(partition, partition.parent / "segments-0.0123abcd-stray")
    assert scan(partition.parent) == folder.rows["segments"]


@pytest.mark.parametrize("garbage", [b"", b"\x01" * 33, b"\xff" * 800])
def test_indexes_that_are_missing_or_wrong(folder: Folder, partition: Path, garbage: bytes) -> None:
    for ending in ("index", "timeindex"):
        for path in partition.glob(f"*.{ending}"):
            path.write_bytes(garbage)
    assert scan(partition, minPartitions=20) == folder.rows["segments"]
    middle = folder.rows["segments"][300]
    assert scan(partition, startingTimestamp=middle.timestamp_ms) == folder.rows["segments"][300:]


def test_offsets_that_are_gone(folder: Folder, partition: Path) -> None:
    second = int(logs(partition)[1].stem)
    logs(partition)[0].unlink()
    options = {"startingOffsets": '{"segments": {"0": 0}}'}
    with loses(f"offset 0 was requested, but the partition has offsets {second} to 600"):
        scan(partition, **options)
    assert scan(partition, failOnDataLoss=False, **options) == folder.rows["segments"][second:]


def test_deleted_records_are_not_read(folder: Folder, partition: Path) -> None:
    checkpoint = partition.parent / "log-start-offset-checkpoint"
    checkpoint.write_text("0\n1\nsegments 0 123\n")
    assert scan(partition.parent) == folder.rows["segments"][123:]


def test_compacted_logs_have_gaps(tmp_path: Path) -> None:
    offsets = [3, 4, 17, 90]
    data = encode_batch(
        [Record(offset, 1000 + offset, b"k%d" % offset, b"v") for offset in offsets[:2]],
        base_offset=0,
        last_offset_delta=9,
        base_timestamp=1000,
        compression=Compression.ZSTD,
    )
    data += encode_batch([], base_offset=10, last_offset_delta=2, base_timestamp=-1)
    data += encode_batch(
        [Record(offset, 1000 + offset, b"k%d" % offset, None) for offset in offsets[2:]],
        base_offset=13,
        base_timestamp=1000,
    )
    write_segment(tmp_path / "table-7", 0, data)
    expected = [
        Row(
            b"k%d" % offset,
            b"v" if offset < 10 else None,
            "table",
            7,
            offset,
            1000 + offset,
            0,
            None,
        )
        for offset in offsets
    ]
    assert scan(tmp_path) == expected


def test_an_empty_partition(tmp_path: Path) -> None:
    write_segment(tmp_path / "empty-0", 42, b"")
    assert scan(tmp_path, startingOffsets='{"empty": {"0": 42}}') == []


def test_formats_of_old_brokers(tmp_path: Path) -> None:
    inside_v0 = b"".join(message(0, offset, b"v0 %d" % offset) for offset in (1, 2))
    inside_v1 = b"".join(
        message(1, relative, b"v1 %d" % (5 + relative), timestamp=70 + relative)
        for relative in (0, 1)
    )
    data = message(0, 0, None, key=b"plain v0")
    data += message(0, 2, gzip.compress(inside_v0), attributes=1)
    data += message(1, 3, b"", key=b"created", timestamp=50)
    data += message(1, 4, b"x", timestamp=60, attributes=8)
    data += message(1, 6, gzip.compress(inside_v1), timestamp=71, attributes=1)
    data += encode_batch([Record(7, 80, None, b"v2", [("h", b"1")])], base_offset=7)
    write_segment(tmp_path / "old-0", 0, data)
    expected = [
        Row(b"plain v0", None, "old", 0, 0, -1, -1, None),
        Row(None, b"v0 1", "old", 0, 1, -1, -1, None),
        Row(None, b"v0 2", "old", 0, 2, -1, -1, None),
        Row(b"created", b"", "old", 0, 3, 50, 0, None),
        Row(None, b"x", "old", 0, 4, 60, 1, None),
        Row(None, b"v1 5", "old", 0, 5, 70, 0, None),
        Row(None, b"v1 6", "old", 0, 6, 71, 0, None),
        Row(None, b"v2", "old", 0, 7, 80, 0, (("h", b"1"),)),
    ]
    assert scan(tmp_path, includeHeaders=True) == expected
    short = scan(tmp_path, maxRecordsPerPartition=1)
    assert short == [row._replace(headers=None) for row in expected]
    between = {"startingOffsets": '{"old": {"0": 2}}', "endingOffsets": '{"old": {"0": 6}}'}
    assert scan(tmp_path, **between) == expected[2:6]


def test_batches_that_expand_to_much_together(tmp_path: Path) -> None:
    """The limit of 128 MiB applies to each batch, not to all batches that are read together."""
    batch = [
        encode_batch([Record(offset, value=bytes(4 << 20))], compression=Compression.ZSTD)
        for offset in range(40)
    ]
    write_segment(tmp_path / "zeros-0", 0, b"".join(batch))
    options = Options({"source": "logs", "path": str(tmp_path)})
    reader = LogReader(options, schema(options))
    sizes = [
        (part.num_rows, part.nbytes) for task in reader.partitions() for part in reader.read(task)
    ]
    assert sum(rows for rows, _ in sizes) == 40
    assert max(size for _, size in sizes) < 32 << 20


def read_all(reader: LogReader, tasks: list[Any]) -> int:
    return sum(part.num_rows for task in tasks for part in reader.read(task))


@pytest.mark.parametrize("fail", [True, False])
def test_a_segment_that_becomes_shorter_after_planning(partition: Path, fail: bool) -> None:
    """A broker compacts or truncates the segment meanwhile. The task reports it and ends."""
    given = {"source": "logs", "path": str(partition), "failOnDataLoss": str(fail)}
    reader = LogReader(Options(given), schema(Options(given)))
    tasks = list(reader.partitions())
    log = logs(partition)[2]
    last = list(read_headers(log.read_bytes()))[-1]
    os.truncate(log, last.position)
    if fail:
        with pytest.raises(DataLossError, match=f"the file ends at byte {last.position}, but had"):
            read_all(reader, tasks)
    else:
        assert read_all(reader, tasks) == 600 - last.records_count


def test_damage_in_a_partition_that_is_split_by_offsets(partition: Path) -> None:
    """Planning scans the batches, and leaves the damage to a task that reports it."""
    log = logs(partition)[1]
    flip(log, list(read_headers(log.read_bytes()))[3].position + 16)
    given = {"source": "logs", "path": str(partition), "maxRecordsPerPartition": "20"}
    reader = LogReader(Options(given), schema(Options(given)))
    with pytest.raises(DataLossError, match="no batch at byte"):
        read_all(reader, list(reader.partitions()))
