"""Kafka's files without krammar: a writer for the folder that a broker starts with, and a reader of its files.

Kafka's documentation ("Message Format"), KIP-500 and KIP-631 describe the formats.
"""

from __future__ import annotations

import base64
import itertools
import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import google_crc32c

from tests.broker.challenge.wire import NO_TAGS, compact_array, compact_string, uvarint

SEGMENT = "00000000000000000000.log"
# The position of a batch's CRC, and of the first byte that it covers.
CRC_AT, COVERED_FROM = 17, 21
# Records with this time are too new to be deleted, and their producers too new to be forgotten.
NOW = time.time_ns() // 1_000_000
_HEADER = struct.Struct(">qiibIhiqqqhii")
FEATURE_LEVEL_RECORD, TOPIC_RECORD, PARTITION_RECORD = 12, 2, 3


# --- writing


def varint(value: int) -> bytes:
    """Zig-zag, as records have it."""
    return uvarint(value << 1 if value >= 0 else (-value << 1) - 1)


def _sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def record(
    value: bytes | None,
    *,
    key: bytes | None = None,
    headers: Sequence[tuple[str, bytes | None]] = (),
    offset_delta: int = 0,
    timestamp_delta: int = 0,
) -> bytes:
    """One record, length included."""
    body = b"\x00" + varint(timestamp_delta) + varint(offset_delta) + _sized(key) + _sized(value)
    body += varint(len(headers))
    for name, data in headers:
        body += _sized(name.encode()) + _sized(data)
    return varint(len(body)) + body


def batch(
    values: Sequence[bytes | None],
    *,
    base_offset: int = 0,
    timestamp: int = NOW,
    leader_epoch: int = 0,
    attributes: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[tuple[str, bytes | None]] = (),
) -> bytes:
    """A batch of format v2 that is not compressed. Each record is a millisecond after the one before."""
    records = b"".join(
        record(
            value,
            key=keys[index] if keys is not None else None,
            headers=headers,
            offset_delta=index,
            timestamp_delta=index,
        )
        for index, value in enumerate(values)
    )
    last = len(values) - 1
    covered = struct.pack(
        ">hiqqqhii",
        attributes,
        last,
        timestamp,
        timestamp + last,
        producer_id,
        producer_epoch,
        base_sequence,
        len(values),
    )
    covered += records
    crc = google_crc32c.value(covered)
    head = struct.pack(">iBI", leader_epoch, 2, crc)
    return struct.pack(">qi", base_offset, len(head) + len(covered)) + head + covered


def leader_change_batch(*, timestamp: int) -> bytes:
    """The control batch with which the leader of the metadata log begins its epoch, at offset 0."""
    voter = struct.pack(">i", 1) + NO_TAGS
    message = struct.pack(">hi", 0, 1) + compact_array([voter]) + compact_array([voter]) + NO_TAGS
    return batch(
        [message],
        keys=[struct.pack(">hh", 0, 2)],
        attributes=0x20,
        leader_epoch=1,
        timestamp=timestamp,
    )


def feature_level_record(name: str, level: int) -> bytes:
    """The frame of a metadata record is a version, a type and the type's version."""
    frame = uvarint(1) + uvarint(FEATURE_LEVEL_RECORD) + uvarint(0)
    return frame + compact_string(name) + struct.pack(">h", level) + NO_TAGS


def topic_record(name: str, topic_id: UUID) -> bytes:
    frame = uvarint(1) + uvarint(TOPIC_RECORD) + uvarint(0)
    return frame + compact_string(name) + topic_id.bytes + NO_TAGS


def partition_record(
    topic_id: UUID, index: int, *, node_id: int, leader_epoch: int, directory: UUID
) -> bytes:
    frame = uvarint(1) + uvarint(PARTITION_RECORD) + uvarint(1)
    node = struct.pack(">i", node_id)
    return (
        frame
        + struct.pack(">i", index)
        + topic_id.bytes
        + compact_array([node])
        + compact_array([node])
        + compact_array([])
        + compact_array([])
        + node
        + struct.pack(">ii", leader_epoch, 0)
        + compact_array([directory.bytes])
        + NO_TAGS
    )


def kafka_uuid(uuid: UUID) -> str:
    """Return an id in Kafka's text form."""
    return base64.urlsafe_b64encode(uuid.bytes).rstrip(b"=").decode()


@dataclass
class TopicFolder:
    """A topic to be laid out: the bytes of each partition's log."""

    name: str
    topic_id: UUID
    logs: Sequence[bytes] = (b"",)
    leader_epoch: int = 0


@dataclass
class KafkaFolder:
    """A folder as Kafka's KRaft mode leaves it: ``write`` lays it out."""

    path: Path
    topics: Sequence[TopicFolder]
    cluster_id: str = "IAAAAAAAQACAAAAAAAAAAQ"
    node_id: int = 1
    directory: UUID = field(default=UUID("10000000-0000-4000-8000-000000000001"))
    metadata_version: int = 20
    timestamp: int = NOW
    # The challenge's own folders have no control batch; their metadata log begins at offset 1.
    leader_change: bool = False

    def write(self) -> None:
        self.path.mkdir(parents=True)
        (self.path / "meta.properties").write_text(
            f"#\n#Mon Jan 01 00:00:00 UTC 2024\ncluster.id={self.cluster_id}\n"
            f"directory.id={kafka_uuid(self.directory)}\nnode.id={self.node_id}\nversion=1\n"
        )
        metadata = self.path / "__cluster_metadata-0"
        metadata.mkdir()
        (metadata / SEGMENT).write_bytes(self.metadata_log())
        (metadata / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
        for topic in self.topics:
            for index, log in enumerate(topic.logs):
                folder = self.path / f"{topic.name}-{index}"
                folder.mkdir()
                (folder / SEGMENT).write_bytes(log)
                (folder / "partition.metadata").write_text(
                    f"version: 0\ntopic_id: {kafka_uuid(topic.topic_id)}=="
                )

    def metadata_log(self) -> bytes:
        """A batch for the feature level, then one for each topic with its partitions."""
        log = leader_change_batch(timestamp=self.timestamp) if self.leader_change else b""
        offset = 1
        contents = [[feature_level_record("metadata.version", self.metadata_version)]]
        for topic in self.topics:
            contents.append(
                [topic_record(topic.name, topic.topic_id)]
                + [
                    partition_record(
                        topic.topic_id,
                        index,
                        node_id=self.node_id,
                        leader_epoch=topic.leader_epoch,
                        directory=self.directory,
                    )
                    for index in range(len(topic.logs))
                ]
            )
        for values in contents:
            log += batch(values, base_offset=offset, leader_epoch=1, timestamp=self.timestamp)
            offset += len(values)
        return log


# --- reading


@dataclass
class DiskRecord:
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


@dataclass
class DiskBatch:
    """A batch of a log file, and its position."""

    position: int
    data: bytes
    base_offset: int
    leader_epoch: int
    attributes: int
    last_offset: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int

    @property
    def size(self) -> int:
        return len(self.data)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & 0x10)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & 0x20)

    def records(self) -> Iterator[DiskRecord]:
        """Decode the records of a batch that is not compressed."""
        assert self.attributes & 0x07 == 0, "a compressed batch"
        data, at = self.data, _HEADER.size

        def number() -> int:
            nonlocal at
            value = shift = 0
            while True:
                byte = data[at]
                at += 1
                value |= (byte & 0x7F) << shift
                if byte < 0x80:
                    return (value >> 1) ^ -(value & 1)
                shift += 7

        def sized() -> bytes | None:
            nonlocal at
            size = number()
            if size < 0:
                return None
            at += size
            return data[at - size : at]

        for index in range(self.count):
            size = number()
            end = at + size
            at += 1
            timestamp = self.base_timestamp + number()
            delta = number()
            # A compacted batch may lack records, but their order stays.
            assert delta >= index
            key, value = sized(), sized()
            headers = [((sized() or b"").decode(), sized()) for _ in range(number())]
            assert at == end, "a record is not as long as it says"
            yield DiskRecord(self.base_offset + delta, timestamp, key, value, headers)
        assert at == len(data), "bytes after the last record"

    def values(self) -> list[bytes | None]:
        return [record.value for record in self.records()]


def read_batches(data: bytes) -> Iterator[DiskBatch]:
    """The batches of a log or a fetch; all must be complete, with correct CRCs."""
    position = 0
    while position < len(data):
        assert len(data) - position >= _HEADER.size, f"a torn batch at {position}"
        (
            base_offset,
            size,
            leader_epoch,
            magic,
            crc,
            attributes,
            last_delta,
            base_timestamp,
            max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            count,
        ) = _HEADER.unpack_from(data, position)
        end = position + 12 + size
        assert magic == 2 and size >= _HEADER.size - 12, f"no batch at {position}"
        assert end <= len(data), f"a torn batch at {position}"
        whole = data[position:end]
        assert google_crc32c.value(whole[COVERED_FROM:]) == crc, f"CRC of the batch at {position}"
        yield DiskBatch(
            position,
            whole,
            base_offset,
            leader_epoch,
            attributes,
            base_offset + last_delta,
            base_timestamp,
            max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            count,
        )
        position = end


def segments(folder: Path) -> list[Path]:
    """The log files of a partition, oldest first."""
    return sorted(folder.glob("*.log"))


def read_partition(folder: Path) -> list[DiskBatch]:
    """All batches of a partition's folder, in order."""
    found: list[DiskBatch] = []
    for segment in segments(folder):
        batches = list(read_batches(segment.read_bytes()))
        if batches:
            assert batches[0].base_offset >= int(segment.stem), f"{segment.name} begins too early"
        found += batches
    for before, after in itertools.pairwise(found):
        assert before.last_offset < after.base_offset, "offsets do not ascend"
    return found
