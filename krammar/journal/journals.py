"""What all kinds of journals have in common: appends, and readers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Protocol, Self

from krammar.journal.checkpoints import AckIntent
from krammar.journal.specs import JournalSpec

# A frame, and the offsets that it takes: from the first up to but without the second.
Frame = tuple[int, int, bytes]


class AsyncAppend(Protocol):
    """An append that was begun: a future.

    When ``done``, either ``error`` says why it failed, or ``begin`` and ``end`` which offsets it takes.
    """

    @property
    def journal(self) -> str: ...

    @property
    def begin(self) -> int: ...

    @property
    def end(self) -> int: ...

    @property
    def done(self) -> bool: ...

    @property
    def error(self) -> Exception | None: ...

    def result(self, timeout_ms: float | None = None) -> Self:
        """Wait until it is done; returns itself. Raises AppendError."""


class Reader(Protocol):
    """Reads the frames of a journal that begin between two offsets.

    ``offset`` is that of the next frame. Where what was at an offset is gone, it logs that and goes on
    with what is next.
    """

    offset: int

    @property
    def spec(self) -> JournalSpec: ...

    def read(self) -> list[Frame]:
        """The next frames, at least one; none at the end of what there is to be read."""

    def between(self, begin: int, end: int) -> Reader:
        """Another reader of the same journal, for these offsets; both may be read in turn."""

    def close(self) -> None: ...


class Journals(Protocol):
    """A place that has journals: files, or topics."""

    def append(self, journal: str, data: bytes) -> AsyncAppend:
        """Begin to append a frame. Appends of one thread to one journal keep their order.

        It goes on by itself; ``AsyncAppend.result`` and ``flush`` make haste.
        Raises UnknownJournalError, AppendError.
        """

    def reader(
        self, journal: str, begin: int = 0, end: int | None = None, *, follow: bool = False
    ) -> Reader:
        """A reader of the frames that begin at ``begin`` or behind it, and before ``end``: the end of the
        journal as it is, unless given. With ``follow`` and without ``end`` it waits for more for ever, until it is
        closed by another thread. Raises UnknownJournalError."""

    def flush(self) -> None:
        """Wait until all that was appended is done, well or not."""


def append_intents(journals: Journals, intents: Iterable[AckIntent]) -> None:
    """Append intents, which must have been stored before, and wait until all are in their journals.

    It may be done again with the same intents as often as it takes: an acknowledgement that was there
    before does nothing. But not after the same producer has published anew: that would be rolled back.
    Raises AppendError if one failed; the others are appended all the same.
    """
    appends = [journals.append(intent.journal, intent.intent) for intent in intents]
    failed = None
    for append in appends:
        try:
            append.result()
        except Exception as error:
            failed = failed or error
    if failed is not None:
        raise failed


class Ticker:
    """A thread that works on appends that nobody waits for.

    ``work`` is called ``linger`` seconds after ``wake``, and again while it returns true. The thread
    begins with the first call of ``wake``.
    """

    def __init__(self, work: Callable[[], bool], linger: float) -> None:
        self._work = work
        self._linger = linger
        self._woken = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    def wake(self) -> None:
        self._woken.set()
        if self._thread is None:
            with self._starting:
                if self._thread is None and not self._stopped.is_set():
                    self._thread = threading.Thread(
                        target=self._run, name="krammar-journal", daemon=True
                    )
                    self._thread.start()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._woken.wait()
            self._woken.clear()
            while not self._stopped.wait(self._linger) and self._work():
                pass

    def stop(self) -> None:
        """Return when the thread has ended."""
        self._stopped.set()
        self._woken.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()
