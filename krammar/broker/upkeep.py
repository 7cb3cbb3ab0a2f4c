"""Periodic work on the logs: retention, compaction, flushes, and the removal of deleted files."""

from __future__ import annotations

import asyncio
import logging

from krammar.broker.config import BrokerConfig
from krammar.broker.log.files import remove
from krammar.broker.log.log_config import INT64_MAX
from krammar.broker.log.manager import LogManager
from krammar.broker.timers import Timer, Timers
from krammar.util.turns import Budget, Steps, in_thread

log = logging.getLogger("krammar.broker")

# Flushes begin at most this often, whatever flush.ms demands.
_SHORTEST_FLUSH_PAUSE_MS = 10


class Upkeep:
    """Runs the periodic work, from ``start`` until all timers are cancelled.

    Attributes:
        budget: long work runs for one slice, then pauses for the same time, so that the broker
            serves requests
    """

    def __init__(self, config: BrokerConfig, timers: Timers, logs: LogManager) -> None:
        self._config = config
        self._timers = timers
        self._logs = logs
        self.budget = Budget()
        self._removal_ms = INT64_MAX  # the time of the next removal
        self._removals: set[asyncio.Task[None]] = set()
        self._flush_timer: Timer | None = None
        self._flush_ms = INT64_MAX  # the time of the next flush
        self._pause_ms = 0  # before the next flush
        self._waited_ms = 0  # since the interval of krammar.fsync has begun
        self._flush_error = ""  # the last one that was logged

    def start(self) -> None:
        """Start all timers, and schedule the removal of folders that were deleted earlier."""
        config = self._config
        self._timers.call_later(config.log_retention_check_interval_ms / 1000, self._maintain)
        self._timers.call_later(config.log_cleaner_backoff_ms / 1000, self._compact)
        if config.fsync != "off":
            self._plan_flush()
            self._logs.environment.flush_planned = self._plan_flush
        self._logs.environment.removal_planned = self._plan_removal
        self._logs.remove_leftovers()
        self._plan_removal()

    def _maintain(self) -> None:
        self._advance(self._logs.maintaining(self._timers.now_ms()))

    def _advance(self, steps: Steps[None]) -> None:
        """Continue the current round of retention, then schedule the next slice, or the next round."""
        seconds = self._config.log_retention_check_interval_ms / 1000
        try:
            if not self.budget.advance(steps).done:
                self._timers.call_later(self.budget.seconds, self._advance, steps)
                return
        except Exception:
            log.exception("retention of the logs failed; it will be retried")
        self._timers.call_later(seconds, self._maintain)

    def _plan_removal(self) -> None:
        """Schedule the removal of the deleted files that are due first."""
        later = self._logs.environment.later
        if later and later[0][0] < self._removal_ms:
            self._removal_ms = later[0][0]
            delay_ms = max(self._removal_ms - self._timers.now_ms(), 0)
            self._timers.call_later(delay_ms / 1000, self._remove_deleted)

    def _remove_deleted(self) -> None:
        self._removal_ms = INT64_MAX
        paths = self._logs.environment.take_due(self._timers.now_ms())
        if paths:
            # In a thread, because freeing gigabytes takes the file system a while.
            task = self._timers.loop.create_task(in_thread(remove, paths))
            self._removals.add(task)
            task.add_done_callback(self._removals.discard)
        self._plan_removal()

    def _compact(self) -> None:
        more = False
        if self._config.log_cleaner_enable:
            try:
                more = self._logs.cleaner.compact(self._timers.now_ms(), budget=self.budget)
            except Exception:
                log.exception("compaction failed; it will be retried")
        pause = self.budget.seconds if more else self._config.log_cleaner_backoff_ms / 1000
        self._timers.call_later(pause, self._compact)

    def _plan_flush(self) -> None:
        """Schedule the next flush, or make it earlier: by the interval, or the smallest ``flush.ms`` of all logs."""
        shortest = min((log.config.flush_ms for log in self._logs), default=INT64_MAX)
        pause_ms = max(min(self._config.fsync_interval_ms, shortest), _SHORTEST_FLUSH_PAUSE_MS)
        due_ms = self._timers.now_ms() + pause_ms
        if self._flush_timer is not None:
            if due_ms >= self._flush_ms:
                return
            self._flush_timer.cancel()
            self._waited_ms = self._config.fsync_interval_ms  # some of it; so do not wait longer
        self._flush_ms = due_ms
        self._pause_ms = pause_ms
        self._flush_timer = self._timers.call_later(pause_ms / 1000, self._flush)

    def _flush(self) -> None:
        self._flush_timer = None
        interval = False
        if not self._logs.flusher.is_beginning:
            self._waited_ms += self._pause_ms
            interval = self._waited_ms >= self._config.fsync_interval_ms
            if interval:
                self._waited_ms = 0
        try:
            if self._logs.flusher.in_background(interval=interval, budget=self.budget):
                self._flush_error = ""
        except Exception as error:
            if str(error) != self._flush_error:
                self._flush_error = str(error)
                log.error("cannot force the logs to the disk: %s; it will be retried", error)
        if self._logs.flusher.is_beginning:
            pause = self.budget.seconds
            self._flush_ms = self._timers.now_ms() + int(pause * 1000)
            self._pause_ms = 0
            self._flush_timer = self._timers.call_later(pause, self._flush)
        else:
            self._plan_flush()
