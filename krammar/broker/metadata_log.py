"""The files of the cluster metadata log: snapshots and segments.

``__cluster_metadata-0`` has snapshots besides segments (KIP-595, KIP-630). The name of a snapshot consists of its
end offset and the epoch of its last record: ``00000000000000000042-0000000003.checkpoint``. A snapshot begins with a
control batch with a header and ends with one with a footer; without a footer it is incomplete. The segments contain
the records from the end offset on.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from kafka_wire import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)

from krammar.broker.errors import BrokerError
from krammar.broker.log.files import StorageError
from krammar.broker.metadata_records import encode_frame
from krammar.logfiles.metadata_frame import decode_frame
from krammar.logfiles.names import LOG, METADATA_SNAPSHOT, segment_bases, stem
from krammar.util.durable import make_folders, rename, sync, write_atomically, write_fully
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
# The control records that describe the quorum, in their order in the log.
_KRAFT: dict[int, Any] = {
    ControlRecordType.KRAFT_VERSION: KRaftVersionRecord,
    ControlRecordType.KRAFT_VOTERS: VotersRecord,
}


@dataclass(slots=True, eq=False)
class MetadataLog:
    """The folder ``__cluster_metadata-0``.

    ``directory``    the folder; created with the first record
    ``node_id``      the node that leads the log's next epoch
    ``fsync``        whether appends, snapshots and their names are forced to the disk
    ``now_ms``       returns the time in milliseconds since 1970
    ``warn``         receives a line of text about each repaired problem
    ``flushed``      called after each flush to the disk, with its seconds

    Valid after ``read``:

    ``end_offset``   the offset of the next record
    ``epoch``        the largest leader epoch in the log; 0 if there is none
    ``timestamp``    of the newest batch, in milliseconds since 1970; -1 if there is none
    ``size``         the size of all segments in bytes
    ``records``      the number of records that were read and appended since the last own snapshot
    ``unknown``      the types of the skipped records
    ``kraft``        the messages that describe the quorum, by type; both or none
    """

    directory: Path
    node_id: int
    fsync: bool
    now_ms: Callable[[], int]
    warn: Callable[[str], None]
    flushed: Callable[[float], object] = lambda seconds: None
    end_offset: int = 0
    epoch: int = 0
    timestamp: int = -1
    size: int = 0
    records: int = 0
    unknown: set[int] = field(default_factory=set)
    kraft: dict[int, Any] = field(default_factory=dict)
    _leading: bool = False
    _segment: Path | None = None
    _segment_size: int = 0
    _fd: int = -1
    _torn: bool = False  # whether a failed write could not be undone
    _doubtful: bool = False  # whether an fsync of the segment has failed

    # Reading.

    def read(self) -> Iterator[Codec]:
        """Read the newest complete snapshot and the segments after it. Unknown records are skipped.

        An incomplete batch at the end of the log, as a crash leaves it, is cut off.

        Raises:
            BrokerError: a file is unreadable or corrupt in another way.
        """
        start = 0
        for end, epoch, path in reversed(_snapshots(self.directory)):
            batches = _snapshot_batches(path)
            if batches:
                yield from self._messages(path, batches)
                start = self.end_offset = end
                self.epoch = epoch
                break
            self.warn(f"{path}: the snapshot is incomplete; using an older one or the log instead")
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
            batches = self._segment_batches(path, last=index == len(segments) - 1)
            yield from self._messages(path, batches, start)
        if segments:
            self._segment = segments[-1][1]

    def _messages(self, path: Path, batches: list[RecordBatch], start: int = 0) -> Iterator[Codec]:
        """Yield the known records from an offset on."""
        for batch in batches:
            if batch.next_offset <= start:
                continue
            self.epoch = max(self.epoch, batch.partition_leader_epoch)
            self.timestamp = max(self.timestamp, batch.max_timestamp)
            self.end_offset = max(self.end_offset, batch.next_offset)
            for offset, content in _contents(path, batch):
                if offset < start:
                    continue
                self.records += 1
                if isinstance(content, ControlRecord):
                    self._note_quorum(content)
                elif not isinstance(content, int):
                    yield content
                elif content not in self.unknown:
                    self.unknown.add(content)
                    self.warn(
                        f"{self.directory}: records of unknown type {content} are skipped, "
                        f"the first one at offset {offset}"
                    )

    def _note_quorum(self, control: ControlRecord) -> None:
        if control.type not in _KRAFT:
            return
        known = self.kraft or {kind: message() for kind, message in _KRAFT.items()}
        try:
            self.kraft = {**known, control.type: _KRAFT[control.type].decode(control.value or b"")}
        except DecodeError as error:
            raise BrokerError(
                f"{self.directory}: the control record at offset {control.offset} is corrupt: "
                f"{error}; restore the folder from a copy"
            ) from None

    def bootstrap(self) -> list[Codec]:
        """Return the first records of a new log, as Kafka's format command has prepared them.

        They are in the snapshot at offset 0, or in ``bootstrap.checkpoint`` next to the folder. The result is empty
        if neither exists. Raises BrokerError.
        """
        for path in (self.directory / _snapshot_name(0, 0), self.directory.parent / _BOOTSTRAP):
            batches = _snapshot_batches(path)
            contents = (each for batch in batches for _, each in _contents(path, batch))
            if batches:
                return [each for each in contents if isinstance(each, Codec)]
        return []

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

    def append(self, frames: Sequence[bytes]) -> None:
        """Write records as one batch.

        Raises:
            StorageError: the log is unchanged.
        """
        now = self.now_ms()
        values = [Record(timestamp=now, value=frame) for frame in frames]
        self._write(encode_batch, values, self.epoch)
        self.records += len(values)

    def lead(self) -> None:
        """Begin a new leader epoch before the first record that this process writes. Raises StorageError."""
        if self._leading:
            return
        now = self.now_ms()
        voter = LeaderChangeMessage.Voter(voter_id=self.node_id)
        message = LeaderChangeMessage(
            leader_id=self.node_id, voters=[voter], granting_voters=[voter]
        )
        controls = [_control(ControlRecordType.LEADER_CHANGE, message, now)]
        if self.end_offset == 0:
            controls += self._quorum(now)
        self._write(encode_control_batch, controls, self.epoch + 1)
        self._leading = True

    def _quorum(self, now: int) -> list[ControlRecord]:
        return [_control(kind, message, now) for kind, message in self.kraft.items()]

    def _write(
        self,
        encode: Callable[..., bytes],
        records: Sequence[Record] | Sequence[ControlRecord],
        epoch: int,
    ) -> None:
        data = encode(records, base_offset=self.end_offset, partition_leader_epoch=epoch)
        try:
            self._mend()
            if self._fd < 0:
                self._open_segment()
            written = os.write(self._fd, data)
            if written != len(data):
                raise OSError(f"{written} of {len(data)} bytes were written")
            if self.fsync:
                begin = time.perf_counter()
                self._doubtful = True
                os.fsync(self._fd)
                self._doubtful = False
                self.flushed(time.perf_counter() - begin)
        except OSError as error:
            if self._fd >= 0:
                self._cut_back()
            text = (
                f"{self.directory}: the metadata log cannot be written: {error.strerror or error}; nothing"
                " has changed. Repeat the request when the disk can be written again"
            )
            self.warn(text)
            raise StorageError(text) from None
        self._segment_size += len(data)
        self.size += len(data)
        self.end_offset += len(records)
        self.epoch = epoch
        self.timestamp = records[0].timestamp

    def _cut_back(self) -> None:
        try:
            os.ftruncate(self._fd, self._segment_size)
            self._torn = False
        except OSError as error:
            self._torn = True
            self.warn(f"{self._segment}: cannot be truncated: {error.strerror}; it will be retried")

    def _mend(self) -> None:
        """Undo a failed write completely before the next one. Raises OSError.

        After a failed fsync, the kernel may have dropped what it did not store, and the next fsync would succeed. So a
        copy of the segment replaces it.
        """
        if self._torn:
            os.ftruncate(self._fd, self._segment_size)
            self._torn = False
        if self._doubtful and self._segment is not None:
            content = self._segment.read_bytes()[: self._segment_size]
            try:
                whole = sum(each.size_in_bytes for each in read_batches(content)) == len(content)
            except DecodeError:
                whole = False
            if not whole or len(content) != self._segment_size:
                raise OSError(
                    f"{self._segment} is damaged after a failed fsync; restart the broker, which verifies it"
                )
            write_atomically(self._segment, content, mode=_OWNER_ONLY)
            self.close()
            self._doubtful = False

    def _open_segment(self) -> None:
        if self._segment is None:
            make_folders(self.directory, durable=self.fsync)
            self._segment = self.directory / f"{self.end_offset:020}.log"
            self._segment_size = 0
            # Kafka's tools require these files; Kafka rebuilds them from the log.
            self._segment.with_suffix(".index").touch()
            self._segment.with_suffix(".timeindex").touch()
        self._fd = os.open(self._segment, os.O_WRONLY | os.O_APPEND | os.O_CREAT, _OWNER_ONLY)
        if self.fsync:
            sync(self.directory)

    def snapshot(self, records: Iterable[Codec], level: int) -> None:
        """Write the whole state as a snapshot, start a new segment and remove the old files.

        A crash in between leaves surplus files, which the next snapshot removes.

        Raises:
            OSError: a file cannot be written; no data is lost.
        """
        path = self.directory / _snapshot_name(self.end_offset, self.epoch)
        draft = path.with_suffix(_UNFINISHED)
        try:
            fd = os.open(draft, os.O_WRONLY | os.O_TRUNC | os.O_CREAT, _OWNER_ONLY)
            try:
                end = 0
                for batch in self._snapshot_of(records, level):
                    write_fully(fd, batch, end)
                    end += len(batch)
                if self.fsync:
                    os.fsync(fd)
            finally:
                os.close(fd)
            rename(draft, path, durable=self.fsync)
        except OSError:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
            raise
        old = _segments(self.directory)
        self.close()
        self._segment = None
        self.size = self.records = 0
        self._torn = self._doubtful = False
        for _, segment in old:
            for suffix in (".index", ".timeindex", ".log"):
                segment.with_suffix(suffix).unlink(missing_ok=True)
        for _, _, snapshot in _snapshots(self.directory)[:-1]:
            snapshot.unlink(missing_ok=True)
        for unfinished in self.directory.glob(f"*{_UNFINISHED}"):
            unfinished.unlink(missing_ok=True)

    def _snapshot_of(self, records: Iterable[Codec], level: int) -> Iterator[bytes]:
        now = self.now_ms()
        header = SnapshotHeaderRecord(last_contained_log_timestamp=max(self.timestamp, 0))
        controls = [_control(ControlRecordType.SNAPSHOT_HEADER, header, now), *self._quorum(now)]
        yield encode_control_batch(controls, base_offset=0, partition_leader_epoch=0)
        offset = len(controls)
        values = (Record(timestamp=now, value=encode_frame(record, level)) for record in records)
        while batch := list(islice(values, _RECORDS_PER_BATCH)):
            yield encode_batch(batch, base_offset=offset, partition_leader_epoch=0)
            offset += len(batch)
        footer = _control(ControlRecordType.SNAPSHOT_FOOTER, SnapshotFooterRecord(), now)
        yield encode_control_batch([footer], base_offset=offset, partition_leader_epoch=0)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _names(directory: Path) -> list[str]:
    return os.listdir(directory) if directory.is_dir() else []


def _segments(directory: Path) -> list[tuple[int, Path]]:
    return [(base, directory / (stem(base) + LOG)) for base in segment_bases(_names(directory))]


def _snapshots(directory: Path) -> list[tuple[int, int, Path]]:
    """Return the end offsets and epochs of the snapshots in ascending order, with their paths."""
    found = filter(None, map(METADATA_SNAPSHOT.fullmatch, _names(directory)))
    return sorted((int(match[1]), int(match[2]), directory / match[0]) for match in found)


def _snapshot_name(end_offset: int, epoch: int) -> str:
    return f"{end_offset:020}-{epoch:010}.checkpoint"


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BrokerError(f"{path}: cannot be read: {error.strerror}") from None


def _snapshot_batches(path: Path) -> list[RecordBatch]:
    """Read the batches of a snapshot; none if it does not exist or is incomplete."""
    if path.is_file():
        with suppress(DecodeError):
            batches = list(read_batches(_content(path), allow_partial=False))
            if batches and batches[-1].is_control:
                last = batches[-1].control_records()[-1]
                if last.type == ControlRecordType.SNAPSHOT_FOOTER:
                    return batches
    return []


def _contents(path: Path, batch: RecordBatch) -> Iterator[tuple[int, Codec | ControlRecord | int]]:
    """Yield the offset of each record, and the decoded record or the number of its unknown type."""
    offset = batch.base_offset
    try:
        if batch.is_control:
            for control in batch.control_records():
                offset = control.offset
                yield offset, control
            return
        for record in batch:
            offset = record.offset
            yield offset, decode_frame(record.value or b"")
    except DecodeError as error:
        raise BrokerError(
            f"{path}: the record at offset {offset} (batch at byte {batch.position}) is corrupt: "
            f"{error}; restore the folder from a copy, or open it with the software that wrote it"
        ) from None


def _batch_after(data: bytes, corrupt: int) -> bool:
    """Return whether a complete batch follows a corrupt one, which a crash while writing cannot cause."""
    view = memoryview(data)
    for magic in re.finditer(b"\x02", view[corrupt + 1 + MAGIC_AT :]):
        start = corrupt + 1 + magic.start()
        header = header_at(data, start, start)
        if header is not None and header.size_in_bytes <= len(data) - start:
            with suppress(DecodeError):
                for _ in read_batches(view[start : start + header.size_in_bytes]):
                    return True
    return False


def _control(kind: int, message: Any, now: int) -> ControlRecord:
    return ControlRecord(kind, value=message.encode(), timestamp=now)
