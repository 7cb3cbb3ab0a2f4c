"""Ctrl-C where it suits, so that nothing is broken off whose outcome has to be told."""

from __future__ import annotations

import select
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType
from typing import BinaryIO, Self


class Interrupts:
    """Inside of ``with`` the first Ctrl-C is only counted, except where a method says otherwise. Each further
    one raises KeyboardInterrupt wherever it strikes.

    Outside of the main thread, and where Ctrl-C is ignored (as shells have it for background jobs), all
    stays as it is.
    """

    def __init__(self) -> None:
        self.count = 0
        self._breakable = False
        self._stack = ExitStack()
        self._woken: socket.socket | None = None

    def __enter__(self) -> Self:
        is_main = threading.current_thread() is threading.main_thread()
        if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            return self
        with ExitStack() as stack:
            wake, self._woken = socket.socketpair()
            for end in (wake, self._woken):
                stack.callback(end.close)
                end.setblocking(False)
            # A signal just before ``select`` begins would not end it by itself.
            before = signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
            stack.callback(signal.set_wakeup_fd, before)
            stack.callback(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, self._note))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self._breakable or self.count > 1:
            raise KeyboardInterrupt

    def check(self) -> None:
        """Raises KeyboardInterrupt if there was a Ctrl-C."""
        if self.count:
            raise KeyboardInterrupt

    @contextmanager
    def breakable(self) -> Iterator[None]:
        """Around what the first Ctrl-C may break off too; raises KeyboardInterrupt if it came before."""
        self._breakable = True
        try:
            self.check()
            yield
        finally:
            self._breakable = False

    def read(self, stream: BinaryIO, size: int) -> bytes:
        """What a stream has, as soon as it has something: ``size`` bytes at most, none at its end. Raises
        KeyboardInterrupt where a Ctrl-C comes first, but loses nothing that was read."""
        read: Callable[[int], bytes] = getattr(stream, "read1", stream.read)
        if self._wait(stream):
            return read(size)
        with self.breakable():
            return read(size)

    def _wait(self, stream: BinaryIO) -> bool:
        """Wait for something to read. False if that cannot be waited for: some streams are no files, and
        Windows can wait for sockets only."""
        self.check()
        try:
            files = [stream.fileno()]
            if self._woken is not None:
                files.append(self._woken.fileno())
            while files[0] not in select.select(files, [], [])[0]:
                self.check()
                if self._woken is not None:
                    with suppress(BlockingIOError):
                        self._woken.recv(1024)
        except (OSError, ValueError):
            return False
        self.check()
        return True
