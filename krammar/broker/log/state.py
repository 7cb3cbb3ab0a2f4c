"""The state of one log, which its parts share: segments, offsets, and whether it is online."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kafka_wire import ErrorCode

from krammar.broker.errors import ApiError
from krammar.broker.log.environment import Environment
from krammar.broker.log.epochs import LeaderEpochs
from krammar.broker.log.files import can_continue, no_descriptors
from krammar.broker.log.loading import Loaded
from krammar.broker.log.log_config import LogConfig
from krammar.broker.log.producers import Producers
from krammar.broker.log.segment import LogSegment, segment_of
from krammar.logfiles.damage import DamageError


class LogState:
    """What is in a log, and whether it can be read and written.

    Attributes:
        segments: the segments, at least one; the last one is active
        end_offset: the next offset; with a single node also the high watermark
        log_start_offset: the first offset that can be read
        size: the size of all segments in bytes
        epochs: the leader epochs and their start offsets
        producers: the producers, and their open transactions
        watchers: called when an offset changes, and when the log is closed, deleted or
            taken offline
        closed: whether nothing can be written
        deleted: whether the partition was deleted
        offline: why all requests are refused until the next start; empty while the log is
            online
        refused: whether the last write has failed
    """

    __slots__ = (
        "_environment",
        "closed",
        "config",
        "deleted",
        "end_offset",
        "epochs",
        "log_start_offset",
        "offline",
        "partition",
        "path",
        "producers",
        "refused",
        "segments",
        "size",
        "topic",
        "watchers",
    )

    segments: list[LogSegment]
    end_offset: int
    log_start_offset: int
    size: int
    epochs: LeaderEpochs
    producers: Producers

    def __init__(
        self, path: Path, topic: str, partition: int, config: LogConfig, environment: Environment
    ) -> None:
        self.path = path
        self.topic = topic
        self.partition = partition
        self.config = config
        self._environment = environment
        self.watchers: set[Callable[[], None]] = set()
        self.closed = False
        self.deleted = False
        self.offline = ""
        self.refused = False

    def adopt(self, loaded: Loaded) -> None:
        """Take over the content of the folder."""
        self.segments = loaded.segments
        self.end_offset = loaded.end_offset
        self.log_start_offset = loaded.log_start_offset
        self.size = sum(segment.size for segment in self.segments)
        self.producers = loaded.producers
        self.epochs = loaded.epochs
        self.refused = False

    @property
    def active(self) -> LogSegment:
        return self.segments[-1]

    def from_offset(self, offset: int) -> list[LogSegment]:
        """Return the segments from the one that contains an offset on."""
        return self.segments[segment_of(self.segments, offset) :]

    @property
    def last_stable_offset(self) -> int:
        """The first offset of the earliest open transaction; the end offset without one."""
        first = self.producers.first_open_offset()
        return self.end_offset if first is None else max(first, self.log_start_offset)

    def begin_at(self, offset: int) -> None:
        """Move the log start offset."""
        self.log_start_offset = offset
        self.epochs.cut_before(offset)

    def notify(self) -> None:
        """Call all watchers."""
        for watcher in tuple(self.watchers):
            watcher()

    # Errors.

    def failure(self, text: str) -> ApiError:
        """Return the error for a client whose request failed on the disk."""
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic}-{self.partition}: {text}")

    def out_of_range(self, offset: int) -> ApiError:
        return ApiError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{self.topic}-{self.partition}: offset {offset} is not between"
            f" {self.log_start_offset} and {self.end_offset}",
        )

    def check_online(self) -> None:
        """Raise ApiError if the partition is offline."""
        if self.offline:
            raise self.failure(f"the partition is offline: {self.offline}")

    def check_open(self) -> None:
        """Raise ApiError if nothing can be written."""
        if self.closed:
            raise self.failure(self.offline or "the log is closed")

    def cannot_write(self, error: OSError | DamageError) -> ApiError:
        """Report a failed write that has changed nothing. Returns the error for the client."""
        if isinstance(error, OSError) and not can_continue(error):
            self.take_offline(error)
        elif not self.refused:
            self.refused = True  # one line is enough until a write succeeds
            too_many = isinstance(error, OSError) and no_descriptors(error)
            self._environment.error(
                f"{self.path}: records are refused until they can be written: {error}"
                + (" (raise the limit: ulimit -n)" if too_many else "")
            )
        return self.failure(str(error))

    def take_offline(self, error: OSError) -> None:
        """Refuse all requests until the next start, which verifies the log.

        Kafka takes the whole log directory offline; other partitions are not affected here.
        """
        if self.closed:
            return
        self.offline = str(error)
        self.closed = True
        if no_descriptors(error):
            reason, advice = "no more files can be opened", "Raise the limit (ulimit -n)"
        else:
            reason, advice = "the disk failed", "Check the disk"
        self._environment.error(
            f"{self.path}: {reason}: {error}. The partition is offline, and other partitions continue."
            f" {advice}, then restart the broker: it verifies the log and serves what is intact"
        )
        self.notify()
