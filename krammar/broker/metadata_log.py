"""The cluster metadata log, in the folder ``__cluster_metadata-0``: reads, appends and writes snapshots."""

from __future__ import annotations

import os
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
from krammar.broker.metadata_files import (
    Placed,
    contents_of,
    segment_batches,
    segments_of,
    snapshot_batches,
    snapshot_name,
    snapshots_of,
)
from krammar.broker.metadata_records import (
    KRAFT_VERSION,
    SUPPORTED_FEATURES,
    encode_frame,
    feature_problem,
)
from krammar.util.clock import perf_counter
from krammar.util.durable import (
    create_file,
    make_folders,
    rename,
    sync,
    write_atomically,
    write_fully,
)
from krammar.util.regular_files import open_regular
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

_UNFINISHED = ".checkpoint.part"
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

    Attributes:
        directory: the folder; created with the first record
        node_id: the node that leads the log's next epoch
        fsync: whether appends, snapshots and their names are forced to the disk
        now_ms: returns the time in milliseconds since 1970
        warn: receives a line of text about each repaired problem
        flushed: called after each flush to the disk, with its seconds

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

    def read(self) -> Iterator[Placed]:
        """Read the newest complete snapshot and the segments after it. Unknown records are skipped.

        An incomplete batch at the end of the log, as a crash leaves it, is cut off.

        Yields:
            Each record, with its file and its offset.

        Raises:
            BrokerError: a file is unreadable or corrupt in another way.
        """
        if self.directory.is_symlink():
            raise BrokerError(
                f"{self.directory} is a symbolic link to {os.path.realpath(self.directory)}, and a broker only writes to"
                " folders inside of log.dirs: move the folder there, or set metadata.log.dir"
            )
        start = 0
        for end, epoch, path in reversed(snapshots_of(self.directory)):
            batches = snapshot_batches(path)
            if batches is not None:
                yield from self._messages(path, batches)
                start = self.end_offset = end
                self.epoch = epoch
                break
            self.warn(f"{path}: the snapshot is incomplete; using an older one or the log instead")
        segments = segments_of(self.directory)
        if segments and segments[0][0] > start:
            raise BrokerError(
                f"{segments[0][1]}: the metadata log begins at offset {segments[0][0]}, but no complete "
                f"snapshot reaches that offset; restore the missing *.checkpoint file"
            )
        for index, (_, path) in enumerate(segments):
            if index + 1 < len(segments) and segments[index + 1][0] <= start:
                self.size += path.stat().st_size
                continue  # the snapshot contains the whole segment
            is_last = index == len(segments) - 1
            yield from self._segment_messages(path, start, last=is_last)
        if segments:
            self._segment = segments[-1][1]

    def _segment_messages(self, path: Path, start: int, *, last: bool) -> Iterator[Placed]:
        def counted() -> Iterator[RecordBatch]:
            self._segment_size = yield from segment_batches(path, last=last, warn=self.warn)
            self.size += self._segment_size

        yield from self._messages(path, counted(), start)

    def _messages(
        self, path: Path, batches: Iterable[RecordBatch], start: int = 0
    ) -> Iterator[Placed]:
        """Yield the known records from an offset on."""
        for batch in batches:
            if batch.next_offset <= start:
                continue
            self.epoch = max(self.epoch, batch.partition_leader_epoch)
            self.timestamp = max(self.timestamp, batch.max_timestamp)
            self.end_offset = max(self.end_offset, batch.next_offset)
            for offset, content in contents_of(path, batch):
                if offset < start:
                    continue
                self.records += 1
                if isinstance(content, ControlRecord):
                    self._note_quorum(path, content)
                elif not isinstance(content, int):
                    yield path, offset, content
                elif content not in self.unknown:
                    self.unknown.add(content)
                    self.warn(
                        f"{self.directory}: records of unknown type {content} are skipped, "
                        f"the first one at offset {offset}"
                    )

    def _note_quorum(self, path: Path, control: ControlRecord) -> None:
        if control.type not in _KRAFT:
            return
        known = self.kraft or {kind: message() for kind, message in _KRAFT.items()}
        try:
            message = _KRAFT[control.type].decode(control.value or b"")
            if control.type == ControlRecordType.KRAFT_VERSION:
                _check_kraft_version(message.k_raft_version)
            self.kraft = {**known, control.type: message}
        except DecodeError as error:
            raise BrokerError(
                f"{path}: the control record at offset {control.offset} is invalid: "
                f"{error}; restore the folder from a copy"
            ) from None

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
                begin = perf_counter()
                self._doubtful = True
                os.fsync(self._fd)
                self._doubtful = False
                self.flushed(perf_counter() - begin)
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

        After a failed fsync, the kernel may have dropped what it did not store, and the next fsync
        would succeed. So a copy of the segment replaces it.
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
            for suffix in (".index", ".timeindex"):
                os.close(open_regular(self._segment.with_suffix(suffix), os.O_WRONLY | os.O_CREAT))
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        self._fd = open_regular(self._segment, flags, _OWNER_ONLY)
        if self.fsync:
            sync(self.directory)

    def snapshot(self, records: Iterable[Codec], level: int) -> None:
        """Write the whole state as a snapshot, start a new segment and remove the old files.

        A crash in between leaves surplus files, which the next snapshot removes.

        Raises:
            OSError: a file cannot be written; no data is lost.
        """
        path = self.directory / snapshot_name(self.end_offset, self.epoch)
        draft = path.with_suffix(_UNFINISHED)
        try:
            fd = create_file(draft, _OWNER_ONLY)
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
        old = segments_of(self.directory)
        self.close()
        self._segment = None
        self.size = self.records = 0
        self._torn = self._doubtful = False
        for _, segment in old:
            for suffix in (".index", ".timeindex", ".log"):
                segment.with_suffix(suffix).unlink(missing_ok=True)
        for _, _, snapshot in snapshots_of(self.directory)[:-1]:
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


def _check_kraft_version(level: int) -> None:
    """Raise DecodeError for a version of KRaft that this broker does not know."""
    problem = feature_problem(KRAFT_VERSION, level, SUPPORTED_FEATURES, "this broker")
    if problem is not None:
        raise DecodeError(f"Unsupported {KRAFT_VERSION} {level}: {problem}")


def _control(kind: int, message: Any, now: int) -> ControlRecord:
    return ControlRecord(kind, value=message.encode(), timestamp=now)
