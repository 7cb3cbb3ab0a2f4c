"""Runs the tap, for ``krammar tap`` and for other programs."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from krammar.faults import Faults
from krammar.faults.control import FaultsControl
from krammar.proxy.addresses import Address
from krammar.tap.capture import Capture, CaptureWriter, replay
from krammar.tap.describe import Describer
from krammar.tap.exchanges import EVERYTHING, Exchanges, ExchangeSelection, Selected
from krammar.tap.feed import Feed
from krammar.tap.frame import Observer
from krammar.tap.listing import ExchangeListing, JsonListing, Listing, Summary
from krammar.tap.proxy import Forward, Tap, TapError
from krammar.tap.server import PageServer
from krammar.util.http_server import HttpControl
from krammar.util.server_memory import prepare_memory
from krammar.util.sockets import why
from krammar.wire.package import package_of

Write = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Output:
    """Where lines are written.

    Attributes:
        out: receives frames
        err: receives all other messages
        json: whether frames are written as JSON
        only_bad: whether only frames that are not good are written
        frames: whether each frame gets a line, instead of each request with its response
        select: the exchanges that are written
        width: the columns of the terminal to which ``out`` writes; 0 if it is none
    """

    out: Write
    err: Write
    json: bool = False
    only_bad: bool = False
    frames: bool = False
    select: ExchangeSelection = EVERYTHING
    width: int = 0

    def listing(self, protocol: ModuleType) -> Observer:
        """Return the observer that writes frames."""
        describe = Describer(package_of(protocol))
        if not self.json and not self.frames:
            return ExchangeListing(
                describe,
                self.out,
                only_bad=self.only_bad,
                select=self.select,
                width=self.width,
                colour=self.width > 0,
            )
        listing: Observer
        if self.json:
            listing = JsonListing(self.out, only_bad=self.only_bad)
        else:
            listing = Listing(describe, self.out, only_bad=self.only_bad)
        return (
            Selected(Describer(package_of(protocol)), self.select, listing)
            if self.select
            else listing
        )


@dataclass(frozen=True, slots=True)
class Ui:
    """The page of a running tap: where it is served, and whether it shows passwords and tokens."""

    address: Address
    secrets: bool = False


class Notices(Observer):
    """Writes notices."""

    def __init__(self, write: Write) -> None:
        self._write = write

    def notice(self, text: str) -> None:
        self._write(text)


def run_live(
    protocol: ModuleType,
    forwards: list[Forward],
    output: Output,
    *,
    save: Path | None = None,
    advertise: str | None = None,
    max_frame: int,
    stay: bool = False,
    faults: Faults | None = None,
    control: int | None = None,
    ui: Ui | None = None,
    clients: Mapping[str, Any] | None = None,
    brokers: Mapping[str, Any] | None = None,
) -> Summary:
    """Run the proxy until a signal (INT or TERM) arrives or the brokers are gone; return the summary.

    Args:
        control: the port for commands about ``faults`` over HTTP; None for no commands.
        save: a capture to write; an older one is replaced once the proxy listens.
        ui: serve a page with the conversation. Lines are then written only as JSON.

    ``Tap`` describes the other arguments.

    Raises:
        TapError: the proxy, or the listener for commands, cannot listen.
        CaptureError: ``save`` exists and is not a capture, or another process writes it.
        OSError: output or ``save`` cannot be written.
    """
    summary = Summary()
    package = package_of(protocol)
    writer = None if save is None else CaptureWriter(save, package.name)
    observers: list[Observer] = [] if writer is None else [writer]
    observers += [Notices(output.err), summary]
    if ui is None or output.json:
        observers.append(output.listing(protocol))
    server: PageServer | None = None
    if ui is not None:
        feed = Feed(package, secrets=ui.secrets)
        observers += [feed, Exchanges(Describer(package), feed.ended, feed.begun)]
        upstreams = ", ".join(str(forward.upstream) for forward in forwards)
        server = PageServer(feed, ui.address, f"live: {upstreams}")

    def started(listening: list[Forward]) -> None:
        if writer is not None:
            writer.start()
        for forward in listening:
            output.err(f"listening on {forward.listen} for {forward.upstream}")
        prepare_memory()

    async def run() -> str:
        tap = Tap(
            protocol,
            forwards,
            observers,
            advertise=advertise,
            max_frame=max_frame,
            stay=stay,
            faults=faults,
            clients=clients,
            brokers=brokers,
        )
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(NotImplementedError):  # Windows: Ctrl-C raises instead
                loop.add_signal_handler(number, tap.stop)
        async with contextlib.AsyncExitStack() as stack:
            if control is not None and faults is not None:
                http = HttpControl(FaultsControl(faults))
                try:
                    await http.listen(control)
                except OSError as error:
                    raise TapError(
                        f"cannot listen on 127.0.0.1:{control} for commands: {why(error)}"
                    ) from error
                stack.push_async_callback(http.close)
                output.err(http.line)
            if server is not None:
                await server.start()
                stack.push_async_callback(server.stop)
                output.err(f"page: {server.url}")
            return await tap.run(started)

    try:
        output.err(asyncio.run(run()))
    finally:
        for observer in observers:
            observer.close()
    return summary


def run_replay(protocol: ModuleType, path: Path, output: Output) -> Summary:
    """List the frames of a capture; return the summary.

    Raises:
        CaptureError: the file is not a capture.
        OSError: the file cannot be read.
    """
    summary = Summary()
    capture = Capture(path)
    listing = output.listing(protocol)
    replay(capture, package_of(protocol), [listing, summary])
    listing.close()
    if capture.torn:
        output.err(f"{path}: {capture.torn}")
    return summary
