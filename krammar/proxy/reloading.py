"""Reads keys, certificates and users again when their files change, without a restart."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from krammar.proxy.brokers import Brokers
from krammar.proxy.clients import LOG, Clients

# Seconds between two checks of the files.
PERIOD = 2.0

# What identifies the content of a file without reading it: change, size and number of the file.
Stamp = tuple[int, int, int]
_State = tuple[Stamp | None, ...]


class Reloading:
    """Watches the files of both sides. New connections and logins use what was read last."""

    def __init__(self, sides: Sequence[Clients | Brokers]) -> None:
        self._sides = sides
        self._read = self._failed = self._state()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Watch the files, in the running event loop."""
        if any(side.files for side in self._sides):
            self._timer = asyncio.get_running_loop().call_later(PERIOD, self._look)

    def stop(self) -> None:
        """Watch no longer."""
        if self._timer is not None:
            self._timer.cancel()

    def reload(self) -> None:
        """Read all files now. If one is invalid, what was read before remains in use; a log line gives the reason."""
        state = self._state()
        try:
            for side in self._sides:
                side.reload()
        except ValueError as error:  # such as SettingError
            LOG.warning("keys, certificates and users remain as before: %s", error)
            self._failed = state
            return
        self._read = self._failed = state
        LOG.info("keys, certificates and users were read again")

    def _look(self) -> None:
        state = self._state()
        # Files that belong together change one after the other, so an error may end by itself.
        if state not in (self._read, self._failed):
            self.reload()
        self.start()

    def _state(self) -> _State:
        return tuple(stamp(path) for side in self._sides for path in side.files)


def stamp(path: str | Path) -> Stamp | None:
    """Return what identifies the content of a file without reading it, through symbolic links; None if there is no file."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
