"""The files of the cluster metadata log: snapshots, and the segments behind them.

``__cluster_metadata-0`` is a partition of its own kind (KIP-595, KIP-630). A snapshot is called after
the offset at which it ends and the epoch of the record before: ``00000000000000000042-0000000003.checkpoint``;
it opens with a control batch that has a header and closes with one that has a footer. Without the footer
it is not complete. Records at and behind that offset are in the segments.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kafka_wire import (
    ErrorCode,
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)

from krammar.broker.errors import ApiError, BrokerError
from krammar.broker.metadata_records import decode_frame, encode_frame
from krammar.wire.errors import DecodeError
from krammar.wire.message import Codec
from krammar.wire.records import (
    ControlRecord,
    ControlRecordType,
    Record,
    RecordBatch,
    encode_batch,
    encode_control_batch,
    read_batches,
)

_SNAPSHOT = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_SEGMENT = re.compile(r"(\d{20})\.log")
_UNFINISHED = ".checkpoint.part"
_BOOTSTRAP = "bootstrap.checkpoint"
_RECORDS_PER_BATCH = 1000  # of a snapshot
_MAGIC_POSITION = 16
_SMALLEST_BATCH = 61


@dataclass(frozen=True, slots=True)
class Entry:
    """One record of the log: ``content`` is a decoded record, the number of an unknown type, or a
    control record."""

    offset: int
    timestamp: int
    content: Codec | ControlRecord | int


class MetadataLog:
    """The folder ``__cluster_metadata-0``.

    ``directory``    the folder itself; made when the first record is written
    ``fsync``        whether what was appended is written through to disk
    ``warn``         gets a line of text for what was wrong but could be mended

    After ``read``:

    ``end_offset``   the next record's
    ``epoch``        the greatest leader epoch in the log; 0 if there is none
    ``timestamp``    of the newest batch, in milliseconds since 1970; -1 without one
    ``size``         bytes in the segments
    """

    def __init__(self, directory: Path, *, fsync: bool = True, warn: Callable[[str], None]) -> None:
        self.directory = directory
        self.fsync = fsync
        self.warn = warn
        self.end_offset = 0
        self.epoch = 0
        self.timestamp = -1
        self.size = 0
        self._segment: Path | None = None
        self._segment_size = 0
        self._fd = -1

    # Reading.

    def read(self) -> Iterator[Entry]:
        """All that the folder holds: the newest complete snapshot, and what follows it in the segments.

        What a crash has left of a batch at the very end is cut off. Raises BrokerError, which says
        where, for what cannot be read otherwise.
        """
        start = 0
        found = self._newest_snapshot()
        if found is not None:
            path, start, self.epoch, batches = found
            for batch in batches:
                self.timestamp = max(self.timestamp, batch.max_timestamp)
                yield from _entries(path, batch)
            self.end_offset = start
        segments = _numbered(self.directory, _SEGMENT)
        if segments and segments[0][0] > start:
            raise BrokerError(
                f"{segments[0][1]}: the metadata log begins at offset {segments[0][0]}, but there is no "
                f"complete snapshot up to there; put the missing *.checkpoint file back"
            )
        for index, (_, path) in enumerate(segments):
            if index + 1 < len(segments) and segments[index + 1][0] <= start:
                self.size += path.stat().st_size
                continue  # the snapshot has all of it
            for batch in self._segment_batches(path, last=index == len(segments) - 1):
                if batch.next_offset <= start:
                    continue
                self.epoch = max(self.epoch, batch.partition_leader_epoch)
                self.timestamp = max(self.timestamp, batch.max_timestamp)
                self.end_offset = max(self.end_offset, batch.next_offset)
                for entry in _entries(path, batch):
                    if entry.offset >= start:
                        yield entry
        if segments:
            self._segment = segments[-1][1]

    def bootstrap(self) -> list[Codec]:
        """What Kafka's format command wants in a log that is still empty: the records of the snapshot
        at offset 0, or of ``bootstrap.checkpoint`` beside the folder. Raises BrokerError."""
        for path in (
            self.directory / f"{0:020}-{0:010}.checkpoint",
            self.directory.parent / _BOOTSTRAP,
        ):
            batches = _snapshot_batches(path)
            if batches is not None:
                entries = (entry for batch in batches for entry in _entries(path, batch))
                return [entry.content for entry in entries if isinstance(entry.content, Codec)]
        return []

    def _newest_snapshot(self) -> tuple[Path, int, int, list[RecordBatch]] | None:
        for offset, path in reversed(_numbered(self.directory, _SNAPSHOT)):
            batches = _snapshot_batches(path)
            if batches is not None:
                return path, offset, int(path.name[21:31]), batches
            self.warn(f"{path}: the snapshot is not complete; an older one or the log is used")
        return None

    def _segment_batches(self, path: Path, *, last: bool) -> list[RecordBatch]:
        data = _content(path)
        batches = []
        end = 0
        try:
            for batch in read_batches(data):
                batches.append(batch)
                end = batch.position + batch.size_in_bytes
            cause = "the last batch is cut off"
        except DecodeError as error:
            cause = str(error)
        if end < len(data):
            if not last or _batch_behind(data, end):
                raise BrokerError(
                    f"{path}: the batch at byte {end} is damaged ({cause}), and others follow it; "
                    "restore the file from a copy, or cut it there and lose what follows"
                )
            self.warn(f"{path}: cut at byte {end}, {len(data) - end} bytes were torn ({cause})")
            os.truncate(path, end)
        self.size += end
        self._segment_size = end
        return batches

    # Writing.

    def append(self, records: Sequence[Codec], level: int, now_ms: int) -> None:
        """Write records as one batch, at the versions of this ``metadata.version``.

        Raises ApiError(KAFKA_STORAGE_ERROR) if they could not be written; the log is as it was then.
        """
        values = [Record(timestamp=now_ms, value=encode_frame(record, level)) for record in records]
        self._write(
            encode_batch(
                values, base_offset=self.end_offset, partition_leader_epoch=max(self.epoch, 0)
            )
        )
        self.end_offset += len(values)
        self.timestamp = now_ms

    def append_control(self, records: Sequence[ControlRecord], epoch: int, now_ms: int) -> None:
        """Write a control batch, with which this epoch begins. Raises ApiError as ``append``."""
        for record in records:
            record.timestamp = now_ms
        self._write(
            encode_control_batch(records, base_offset=self.end_offset, partition_leader_epoch=epoch)
        )
        self.epoch = epoch
        self.end_offset += len(records)
        self.timestamp = now_ms

    def _write(self, data: bytes) -> None:
        try:
            if self._fd < 0:
                self._open_segment()
            written = os.write(self._fd, data)
            if written != len(data):
                raise OSError(f"{written} of {len(data)} bytes were written")
            if self.fsync:
                os.fsync(self._fd)
        except OSError as error:
            if self._fd >= 0:
                self._cut_back()
            text = (
                f"{self.directory}: the metadata log cannot be written: {error.strerror or error}"
            )
            self.warn(text)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, text) from None
        self._segment_size += len(data)
        self.size += len(data)

    def _cut_back(self) -> None:
        try:
            os.ftruncate(self._fd, self._segment_size)
        except OSError as error:
            self.warn(f"{self._segment}: cannot be cut back: {error.strerror}")

    def _open_segment(self) -> None:
        if self._segment is None:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._segment = self.directory / f"{self.end_offset:020}.log"
            self._segment_size = 0
            # Kafka's own tools look for them; they are rebuilt from the log when it opens them.
            self._segment.with_suffix(".index").touch()
            self._segment.with_suffix(".timeindex").touch()
        self._fd = os.open(self._segment, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        if self.fsync:
            _fsync_directory(self.directory)

    def snapshot(
        self,
        records: Iterable[Codec],
        level: int,
        now_ms: int,
        kraft: tuple[KRaftVersionRecord, VotersRecord] | None,
    ) -> None:
        """Write the whole state as a snapshot at the end of the log, then start a new segment and
        remove what the snapshot replaces. Raises OSError; nothing is lost then.

        A crash in between leaves files too many, which the next snapshot removes.
        """
        path = self.directory / f"{self.end_offset:020}-{self.epoch:010}.checkpoint"
        draft = path.with_suffix(_UNFINISHED)
        with draft.open("wb") as file:
            for chunk in _snapshot(records, level, now_ms, self.timestamp, kraft):
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
        _fsync_directory(self.directory)
        old = _numbered(self.directory, _SEGMENT)
        self.close()
        self._segment = None
        self.size = 0
        for _, segment in old:
            for suffix in (".index", ".timeindex", ".log"):
                segment.with_suffix(suffix).unlink(missing_ok=True)
        for _, snapshot in _numbered(self.directory, _SNAPSHOT)[:-1]:
            snapshot.unlink(missing_ok=True)
        for unfinished in self.directory.glob(f"*{_UNFINISHED}"):
            unfinished.unlink(missing_ok=True)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _numbered(directory: Path, pattern: re.Pattern[str]) -> list[tuple[int, Path]]:
    """The files of a kind, by the offset in their names."""
    found = []
    if directory.is_dir():
        for path in directory.iterdir():
            match = pattern.fullmatch(path.name)
            if match is not None:
                found.append((int(match[1]), path))
    return sorted(found)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BrokerError(f"{path}: cannot be read: {error.strerror}") from None


def _snapshot_batches(path: Path) -> list[RecordBatch] | None:
    """The batches of a snapshot; None if it is not there or not complete."""
    if not path.is_file():
        return None
    try:
        batches = list(read_batches(_content(path), allow_partial=False))
        if batches and batches[-1].is_control:
            last = batches[-1].control_records()[-1]
            if last.type == ControlRecordType.SNAPSHOT_FOOTER:
                return batches
    except DecodeError:
        pass
    return None


def _entries(path: Path, batch: RecordBatch) -> Iterator[Entry]:
    offset = batch.base_offset
    try:
        if batch.is_control:
            for control in batch.control_records():
                offset = control.offset
                yield Entry(offset, control.timestamp, control)
            return
        for record in batch:
            offset = record.offset
            yield Entry(offset, record.timestamp, decode_frame(record.value or b""))
    except DecodeError as error:
        raise BrokerError(
            f"{path}: the record at offset {offset} (batch at byte {batch.position}) cannot be read: "
            f"{error}; restore the folder from a copy, or open it with the software that wrote it"
        ) from None


def _batch_behind(data: bytes, damaged: int) -> bool:
    """Whether a whole batch stands anywhere behind the first byte of a damaged one: if so, the damage
    is none that a crash while writing leaves."""
    tail = memoryview(data)
    at = data.find(b"\x02", damaged + 1 + _MAGIC_POSITION)
    while at >= 0:
        start = at - _MAGIC_POSITION
        length = int.from_bytes(data[start + 8 : start + 12], "big") + 12
        if _SMALLEST_BATCH <= length <= len(data) - start:
            try:
                for _ in read_batches(tail[start : start + length]):
                    return True
            except DecodeError:
                pass
        at = data.find(b"\x02", at + 1)
    return False


def _snapshot(
    records: Iterable[Codec],
    level: int,
    now_ms: int,
    contained_ms: int,
    kraft: tuple[KRaftVersionRecord, VotersRecord] | None,
) -> Iterator[bytes]:
    header = SnapshotHeaderRecord(last_contained_log_timestamp=max(contained_ms, 0))
    controls = [ControlRecord(ControlRecordType.SNAPSHOT_HEADER, value=header.encode())]
    if kraft is not None:
        controls.append(ControlRecord(ControlRecordType.KRAFT_VERSION, value=kraft[0].encode()))
        controls.append(ControlRecord(ControlRecordType.KRAFT_VOTERS, value=kraft[1].encode()))
    offset = 0

    def control_batch(controls: list[ControlRecord]) -> bytes:
        for control in controls:
            control.timestamp = now_ms
        return encode_control_batch(controls, base_offset=offset, partition_leader_epoch=0)

    yield control_batch(controls)
    offset += len(controls)
    pending: list[Record] = []

    def batch() -> bytes:
        return encode_batch(pending, base_offset=offset, partition_leader_epoch=0)

    for record in records:
        pending.append(Record(timestamp=now_ms, value=encode_frame(record, level)))
        if len(pending) == _RECORDS_PER_BATCH:
            yield batch()
            offset += len(pending)
            pending = []
    if pending:
        yield batch()
        offset += len(pending)
    footer = ControlRecord(ControlRecordType.SNAPSHOT_FOOTER, value=SnapshotFooterRecord().encode())
    yield control_batch([footer])


def _fsync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
