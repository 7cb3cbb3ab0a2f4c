"""Periodic work on the logs: retention, compaction, flushes, and the removal of deleted files."""

from __future__ import annotations

import logging

from krammar.broker.config import BrokerConfig
from krammar.broker.log.files import remove
from krammar.broker.log.log_config import INT64_MAX
from krammar.broker.log.manager import LogManager
from krammar.broker.timers import Timers

log = logging.getLogger("krammar.broker")

# Compaction runs for this long, then pauses for the same time, so that the broker serves requests.
_COMPACTION_SLICE_MS = 20


class Upkeep:
    """Runs the periodic work, from ``start`` until all timers are cancelled."""

    def __init__(self, config: BrokerConfig, timers: Timers, logs: LogManager) -> None:
        self._config = config
        self._timers = timers
        self._logs = logs
        self._removal_ms = INT64_MAX  # the time of the next removal

    def start(self) -> None:
        """Start all timers, and schedule the removal of folders that were deleted earlier."""
        config = self._config
        self._timers.call_later(config.log_retention_check_interval_ms / 1000, self._maintain)
        self._timers.call_later(config.log_cleaner_backoff_ms / 1000, self._compact)
        if config.fsync != "off":
            self._timers.call_later(config.fsync_interval_ms / 1000, self._flush)
        self._logs.environment.removal_planned = self._plan_removal
        self._logs.remove_leftovers()
        self._plan_removal()

    def _maintain(self) -> None:
        try:
            self._logs.maintain(self._timers.now_ms())
        except Exception:
            log.exception("retention of the logs failed; it will be retried")
        interval = self._config.log_retention_check_interval_ms
        self._timers.call_later(interval / 1000, self._maintain)

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
            self._timers.loop.run_in_executor(None, remove, paths)
        self._plan_removal()

    def _compact(self) -> None:
        more = False
        if self._config.log_cleaner_enable:
            try:
                more = self._logs.compact(self._timers.now_ms(), budget_ms=_COMPACTION_SLICE_MS)
            except Exception:
                log.exception("compaction failed; it will be retried")
        pause = _COMPACTION_SLICE_MS if more else self._config.log_cleaner_backoff_ms
        self._timers.call_later(pause / 1000, self._compact)

    def _flush(self) -> None:
        try:
            self._logs.flush_in_background()
        except Exception as error:
            log.error("cannot force the logs to the disk: %s", error)
        self._timers.call_later(self._config.fsync_interval_ms / 1000, self._flush)
