"""Runs the tap, for ``krammar tap`` and for other programs."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from krammar.faults import Faults
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
    """Where lines are written.

    ``out``       receives frames
    ``err``       receives all other messages
    ``json``      whether frames are written as JSON
    ``only_bad``  whether only frames that are not good are written
    """

    out: Write
    err: Write
    json: bool = False
    only_bad: bool = False

    def listing(self, protocol: ModuleType) -> Observer:
        """Return the observer that writes frames."""
        if self.json:
            return JsonListing(self.out, only_bad=self.only_bad)
        return Listing(Describer(package_of(protocol)), self.out, only_bad=self.only_bad)


class Notices(Observer):
    """Writes notices."""

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
    faults: Faults | None = None,
) -> Summary:
    """Run the proxy until a signal (INT or TERM) arrives or the brokers are gone; return the summary.

    Args:
        save: a capture to write; an older one is replaced.

    ``Tap`` describes the other arguments.

    Raises:
        TapError: the proxy cannot listen.
        CaptureError: ``save`` exists and is not a capture.
        OSError: output or ``save`` cannot be written.
    """
    summary = Summary()
    observers = [Notices(output.err), output.listing(protocol), summary]
    capture = CaptureWriter(save) if save is not None else None
    if capture is not None:
        observers.insert(0, capture)

    def started(listening: list[Route]) -> None:
        for route in listening:
            output.err(f"listening on {route.listen} for {route.upstream}")

    async def run() -> str:
        tap = Tap(
            protocol,
            routes,
            observers,
            advertise=advertise,
            max_frame=max_frame,
            stay=stay,
            faults=faults,
        )
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(NotImplementedError):  # Windows: Ctrl-C raises instead
                loop.add_signal_handler(number, tap.stop)
        return await tap.run(started)

    try:
        output.err(asyncio.run(run()))
    finally:
        if capture is not None:
            capture.close()
    return summary


def run_replay(protocol: ModuleType, path: Path, output: Output) -> Summary:
    """List the frames of a capture; return the summary.

    Raises:
        CaptureError: the file is not a capture.
        OSError: the file cannot be read.
    """
    summary = Summary()
    capture = Capture(path)
    replay(capture, package_of(protocol), [output.listing(protocol), summary])
    if capture.torn:
        output.err(f"{path}: {capture.torn}")
    return summary
