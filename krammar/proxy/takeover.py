"""Takes over a changed file of settings while the proxy runs.

Connections that begin after that get the new filters and settings, and open ones keep theirs. If anything is invalid,
nothing changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from krammar.proxy.clients import LOG
from krammar.proxy.held import close_filter
from krammar.proxy.reloading import stamp
from krammar.proxy.server import RUNNING, Proxy, Replacement
from krammar.proxy.settings import Settings, SettingsError, text_of_settings
from krammar.util.turns import in_thread

# The setting that lets the proxy watch the file.
_RELOAD = "reload"
# Seconds between two looks at the file.
PERIOD = 1.0

# Makes a proxy use the text of a file, and returns its options. Raises SettingsError.
Apply = Callable[[str], Awaitable[Mapping[str, Any]]]
# Returns what the text of a file contains, with the options of the command. Raises SettingsError.
Load = Callable[[str], Settings]


class Prepared(NamedTuple):
    """Settings that were checked, and the options of the file and of the command."""

    replacement: Replacement
    options: Mapping[str, Any]


async def prepare(server: Proxy, load: Load, text: str) -> Prepared:
    """Create the filters of a file, and check all settings, in a thread, because that can take long.

    Raises:
        SettingsError: something is invalid. The filters are closed then.
    """

    def work() -> Prepared:
        settings = load(text)
        running = {name: value for name, value in settings.options.items() if name in RUNNING}
        try:
            return Prepared(server.prepare(settings.filters, **running), settings.options)
        except (TypeError, ValueError) as error:
            settings.close()
            raise SettingsError(str(error)) from error

    return await in_thread(work)


def discard(replacement: Replacement) -> None:
    """Close the filters of a replacement that is not adopted."""
    for each in replacement.settings.chain.filters:
        close_filter(each)


class FileChanges:
    """Notices that a file was changed or replaced, also through symbolic links.

    A file that is being written can already be valid, without its last filters. So a change counts when the file stays the
    same from one look to the next.

    Attributes:
        known: what identifies the content that was read last
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.known = self._pending = stamp(path)

    def look(self) -> bool:
        """Return whether the file has another content than the one that was read last."""
        found = stamp(self._path)
        settled = found != self.known and found == self._pending
        self._pending = found
        return settled


class Takeover:
    """Reads a file of settings again, on demand and when it changes.

    Args:
        path: the file.
        options: those of the file and of the command, with which the proxy has started.
        apply: makes the proxy use the text of a file, and returns its options. Raises SettingsError.
    """

    def __init__(self, path: Path, options: Mapping[str, Any], apply: Apply) -> None:
        self._path = path
        self._options = dict(options)
        self._apply = apply
        self._changes = FileChanges(path)
        self._reading = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._stopped = False

    def start(self) -> None:
        """Watch the file, in the running event loop, if its setting ``reload`` says so."""
        if self._options.get(_RELOAD) and self._timer is None and not self._stopped:
            self._timer = asyncio.get_running_loop().call_later(PERIOD, self._look)

    def stop(self) -> None:
        """Watch no longer."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        if self._changes.look():
            self._task = asyncio.ensure_future(self._reload_changed())
        else:
            self.start()

    async def _reload_changed(self) -> None:
        await self.reload(only_settled=True)
        self.start()

    async def reload(self, *, only_settled: bool = False) -> bool:
        """Read the file, and make the proxy use it. Returns whether it does; if not, a log line gives the reason.

        Args:
            only_settled: leave a file that changes while it is read for later.
        """
        async with self._reading:
            found = stamp(self._path)
            try:
                text = await in_thread(text_of_settings, self._path)
                if only_settled and stamp(self._path) != found:
                    return False
                self._changes.known = found
                options = await self._apply(text)
            except (SettingsError, OSError) as error:
                self._changes.known = found
                LOG.error(
                    "%s is not used; filters and settings remain as before: %s", self._path, error
                )
                return False
            self._report(options)
            return True

    def _report(self, options: Mapping[str, Any]) -> None:
        before = self._options
        fixed = [
            name
            for name in sorted(before.keys() | options.keys())
            if name not in (*RUNNING, _RELOAD) and before.get(name) != options.get(name)
        ]
        if fixed:
            LOG.warning(
                "%s: %s cannot change while the proxy runs (restart it)",
                self._path,
                ", ".join(fixed),
            )
        self._options[_RELOAD] = options.get(_RELOAD, False)
        self.start()
        LOG.info("%s was read again; new connections use its filters and settings", self._path)
