"""Delays Ctrl-C until a verb can stop and still report what it has done."""

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
    """A context manager that counts the first Ctrl-C instead of raising KeyboardInterrupt at once.

    The methods of this class raise it later. A second Ctrl-C raises KeyboardInterrupt at once. The context
    manager does nothing outside of the main thread, and if Ctrl-C is ignored, as in background jobs of a
    shell.
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
            # A signal that arrives just before ``select`` would not interrupt it.
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
        """Raise KeyboardInterrupt if Ctrl-C was counted."""
        if self.count:
            raise KeyboardInterrupt

    @contextmanager
    def breakable(self) -> Iterator[None]:
        """Let the first Ctrl-C interrupt the ``with`` block. Raises KeyboardInterrupt if one was counted."""
        self._breakable = True
        try:
            self.check()
            yield
        finally:
            self._breakable = False

    def read(self, stream: BinaryIO, size: int) -> bytes:
        """Wait for data and return up to ``size`` bytes; empty at the end of the stream.

        Raises:
            KeyboardInterrupt: Ctrl-C came before any data. Nothing that was read is lost.
        """
        read: Callable[[int], bytes] = getattr(stream, "read1", stream.read)
        if self._wait(stream):
            return read(size)
        with self.breakable():
            return read(size)

    def _wait(self, stream: BinaryIO) -> bool:
        """Wait for data. Returns False if ``select`` does not support the stream.

        Some streams are not files, and Windows supports only sockets.
        """
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
