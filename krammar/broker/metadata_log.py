"""The files of the cluster metadata log: snapshots and segments.

``__cluster_metadata-0`` has snapshots besides segments (KIP-595, KIP-630). The name of a snapshot consists of its
end offset and the epoch of its last record: ``00000000000000000042-0000000003.checkpoint``. A snapshot begins with a
control batch with a header and ends with one with a footer; without a footer it is incomplete. The segments contain
the records from the end offset on.
"""

from __future__ import annotations

import os
import time
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
from krammar.broker.log.files import sync
from krammar.broker.metadata_records import encode_frame
from krammar.logfiles.metadata_frame import decode_frame
from krammar.logfiles.names import LOG, METADATA_SNAPSHOT, segment_bases, stem
from krammar.wire.batches import (
    ControlRecord,
    ControlRecordType,
    Record,
    RecordBatch,
    encode_batch,
    encode_control_batch,
    read_batches,
)
from krammar.wire.batches.header import MAGIC_AT, header_at
from krammar.wire.errors import DecodeError
from krammar.wire.message import Codec

_UNFINISHED = ".checkpoint.part"
_BOOTSTRAP = "bootstrap.checkpoint"
_RECORDS_PER_BATCH = 1000  # of a snapshot
# The log holds users' credentials.
_OWNER_ONLY = 0o600


@dataclass(frozen=True, slots=True)
class Entry:
    """One record of the log.

    ``content``  a decoded record, a control record, or the number of an unknown record type
    """

    offset: int
    timestamp: int
    content: Codec | ControlRecord | int


class MetadataLog:
    """The folder ``__cluster_metadata-0``.

    ``directory``    the folder; created with the first record
    ``fsync``        whether appends are forced to the disk
    ``flushed``      called after each flush to the disk, with its seconds
    ``warn``         receives a line of text about each repaired problem

    Valid after ``read``:

    ``end_offset``   the offset of the next record
    ``epoch``        the largest leader epoch in the log; 0 if there is none
    ``timestamp``    of the newest batch, in milliseconds since 1970; -1 if there is none
    ``size``         the size of all segments in bytes
    """

    def __init__(self, directory: Path, *, fsync: bool = True, warn: Callable[[str], None]) -> None:
        self.directory = directory
        self.fsync = fsync
        self.flushed: Callable[[float], object] = lambda seconds: None
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
        """Read the newest complete snapshot and the segments after it.

        An incomplete batch at the end of the log, as a crash leaves it, is cut off.

        Raises:
            BrokerError: a file is unreadable or corrupt in another way.
        """
        start = 0
        found = self._newest_snapshot()
        if found is not None:
            path, start, self.epoch, batches = found
            for batch in batches:
                self.timestamp = max(self.timestamp, batch.max_timestamp)
                yield from _entries(path, batch)
            self.end_offset = start
        segments = _segments(self.directory)
        if segments and segments[0][0] > start:
            raise BrokerError(
                f"{segments[0][1]}: the metadata log begins at offset {segments[0][0]}, but no complete "
                f"snapshot reaches that offset; restore the missing *.checkpoint file"
            )
        for index, (_, path) in enumerate(segments):
            if index + 1 < len(segments) and segments[index + 1][0] <= start:
                self.size += path.stat().st_size
                continue  # the snapshot contains the whole segment
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
        """Return the first records of a new log, as Kafka's format command has prepared them.

        They are in the snapshot at offset 0, or in ``bootstrap.checkpoint`` next to the folder. The result is empty
        if neither exists. Raises BrokerError.
        """
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
        for offset, path in reversed(_snapshots(self.directory)):
            batches = _snapshot_batches(path)
            if batches is not None:
                return path, offset, int(path.name[21:31]), batches
            self.warn(f"{path}: the snapshot is incomplete; using an older one or the log instead")
        return None

    def _segment_batches(self, path: Path, *, last: bool) -> list[RecordBatch]:
        data = _content(path)
        batches = []
        end = 0
        try:
            for batch in read_batches(data):
                batches.append(batch)
                end = batch.position + batch.size_in_bytes
            cause = "the last batch is incomplete"
        except DecodeError as error:
            cause = str(error)
        if end < len(data):
            if not last or _batch_after(data, end):
                raise BrokerError(
                    f"{path}: the batch at byte {end} is corrupt ({cause}), and other batches follow; "
                    "restore the file from a copy, or truncate it there and lose the rest"
                )
            self.warn(
                f"{path}: truncated at byte {end}: the last {len(data) - end} bytes are no complete "
                f"batch ({cause})"
            )
            os.truncate(path, end)
        self.size += end
        self._segment_size = end
        return batches

    # Writing.

    def append(self, records: Sequence[Codec], level: int, now_ms: int) -> None:
        """Write records as one batch, at the versions that belong to a ``metadata.version``.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR; the log is unchanged.
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
        """Write a control batch that begins a leader epoch. Raises ApiError like ``append``."""
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
                begin = time.perf_counter()
                os.fsync(self._fd)
                self.flushed(time.perf_counter() - begin)
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
            self.warn(f"{self._segment}: cannot be truncated: {error.strerror}")

    def _open_segment(self) -> None:
        if self._segment is None:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._segment = self.directory / f"{self.end_offset:020}.log"
            self._segment_size = 0
            # Kafka's tools require these files; Kafka rebuilds them from the log.
            self._segment.with_suffix(".index").touch()
            self._segment.with_suffix(".timeindex").touch()
        self._fd = os.open(self._segment, os.O_WRONLY | os.O_APPEND | os.O_CREAT, _OWNER_ONLY)
        if self.fsync:
            sync(self.directory)

    def snapshot(
        self,
        records: Iterable[Codec],
        level: int,
        now_ms: int,
        kraft: tuple[KRaftVersionRecord, VotersRecord] | None,
    ) -> None:
        """Write the whole state as a snapshot, start a new segment and remove the old files.

        A crash in between leaves surplus files, which the next snapshot removes.

        Raises:
            OSError: a file cannot be written; no data is lost.
        """
        path = self.directory / f"{self.end_offset:020}-{self.epoch:010}.checkpoint"
        draft = path.with_suffix(_UNFINISHED)
        with os.fdopen(
            os.open(draft, os.O_WRONLY | os.O_TRUNC | os.O_CREAT, _OWNER_ONLY), "wb"
        ) as file:
            for chunk in _snapshot(records, level, now_ms, self.timestamp, kraft):
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
        sync(self.directory)
        old = _segments(self.directory)
        self.close()
        self._segment = None
        self.size = 0
        for _, segment in old:
            for suffix in (".index", ".timeindex", ".log"):
                segment.with_suffix(suffix).unlink(missing_ok=True)
        for _, snapshot in _snapshots(self.directory)[:-1]:
            snapshot.unlink(missing_ok=True)
        for unfinished in self.directory.glob(f"*{_UNFINISHED}"):
            unfinished.unlink(missing_ok=True)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _names(directory: Path) -> list[str]:
    return os.listdir(directory) if directory.is_dir() else []


def _segments(directory: Path) -> list[tuple[int, Path]]:
    return [(base, directory / (stem(base) + LOG)) for base in segment_bases(_names(directory))]


def _snapshots(directory: Path) -> list[tuple[int, Path]]:
    """Return the snapshots with their end offsets, in ascending order."""
    found = filter(None, map(METADATA_SNAPSHOT.fullmatch, _names(directory)))
    return sorted((int(match[1]), directory / match[0]) for match in found)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BrokerError(f"{path}: cannot be read: {error.strerror}") from None


def _snapshot_batches(path: Path) -> list[RecordBatch] | None:
    """Read the batches of a snapshot; None if it does not exist or is incomplete."""
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
            f"{path}: the record at offset {offset} (batch at byte {batch.position}) is corrupt: "
            f"{error}; restore the folder from a copy, or open it with the software that wrote it"
        ) from None


def _batch_after(data: bytes, corrupt: int) -> bool:
    """Return whether a complete batch follows a corrupt one, which a crash while writing cannot cause."""
    tail = memoryview(data)
    at = data.find(b"\x02", corrupt + 1 + MAGIC_AT)
    while at >= 0:
        start = at - MAGIC_AT
        header = header_at(data, start, start)
        if header is not None and header.size_in_bytes <= len(data) - start:
            try:
                for _ in read_batches(tail[start : start + header.size_in_bytes]):
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
