"""What ``krammar tap`` does, for the command line and for programs that want the same."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from krammar.tap.capture import Capture, CaptureWriter, replay
from krammar.tap.describe import Describer
from krammar.tap.listing import JsonListing, Listing
from krammar.tap.observer import Observer
from krammar.tap.proxy import Route, Tap
from krammar.tap.summary import Summary
from krammar.wire.package import package_of

Write = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Output:
    """Where lines go: ``out`` gets frames, ``err`` what is said besides. ``json`` and ``only_bad`` are
    those of the listings."""

    out: Write
    err: Write
    json: bool = False
    only_bad: bool = False

    def listing(self, protocol: ModuleType) -> Observer:
        """The observer that writes frames."""
        if self.json:
            return JsonListing(self.out, only_bad=self.only_bad)
        return Listing(Describer(package_of(protocol)), self.out, only_bad=self.only_bad)


class Notices(Observer):
    """Writes what is no frame."""

    def __init__(self, write: Write) -> None:
        self._write = write

    def notice(self, text: str) -> None:
        self._write(text)


def run_live(
    protocol: ModuleType,
    routes: list[Route],
    output: Output,
    *,
    save: Path | None = None,
    advertise: str | None = None,
    max_frame: int,
    stay: bool = False,
) -> Summary:
    """Run the proxy until a signal (INT or TERM) comes or the brokers have gone.

    Raises TapError, CaptureError, and OSError where output or ``save`` cannot be written.
    """
    summary = Summary()
    observers = [Notices(output.err), output.listing(protocol), summary]
    keeper = CaptureWriter(save) if save is not None else None
    if keeper is not None:
        observers.insert(0, keeper)

    def started(listening: list[Route]) -> None:
        for route in listening:
            output.err(f"listening on {route.listen} for {route.upstream}")

    async def run() -> str:
        tap = Tap(protocol, routes, observers, advertise=advertise, max_frame=max_frame, stay=stay)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(NotImplementedError):  # Windows: Ctrl-C raises instead
                loop.add_signal_handler(number, tap.stop)
        return await tap.run(started)

    try:
        output.err(asyncio.run(run()))
    finally:
        if keeper is not None:
            keeper.close()
    return summary


def run_replay(protocol: ModuleType, path: Path, output: Output) -> Summary:
    """List what a capture holds. Raises CaptureError and OSError."""
    summary = Summary()
    capture = Capture(path)
    replay(capture, package_of(protocol), [output.listing(protocol), summary])
    if capture.torn:
        output.err(f"{path}: {capture.torn}")
    return summary
