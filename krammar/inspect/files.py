"""``krammar inspect PATH``: the files of a log folder, as Kafka's ``kafka-dump-log`` prints them.

Each line of the output is an ``Item``: a kind, and fields with Kafka's names. Only one batch at a time is in
memory.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import kafka_wire

from krammar.logfiles.damage import Damage, DamageError
from krammar.logfiles.index import OffsetIndex, SparseIndex, TimeIndex, TransactionIndex
from krammar.logfiles.internal_topics import decode_record
from krammar.logfiles.names import (
    INDEX,
    LOG,
    METADATA_SNAPSHOT,
    SNAPSHOT,
    TIME_INDEX,
    TRANSACTION_INDEX,
    parse_partition,
)
from krammar.logfiles.segment import Segment
from krammar.logfiles.snapshot import read_snapshot_file
from krammar.util.printable import escape, printable_json
from krammar.wire.batches import BatchHeader, ControlRecord, ControlRecordType, Record
from krammar.wire.errors import DecodeError, WireError

# Lines of the output.


@dataclass(frozen=True, slots=True)
class Item:
    """A line: ``kind`` is file, batch, record, entry, transaction, producer or damage."""

    kind: str
    fields: dict[str, Any]

    @property
    def is_damage(self) -> bool:
        return self.kind == "damage"

    def as_json(self) -> str:
        """Return the item as one line of JSON."""
        return printable_json({"kind": self.kind, **self.fields})

    def as_text(self) -> str:
        """Return the item as ``kafka-dump-log`` prints it. Control characters are escaped."""
        if self.kind == "file":
            return f"Dumping {escape(self.fields['path'])}"
        text = " ".join(f"{name}: {_text(name, value)}" for name, value in self.fields.items())
        if self.kind == "record":
            return f"| {text}"
        return f"DAMAGED {text}" if self.is_damage else text


def _text(name: str, value: Any) -> str:
    quoted = not isinstance(value, str) or name in ("key", "value")
    return escape(json.dumps(value, ensure_ascii=False) if quoted else value)


def damage_item(error: DamageError) -> Item:
    fields: dict[str, Any] = {"case": error.damage.value}
    if error.position >= 0:
        fields["position"] = error.position
    return Item("damage", {**fields, "message": str(error)})


# Batches and records of segments.


class _File(Segment):
    """A segment by the path of its file, which can also be a snapshot of the metadata log."""

    __slots__ = ("_path",)

    def __init__(self, path: str, base: int, damaged: Callable[[DamageError], None]) -> None:
        self._path = path
        super().__init__(os.path.dirname(path), base, damaged=damaged)

    @property
    def path(self) -> str:
        return self._path


def segment_items(path: str, base: int, records: bool) -> Iterator[Item]:
    found: list[DamageError] = []
    folder = parse_partition(os.path.basename(os.path.dirname(os.path.abspath(path))))
    topic = "" if folder is None else folder[0]
    if METADATA_SNAPSHOT.fullmatch(os.path.basename(path)):
        base = 0  # the batches of a snapshot count from 0
    with _File(path, base, found.append) as segment:
        next_offset = base
        for header in segment.scan():
            yield from map(damage_item, found)
            found.clear()
            damage = segment.damage_in(header, next_offset)
            is_valid = all(error.damage is not Damage.CRC for error in damage)
            yield Item("batch", _batch(header, is_valid))
            yield from map(damage_item, damage)
            next_offset = header.next_offset
            if records and is_valid:
                try:
                    yield from _records(segment, header, topic)
                except DecodeError as error:
                    size = header.size_in_bytes
                    yield damage_item(
                        DamageError(Damage.RECORDS, str(error), header.position, size)
                    )
        yield from map(damage_item, found)


def _batch(header: BatchHeader, is_valid: bool) -> dict[str, Any]:
    try:
        codec = header.compression.name.lower()
    except DecodeError as error:
        codec = str(error)
    fields: dict[str, Any] = {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.records_count,
        "baseSequence": header.base_sequence,
        "lastSequence": _last_sequence(header),
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.partition_leader_epoch,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
    }
    if header.has_delete_horizon:
        fields["deleteHorizonMs"] = header.base_timestamp
    return fields | {
        "position": header.position,
        _time_name(header): header.max_timestamp,
        "size": header.size_in_bytes,
        "magic": header.magic,
        "compresscodec": codec,
        "crc": header.crc,
        "isvalid": is_valid,
    }


def _last_sequence(header: BatchHeader) -> int:
    if header.base_sequence < 0:
        return -1
    return (header.base_sequence + header.last_offset_delta) % (1 << 31)


def _time_name(header: BatchHeader) -> str:
    return ("NoTimestampType", "CreateTime", "LogAppendTime")[header.timestamp_type + 1]


def _records(segment: Segment, header: BatchHeader, topic: str) -> Iterator[Item]:
    time = _time_name(header)
    for record in segment.batch(header):
        fields: dict[str, Any] = {"offset": record.offset, time: record.timestamp}
        fields |= _content(header, record, topic)
        if record.headers:
            fields["headers"] = [{"key": name, **_bytes("value", v)} for name, v in record.headers]
        yield Item("record", fields)
        if "error" in fields:
            text = f"the record at offset {record.offset}: {fields['error']}"
            yield damage_item(
                DamageError(Damage.RECORDS, text, header.position, header.size_in_bytes)
            )


def _bytes(name: str, data: bytes | None) -> dict[str, Any]:
    """The bytes as text if they are UTF-8, or else as hexadecimal digits."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}Hex": data.hex()}


def _content(header: BatchHeader, record: Record, topic: str) -> dict[str, Any]:
    """The fields of a record's key and value, decoded if the topic is internal."""
    raw = _bytes("key", record.key) | _bytes("value", record.value)
    try:
        if header.is_control:
            return _control(ControlRecord.from_record(record))
        decoded = decode_record(topic, record.key, record.value)
    except WireError as error:
        return raw | {"error": str(error)}
    if decoded is None:
        return raw
    kind, key, value = decoded
    fields: dict[str, Any] = {"type": kind}
    if key is not None:
        fields["key"] = key.to_dict()
    fields["value"] = None if value is None else value.to_dict()
    return fields


def _control(control: ControlRecord) -> dict[str, Any]:
    name = _CONTROL_MESSAGES.get(control.type)
    if control.type in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
        return {
            "endTxnMarker": ControlRecordType(control.type).name,
            "coordinatorEpoch": control.coordinator_epoch,
        }
    if name is None:
        return {"controlType": control.type} | _bytes("value", control.value)
    message: Any = getattr(kafka_wire, name)
    return {"type": name, "value": message.decode(control.value or b"").to_dict()}


_CONTROL_MESSAGES: dict[int, str] = {
    ControlRecordType.LEADER_CHANGE: "LeaderChangeMessage",
    ControlRecordType.SNAPSHOT_HEADER: "SnapshotHeaderRecord",
    ControlRecordType.SNAPSHOT_FOOTER: "SnapshotFooterRecord",
    ControlRecordType.KRAFT_VERSION: "KRaftVersionRecord",
    ControlRecordType.KRAFT_VOTERS: "VotersRecord",
}


# Files and folders.

_NAME = re.compile(r"([0-9]{20})(?:-[0-9]{10})?(\.[a-z]+)")


class FilesError(Exception):
    """The path contains no file of a log, or a file cannot be read."""


def inspect_path(path: str, *, records: bool = False) -> Iterator[Item]:
    """Yield the content of a file, a partition's folder or a log folder.

    Damage is an item of its own, with its position. Reading continues at the next batch that can be found.

    Args:
        records: yield the records of each batch too.

    Raises:
        FilesError: the path contains no file of a log, or a file cannot be read.
    """
    try:
        yield from _inspect(path, records)
    except OSError as error:
        raise FilesError(f"{error.filename or path}: {error.strerror}") from None


def _inspect(path: str, records: bool) -> Iterator[Item]:
    if not os.path.isdir(path):
        yield from _inspect_file(path, records)
        return
    found = False
    for folder in _partition_folders(path):
        for name in sorted(os.listdir(folder), key=_order):
            match = _NAME.fullmatch(name)
            if match is not None and match[2] in _READERS:
                found = True
                yield from _inspect_file(os.path.join(folder, name), records)
    if not found:
        raise FilesError(
            f"{path} contains no file of a log, and no folder of a partition "
            f"(krammar can read {_ENDINGS} files)"
        )


def _partition_folders(path: str) -> list[str]:
    names = sorted(os.listdir(path))
    if any(_NAME.fullmatch(name) for name in names):
        return [path]
    folders = [os.path.join(path, name) for name in names if parse_partition(name)]
    return [folder for folder in folders if os.path.isdir(folder)]


def _order(name: str) -> tuple[str, int]:
    """Sort by offset, and a segment before its indexes."""
    ending = os.path.splitext(name)[1]
    return name[:20], list(_READERS).index(ending) if ending in _READERS else -1


def _inspect_file(path: str, records: bool) -> Iterator[Item]:
    match = _NAME.fullmatch(os.path.basename(path))
    reader = None if match is None else _READERS.get(match[2])
    if match is None or reader is None:
        raise FilesError(
            f"{path} is not a file of a log (krammar can read {_ENDINGS} files, with Kafka's names)"
        )
    yield Item("file", {"path": path})
    try:
        yield from reader(path, int(match[1]), records)
    except DamageError as error:
        yield damage_item(error)


# Segments.


# Indexes and snapshots.


def _index(path: str, base: int, records: bool) -> Iterator[Item]:
    index = OffsetIndex(path)
    index.read()
    segment = None
    # Positions can only be checked if the segment exists.
    with contextlib.suppress(OSError):
        segment = Segment(os.path.dirname(path), base)
    for number, (key, position) in enumerate(zip(index.keys, index.values, strict=True)):
        yield Item("entry", {"offset": base + key, "position": position})
        if segment is not None and not segment.is_at(base + key, position):
            text = f"no batch with the last offset {base + key} begins at byte {position}"
            yield damage_item(DamageError(Damage.INDEX, text, number * index.entry.size))
    if segment is not None:
        segment.close()


def _time_index(path: str, base: int, records: bool) -> Iterator[Item]:
    index: SparseIndex = TimeIndex(path)
    index.read()
    for timestamp, offset in zip(index.keys, index.values, strict=True):
        yield Item("entry", {"timestamp": timestamp, "offset": base + offset})


def _transaction_index(path: str, base: int, records: bool) -> Iterator[Item]:
    index = TransactionIndex(path)
    index.read()
    for entry in index.entries:
        fields = {
            "version": entry.version,
            "producerId": entry.producer_id,
            "firstOffset": entry.first_offset,
            "lastOffset": entry.last_offset,
            "lastStableOffset": entry.last_stable_offset,
        }
        yield Item("transaction", fields)


def _snapshot(path: str, base: int, records: bool) -> Iterator[Item]:
    snapshot = read_snapshot_file(path)
    for entry in snapshot.producer_entries:
        first = entry.current_txn_first_offset
        fields = {
            "producerId": entry.producer_id,
            "producerEpoch": entry.epoch,
            "coordinatorEpoch": entry.coordinator_epoch,
            "currentTxnFirstOffset": None if first < 0 else first,
            "lastTimestamp": entry.timestamp,
            "lastSequence": entry.last_sequence,
            "lastOffset": entry.last_offset,
            "offsetDelta": entry.offset_delta,
        }
        yield Item("producer", fields)


_READERS: dict[str, Callable[[str, int, bool], Iterator[Item]]] = {
    LOG: segment_items,
    ".checkpoint": segment_items,
    INDEX: _index,
    TIME_INDEX: _time_index,
    TRANSACTION_INDEX: _transaction_index,
    SNAPSHOT: _snapshot,
}
_ENDINGS = ", ".join(_READERS)
