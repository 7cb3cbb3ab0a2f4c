"""The event loop of servers, in the caller's thread or in one of its own."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future

from krammar.util.clock import monotonic
from krammar.util.forks import OwnProcess

if sys.platform == "win32":
    _Loop = asyncio.ProactorEventLoop
else:
    _Loop = asyncio.SelectorEventLoop


class _RealTimeLoop(_Loop):
    """asyncio's event loop with real time, as uvloop's: the timers of ``time.monotonic`` stop under freezegun."""

    def time(self) -> float:
        return monotonic()


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return uvloop's event loop if uvloop is installed, else asyncio's."""
    try:
        import uvloop
    except ImportError:
        return _RealTimeLoop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


class ServerThread:
    """A thread with an event loop, which runs a server.

    Args:
        name: the thread's name.
        serve: starts the server. Its error is raised by ``start``.
        drain: ends the server.
    """

    def __init__(
        self, name: str, serve: Callable[[], Awaitable[None]], drain: Callable[[], Awaitable[None]]
    ) -> None:
        self._serve = serve
        self._drain = drain
        self._started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._process = OwnProcess(f"the server of the thread {name}")

    def start(self) -> None:
        """Start the server, and wait until it serves."""
        self._thread.start()
        self._started.result()

    def call(self, function: Callable[[], None]) -> None:
        """Call a function in the event loop, and wait for its end. Its error is raised here.

        Raises:
            ForkedError: this process was forked from the server's.
        """
        self._process.check()
        loop, _ = self._started.result()
        done: Future[None] = Future()

        def work() -> None:
            try:
                function()
            except BaseException as error:
                done.set_exception(error)
            else:
                done.set_result(None)

        loop.call_soon_threadsafe(work)
        done.result()

    def close(self) -> None:
        """End the server, and wait for the thread. Does nothing in a process that was forked from the server's."""
        if not self._process.is_this:
            return
        loop, stop = self._started.result()
        if self._thread.is_alive():
            loop.call_soon_threadsafe(stop.set)
        self._thread.join()

    def _work(self) -> None:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(self._run())

    async def _run(self) -> None:
        stop = asyncio.Event()
        try:
            await self._serve()
        except BaseException as error:
            self._started.set_exception(error)
            return
        self._started.set_result((asyncio.get_running_loop(), stop))
        await stop.wait()
        await self._drain()
