"""Flushes all logs together, in a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from threading import Thread

from krammar.broker.log.environment import Environment
from krammar.broker.log.files import can_continue, no_descriptors
from krammar.broker.log.folder import LogFolder
from krammar.broker.log.log import PartitionLog
from krammar.util.durable import sync_together
from krammar.util.turns import Budget, Steps, finish


class Flushing(Thread):
    """Forces files to the disk in a thread, after ``begin``. The thread that joins it calls ``finish``."""

    def __init__(
        self,
        logs: Iterable[PartitionLog],
        folders: Sequence[LogFolder],
        now_ms: int,
        *,
        interval: bool = True,
        complete: bool = False,
    ) -> None:
        super().__init__(name="krammar-flush", daemon=True)
        self._rest = list(logs)
        self._folders = folders
        self._now_ms = now_ms
        self._interval = interval
        self._complete = complete  # whether to force everything, whatever is due
        self.logs: list[tuple[PartitionLog, int, list[str]]] = []
        self._results: list[float | OSError] = []  # of each log: the seconds, or the error
        self._error: OSError | None = None

    def begin(self, budget: Budget | None = None) -> bool:
        """Write indexes and epochs to their files, for one slice of a budget.

        Without a budget, it writes all of them. Returns whether that is done for all logs, so that
        the thread can start.
        """
        if budget is None:
            finish(self._beginning())
        else:
            budget.advance(self._beginning())
        return self.has_begun

    def _beginning(self) -> Steps[None]:
        while self._rest:
            self._begin_log(self._rest.pop())
            yield None

    def _begin_log(self, log: PartitionLog) -> None:
        complete = self._complete or log.durability.is_flush_due(
            self._now_ms, interval=self._interval
        )
        try:
            paths = None if log.closed else log.durability.begin_flush(complete=complete)
        except OSError as error:
            if can_continue(error):
                self._error = error
            else:
                log.take_offline(error)
            return
        if paths is not None:
            self.logs.append((log, log.durability.flush_target(complete=complete), paths))

    @property
    def has_begun(self) -> bool:
        return not self._rest

    @property
    def has_work(self) -> bool:
        return bool(self.logs) or not all(folder.is_written for folder in self._folders)

    def run(self) -> None:
        # The checkpoints of the previous flush; the ones of this flush are known after it has
        # finished.
        try:
            for folder in self._folders:
                folder.write_all()
        except OSError as error:
            self._error = error
        # Partitions share their log folder, and the system forces several files together faster
        # than one by one.
        forced = sync_together(path for _, _, paths in self.logs for path in paths)
        for _, _, paths in self.logs:
            results = [forced[path] for path in paths]
            errors = (each for each in results if isinstance(each, OSError))
            seconds = (each for each in results if not isinstance(each, OSError))
            self._results.append(next(errors, None) or sum(seconds))

    def finish(self, flushed: Callable[[float], object]) -> OSError | None:
        """Advance the recovery points, and take logs offline whose flush has failed.

        Returns the error of the logs whose flush can be repeated.
        """
        for result, (log, end_offset, paths) in zip(self._results, self.logs, strict=True):
            if isinstance(result, OSError) and no_descriptors(result):
                self._error = result
            elif isinstance(result, OSError):
                log.durability.fail_flush(result)
            else:
                log.durability.finish_flush(end_offset)
                if paths:
                    flushed(result)
        return self._error


@dataclass(eq=False)
class Flusher:
    """Flushes the logs of some folders, one flush at a time.

    Args:
        logs: all logs
        flushed: called with the logs of each flush
    """

    _logs: Iterable[PartitionLog]
    _folders: Sequence[LogFolder]
    _environment: Environment
    _flushed: Callable[[Iterable[PartitionLog]], None]
    _flushing: Flushing | None = field(init=False, default=None)

    def flush(self) -> None:
        """Force what is due to the disk. Raises OSError."""
        self.finish()
        self._flushing = Flushing(self._logs, self._folders, self._environment.now_ms())
        self.finish()

    def flush_completely(self) -> None:
        """Force everything to the disk, before the logs are closed. Raises OSError."""
        self.finish()
        now_ms = self._environment.now_ms()
        self._flushing = Flushing(self._logs, self._folders, now_ms, complete=True)
        self.finish()

    def in_background(self, *, interval: bool = True, budget: Budget | None = None) -> bool:
        """Flush without waiting for the disk: a later call finishes the flush.

        Args:
            interval: whether the interval of ``krammar.fsync`` is over; without it, ``flush.ms``
                and complete segments count
            budget: small files are written for one slice of it. While that takes longer,
                ``is_beginning`` is true, and the next call continues.

        Returns whether the previous flush has finished. Raises OSError if it failed.
        """
        finished = False
        if self._flushing is not None and self._flushing.has_begun:
            if self._flushing.is_alive():
                return False
            self.finish()
            finished = True
        if self._flushing is None:
            now_ms = self._environment.now_ms()
            self._flushing = Flushing(self._logs, self._folders, now_ms, interval=interval)
        if self._flushing.begin(budget):
            if self._flushing.has_work:
                self._flushing.start()
            else:
                self._flushing = None
        return finished

    @property
    def is_beginning(self) -> bool:
        """Whether ``in_background`` should be called again soon."""
        return self._flushing is not None and not self._flushing.has_begun

    def finish(self) -> None:
        """Wait for the current flush. Raises OSError if it has failed."""
        flushing, self._flushing = self._flushing, None
        if flushing is None:
            return
        if flushing.ident is not None:
            flushing.join()
        else:
            flushing.begin()
            flushing.run()
        error = flushing.finish(self._environment.flushed)
        # The offsets of the other logs are as they were.
        self._flushed(log for log, _, _ in flushing.logs)
        if error is not None:
            raise error
