"""Kafka's protocol without krammar, as far as the challenge needs it.

Layouts follow Kafka's protocol guide (https://kafka.apache.org/protocol). All requests have
flexible versions, unless an argument of ``call`` says otherwise.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar
from uuid import UUID

from tests.support.waiting import PATIENCE

PRODUCE, FETCH, API_VERSIONS, DESCRIBE_TOPIC_PARTITIONS = 0, 1, 18, 75

UNKNOWN_TOPIC_OR_PARTITION = 3
UNSUPPORTED_VERSION = 35
INVALID_REQUEST = 42
UNKNOWN_TOPIC_ID = 100

NIL = UUID(int=0)
NULL_CURSOR = b"\xff"
NO_TAGS = b"\x00"
# The authorized operations of a topic without ACLs: one bit per operation.
ALL_TOPIC_OPERATIONS = 0x0DF8

T = TypeVar("T")


# --- writing


def uvarint(value: int) -> bytes:
    """Encode an unsigned varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def compact_string(text: str) -> bytes:
    """Encode a compact string."""
    data = text.encode()
    return uvarint(len(data) + 1) + data


def compact_bytes(data: bytes | None) -> bytes:
    return b"\x00" if data is None else uvarint(len(data) + 1) + data


def compact_array(items: Sequence[bytes]) -> bytes:
    """Encode a compact array of encoded elements."""
    return uvarint(len(items) + 1) + b"".join(items)


def request_frame(
    key: int,
    version: int,
    body: bytes,
    *,
    correlation_id: int = 7,
    client_id: str | None = "challenge",
    flexible: bool = True,
) -> bytes:
    """A whole request: length, header v2 (v1 where not flexible), body."""
    if client_id is None:
        client = b"\xff\xff"
    else:
        client = struct.pack(">h", len(client_id.encode())) + client_id.encode()
    header = struct.pack(">hhi", key, version, correlation_id) + client
    if flexible:
        header += NO_TAGS
    return struct.pack(">i", len(header) + len(body)) + header + body


def api_versions_body(version: int) -> bytes:
    """Encode the body of an ApiVersions request."""
    if version < 3:
        return b""
    return compact_string("challenge") + compact_string("1.0") + NO_TAGS


def describe_body(
    topics: Sequence[str], *, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> bytes:
    """DescribeTopicPartitions v0. A null cursor is the byte ff; other cursors begin with 01."""
    if cursor is None:
        at = NULL_CURSOR
    else:
        at = b"\x01" + compact_string(cursor[0]) + struct.pack(">i", cursor[1]) + NO_TAGS
    names = compact_array([compact_string(name) + NO_TAGS for name in topics])
    return names + struct.pack(">i", limit) + at + NO_TAGS


@dataclass
class FetchFrom:
    """A partition to fetch."""

    partition: int = 0
    offset: int = 0
    max_bytes: int = 1 << 20
    leader_epoch: int = -1


def fetch_body(
    topics: Sequence[tuple[UUID, Sequence[FetchFrom]]],
    *,
    max_wait_ms: int = 500,
    min_bytes: int = 1,
    max_bytes: int = 50 << 20,
    session_id: int = 0,
    session_epoch: int = -1,
) -> bytes:
    """Fetch v16."""
    wanted = []
    for topic_id, partitions in topics:
        entries = [
            struct.pack(">iiqiqi", at.partition, at.leader_epoch, at.offset, -1, -1, at.max_bytes)
            + NO_TAGS
            for at in partitions
        ]
        wanted.append(topic_id.bytes + compact_array(entries) + NO_TAGS)
    return (
        struct.pack(">iiibii", max_wait_ms, min_bytes, max_bytes, 0, session_id, session_epoch)
        + compact_array(wanted)
        + compact_array([])
        + compact_string("")
        + NO_TAGS
    )


def produce_body(
    topics: Sequence[tuple[str, Sequence[tuple[int, bytes | None]]]], *, acks: int = -1
) -> bytes:
    """Produce v11; each partition is its index and its batch."""
    entries = []
    for name, partitions in topics:
        parts = [
            struct.pack(">i", index) + compact_bytes(batch) + NO_TAGS for index, batch in partitions
        ]
        entries.append(compact_string(name) + compact_array(parts) + NO_TAGS)
    transactional_id = compact_bytes(None)
    return transactional_id + struct.pack(">hi", acks, 10_000) + compact_array(entries) + NO_TAGS


# --- reading


class Reader:
    """Reads a response from its first byte; ``end`` asserts that no bytes follow."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def take(self, count: int) -> bytes:
        assert 0 <= count <= len(self.data) - self.position, "the response is cut short"
        self.position += count
        return self.data[self.position - count : self.position]

    def _int(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big", signed=True)

    def int8(self) -> int:
        return self._int(1)

    def int16(self) -> int:
        return self._int(2)

    def int32(self) -> int:
        return self._int(4)

    def int64(self) -> int:
        return self._int(8)

    def boolean(self) -> bool:
        value = self.take(1)
        assert value in (b"\x00", b"\x01")
        return value == b"\x01"

    def uuid(self) -> UUID:
        return UUID(bytes=self.take(16))

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            assert shift < 35, "a varint of more than five bytes"

    def compact_bytes(self) -> bytes | None:
        size = self.uvarint()
        return None if size == 0 else self.take(size - 1)

    def compact_nullable_string(self) -> str | None:
        data = self.compact_bytes()
        return None if data is None else data.decode()

    def compact_string(self) -> str:
        text = self.compact_nullable_string()
        assert text is not None, "null in place of a string"
        return text

    def array(self, item: Callable[[], T]) -> list[T]:
        count = self.int32()
        assert count >= 0, "null in place of an array"
        return [item() for _ in range(count)]

    def compact_nullable_array(self, item: Callable[[], T]) -> list[T] | None:
        count = self.uvarint()
        return None if count == 0 else [item() for _ in range(count - 1)]

    def compact_array(self, item: Callable[[], T]) -> list[T]:
        items = self.compact_nullable_array(item)
        assert items is not None, "null in place of an array"
        return items

    def tags(self) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        last = -1
        for _ in range(self.uvarint()):
            tag = self.uvarint()
            assert tag > last, "tags are not in ascending order"
            last = tag
            found[tag] = self.take(self.uvarint())
        return found

    def end(self) -> None:
        assert self.position == len(self.data), f"{len(self.data) - self.position} bytes too many"


@dataclass
class ApiVersions:
    error: int
    ranges: dict[int, tuple[int, int]]
    throttle_ms: int = 0
    tags: dict[int, bytes] = field(default_factory=dict)


def read_api_versions(frame: bytes, version: int) -> ApiVersions:
    """An ApiVersions response without its correlation id. Its header is v0 in every version."""
    read = Reader(frame)
    read.int32()
    error = read.int16()

    def entry() -> tuple[int, tuple[int, int]]:
        found = (read.int16(), (read.int16(), read.int16()))
        if version >= 3:
            read.tags()
        return found

    entries = read.compact_array(entry) if version >= 3 else read.array(entry)
    throttle = read.int32() if version >= 1 else 0
    tags = read.tags() if version >= 3 else {}
    read.end()
    assert len(dict(entries)) == len(entries), "an api key is listed twice"
    return ApiVersions(error, dict(entries), throttle, tags)


@dataclass
class DescribedPartition:
    error: int
    index: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    eligible: list[int] | None
    last_known: list[int] | None
    offline: list[int]


@dataclass
class DescribedTopic:
    error: int
    name: str | None
    topic_id: UUID
    internal: bool
    partitions: list[DescribedPartition]
    operations: int


@dataclass
class Described:
    throttle_ms: int
    topics: list[DescribedTopic]
    cursor: tuple[str, int] | None
    cursor_byte: bytes


def read_described(frame: bytes) -> Described:
    """A DescribeTopicPartitions v0 response with its header v1."""
    read = Reader(frame)
    read.int32()
    read.tags()
    throttle = read.int32()

    def partition() -> DescribedPartition:
        found = DescribedPartition(
            read.int16(),
            read.int32(),
            read.int32(),
            read.int32(),
            read.compact_array(read.int32),
            read.compact_array(read.int32),
            read.compact_nullable_array(read.int32),
            read.compact_nullable_array(read.int32),
            read.compact_array(read.int32),
        )
        read.tags()
        return found

    def topic() -> DescribedTopic:
        found = DescribedTopic(
            read.int16(),
            read.compact_nullable_string(),
            read.uuid(),
            read.boolean(),
            read.compact_array(partition),
            read.int32(),
        )
        read.tags()
        return found

    topics = read.compact_array(topic)
    presence = read.take(1)
    cursor = None
    if presence != NULL_CURSOR:
        assert presence == b"\x01"
        cursor = (read.compact_string(), read.int32())
        read.tags()
    read.tags()
    read.end()
    return Described(throttle, topics, cursor, presence)


@dataclass
class FetchedPartition:
    index: int
    error: int
    high_watermark: int
    last_stable: int
    log_start: int
    aborted: list[tuple[int, int]] | None
    preferred: int
    records: bytes | None
    tags: dict[int, bytes]


@dataclass
class Fetched:
    throttle_ms: int
    error: int
    session_id: int
    topics: list[tuple[UUID, list[FetchedPartition]]]

    def partition(self, topic_id: UUID, index: int = 0) -> FetchedPartition:
        [found] = [
            partition
            for wanted, partitions in self.topics
            if wanted == topic_id
            for partition in partitions
            if partition.index == index
        ]
        return found


def read_fetched(frame: bytes) -> Fetched:
    """A Fetch v16 response with its header v1."""
    read = Reader(frame)
    read.int32()
    read.tags()

    def aborted() -> tuple[int, int]:
        found = (read.int64(), read.int64())
        read.tags()
        return found

    def partition() -> FetchedPartition:
        return FetchedPartition(
            read.int32(),
            read.int16(),
            read.int64(),
            read.int64(),
            read.int64(),
            read.compact_nullable_array(aborted),
            read.int32(),
            read.compact_bytes(),
            read.tags(),
        )

    def topic() -> tuple[UUID, list[FetchedPartition]]:
        found = (read.uuid(), read.compact_array(partition))
        read.tags()
        return found

    fetched = Fetched(read.int32(), read.int16(), read.int32(), read.compact_array(topic))
    read.tags()
    read.end()
    return fetched


@dataclass
class ProducedPartition:
    index: int
    error: int
    base_offset: int
    append_time: int
    log_start: int
    record_errors: list[tuple[int, str | None]]
    message: str | None
    tags: dict[int, bytes]


@dataclass
class Produced:
    topics: list[tuple[str, list[ProducedPartition]]]
    throttle_ms: int

    def partition(self, name: str, index: int = 0) -> ProducedPartition:
        [found] = [
            partition
            for wanted, partitions in self.topics
            if wanted == name
            for partition in partitions
            if partition.index == index
        ]
        return found


def read_produced(frame: bytes) -> Produced:
    """A Produce v11 response with its header v1."""
    read = Reader(frame)
    read.int32()
    read.tags()

    def record_error() -> tuple[int, str | None]:
        found = (read.int32(), read.compact_nullable_string())
        read.tags()
        return found

    def partition() -> ProducedPartition:
        return ProducedPartition(
            read.int32(),
            read.int16(),
            read.int64(),
            read.int64(),
            read.int64(),
            read.compact_array(record_error),
            read.compact_nullable_string(),
            read.tags(),
        )

    def topic() -> tuple[str, list[ProducedPartition]]:
        found = (read.compact_string(), read.compact_array(partition))
        read.tags()
        return found

    produced = Produced(read.compact_array(topic), read.int32())
    read.tags()
    read.end()
    return produced


# --- asking


class Connection:
    """A socket that sends frames and receives frames."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self._correlation_id = 1000

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def _exactly(self, count: int) -> bytes:
        parts = []
        while count:
            part = self.socket.recv(min(count, 1 << 16))
            if not part:
                raise ConnectionResetError("the broker closed the connection")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def receive(self) -> bytes:
        """The next response without its length."""
        (size,) = struct.unpack(">i", self._exactly(4))
        assert size >= 4
        return self._exactly(size)

    def closed_by_broker(self) -> bool:
        """Return whether the connection is closed next."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def call(self, key: int, version: int, body: bytes, *, flexible: bool = True) -> bytes:
        """Sends a request, checks the correlation id of the response and gives the response."""
        self._correlation_id += 1
        self.send(
            request_frame(
                key, version, body, correlation_id=self._correlation_id, flexible=flexible
            )
        )
        frame = self.receive()
        assert correlation_id(frame) == self._correlation_id
        return frame

    def api_versions(self, version: int) -> ApiVersions:
        body = api_versions_body(version)
        frame = self.call(API_VERSIONS, version, body, flexible=version >= 3)
        return read_api_versions(frame, version)

    def describe(
        self, *topics: str, limit: int = 2000, cursor: tuple[str, int] | None = None
    ) -> Described:
        body = describe_body(topics, limit=limit, cursor=cursor)
        return read_described(self.call(DESCRIBE_TOPIC_PARTITIONS, 0, body))

    def fetch(self, *topics: tuple[UUID, Sequence[FetchFrom]], **options: int) -> Fetched:
        return read_fetched(self.call(FETCH, 16, fetch_body(topics, **options)))

    def produce(
        self, *topics: tuple[str, Sequence[tuple[int, bytes | None]]], acks: int = -1
    ) -> Produced:
        return read_produced(self.call(PRODUCE, 11, produce_body(topics, acks=acks)))


def correlation_id(frame: bytes) -> int:
    """Return the correlation id of a response frame without its length."""
    (number,) = struct.unpack_from(">i", frame)
    return int(number)
