"""The batches and records of segments, as ``krammar inspect PATH`` prints them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import kafka_wire

from krammar.inspect.items import Item, damage_item
from krammar.logfiles.damage import Damage, DamageError
from krammar.logfiles.internal_topics import decode_record
from krammar.logfiles.names import METADATA_SNAPSHOT, parse_partition
from krammar.logfiles.segment import Segment
from krammar.wire.batches import BatchHeader, ControlRecord, ControlRecordType, Record
from krammar.wire.errors import DecodeError, WireError


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
