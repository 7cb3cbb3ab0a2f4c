"""How much of one log is on the disk, and the flushes that force the rest there."""

from __future__ import annotations

import os

from krammar.broker.log.environment import Environment
from krammar.broker.log.files import no_descriptors
from krammar.broker.log.log_config import INT64_MAX
from krammar.broker.log.segment import LogSegment, segment_of
from krammar.broker.log.state import LogState
from krammar.logfiles.names import LEADER_EPOCHS, PARTITION_METADATA
from krammar.util.clock import perf_counter
from krammar.util.durable import sync, sync_all


class Durability:
    """Forces a log to the disk, and takes it offline if that fails.

    Attributes:
        recovery_point: complete files up to this offset are on the disk, or assumed to be
        forced_to: batches before this offset are on the disk. The indexes may not be, unlike
            before the recovery point
        flush_messages: how many records may be appended before they are forced to the disk
    """

    __slots__ = (
        "_environment",
        "_flushed_ms",
        "_renames",
        "_renames_flushed",
        "_renames_flushing",
        "_state",
        "flush_messages",
        "forced_to",
        "recovery_point",
    )

    recovery_point: int
    forced_to: int

    def __init__(self, state: LogState, environment: Environment) -> None:
        self._state = state
        self._environment = environment
        self.update_config()

    def update_config(self) -> None:
        """Apply the settings of the log."""
        most = {"always": 1, "off": INT64_MAX}
        self.flush_messages = most.get(self._environment.fsync, self._state.config.flush_messages)

    def begin(self, recovery_point: int) -> None:
        """Regard all files as new, and the batches from the recovery point on as not on the disk."""
        self.recovery_point = self.forced_to = recovery_point
        self._flushed_ms = self._environment.now_ms()  # the time of the last flush
        # How often files were created or renamed: in all, at the last flush, and when the current
        # one began.
        self._renames, self._renames_flushed, self._renames_flushing = 1, 0, 0

    def note_new_files(self) -> None:
        """Note that files were created or renamed: the next flush forces their names to the disk."""
        self._renames += 1

    def sync_folder(self) -> None:
        """Force the names of the files to the disk, after a rename. Raises OSError."""
        self._renames += 1
        if self._environment.durable:
            sync(self._state.path)

    def force(self, segment: LogSegment, size: int, end_offset: int) -> None:
        """Force all batches to the disk, the last one of ``size`` bytes included. Raises ApiError."""
        begin = perf_counter()
        state = self._state
        first = segment_of(state.segments, self.forced_to)
        try:
            for other in state.segments[first:-1]:
                sync(other.path)
            segment.sync()
            renames = self._renames
            if renames != self._renames_flushed:
                sync_all(self._new_names())
                self._renames_flushed = renames
        except OSError as error:
            segment.size -= size
            segment.cut_back()
            if no_descriptors(error):
                raise state.cannot_write(error) from None
            self.fail_flush(error)
            raise state.failure(state.offline) from None
        self.forced_to = end_offset
        self._flushed_ms = self._environment.now_ms()
        self._environment.flushed(perf_counter() - begin)

    def _new_names(self) -> list[str]:
        """Return what to force to the disk after files were created: a new log is lost with its folder's name."""
        path = os.fspath(self._state.path)
        return [os.path.join(path, PARTITION_METADATA), path, os.path.dirname(path)]

    def fail_flush(self, error: OSError) -> None:
        """Take the log offline: the kernel may have dropped the data, and the next fsync would succeed without it."""
        self._environment.flush_failed(self._state.path)
        self._state.take_offline(error)

    # Periodic flushes.

    def flush(self) -> None:
        """Force everything to the disk.

        Raises OSError. The partition is offline then, unless the flush can be repeated.
        """
        end_offset = self._state.end_offset
        paths = self.begin_flush(complete=True)
        if paths is not None:
            try:
                seconds = sync_all(paths)
            except OSError as error:
                if not no_descriptors(error):
                    self.fail_flush(error)
                raise
            self._environment.flushed(seconds)
            self.finish_flush(end_offset)

    def is_flush_due(self, now_ms: int, *, interval: bool = True) -> bool:
        """Return whether everything must be forced to the disk.

        Args:
            now_ms: milliseconds since 1970, for ``flush.ms``
            interval: whether the interval of ``krammar.fsync`` is over
        """
        if interval and self._environment.fsync in ("always", "interval"):
            return True
        # The clock may have been set back.
        return not 0 <= now_ms - self._flushed_ms < self._state.config.flush_ms

    def flush_target(self, *, complete: bool = True) -> int:
        """Return the end of what a flush forces to the disk: all batches, or those in complete segments."""
        return self._state.end_offset if complete else self._state.active.base_offset

    def begin_flush(self, *, complete: bool = True) -> list[str] | None:
        """Write indexes and epochs to their files. Raises OSError.

        Args:
            complete: include the active segment

        Returns:
            The files and folders to force to the disk before ``finish_flush``; None if nothing has
            changed.
        """
        if complete:
            self._flushed_ms = self._environment.now_ms()
        state = self._state
        if state.offline or (
            self.recovery_point >= self.flush_target(complete=complete)
            and not state.epochs.changed
            and self._renames == self._renames_flushed
        ):
            return None
        paths = []
        for segment in state.from_offset(self.recovery_point):
            # The indexes of the active segment are rebuilt after a power cut.
            if segment is not state.active:
                segment.write_indexes()
                paths += segment.files
            elif complete:
                segment.write_indexes()
                paths.append(segment.path)
        if state.epochs.changed:
            state.epochs.write()
            paths.append(os.fspath(state.path / LEADER_EPOCHS))
        self._renames_flushing = self._renames
        if self._renames != self._renames_flushed:
            paths += self._new_names()
        return paths if self._environment.durable else []

    def finish_flush(self, end_offset: int) -> None:
        """Advance the recovery point: all batches before ``end_offset`` are on the disk."""
        if not self._environment.durable:
            # After a crash, the active segment is verified from its beginning.
            end_offset = min(end_offset, self._state.active.base_offset)
        self.recovery_point = max(self.recovery_point, end_offset)
        self.forced_to = max(self.forced_to, self.recovery_point)
        self._renames_flushed = self._renames_flushing
