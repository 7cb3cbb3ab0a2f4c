"""The interfaces that journals in files and in topics share: appends and readers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import NamedTuple, Protocol, Self
from uuid import UUID

from krammar.journal.checkpoints import AckIntent
from krammar.journal.specs import JournalSpec

# The offsets of a frame (the second is exclusive), and its bytes.
Frame = tuple[int, int, bytes]


class FrameBlock(NamedTuple):
    """Frames that follow each other without gaps.

    Attributes:
        begin: the offset of the first one
        data: the bytes of the frames, and of what follows them
        ends: the positions in ``data`` after each frame, at least one
    """

    begin: int
    data: bytes
    ends: list[int]

    def frames(self) -> list[Frame]:
        """Return the frames one by one."""
        base, data, ends = self
        return [
            (base + begin, base + end, data[begin:end])
            for begin, end in zip(chain((0,), ends), ends, strict=False)
        ]


class AsyncAppend(Protocol):
    """A future for an append.

    When it is ``done``, either ``error`` is set, or ``begin`` and ``end`` are its offsets.
    """

    @property
    def journal(self) -> str: ...

    @property
    def begin(self) -> int:
        """The offset of the frame; -1 before the append is done, or if it is unknown."""

    @property
    def end(self) -> int:
        """The next offset after the frame; -1 like ``begin``."""

    @property
    def done(self) -> bool:
        """Whether the append is written or has failed."""

    @property
    def error(self) -> Exception | None:
        """Why the append has failed."""

    def result(self, timeout_ms: float | None = None) -> Self:
        """Wait until the append is done, and return it. Raises AppendError if it has failed."""


class FrameReader(Protocol):
    """Reads frames of a journal. ``offset`` is the offset of the next frame."""

    offset: int

    @property
    def spec(self) -> JournalSpec: ...

    def read(self) -> list[Frame]:
        """Return the next frames, at least one; an empty list at the end.

        Raises:
            UnknownJournalError: the journal was deleted, or deleted and created again.
        """

    def close(self) -> None: ...


class Reader(FrameReader, Protocol):
    """Reads the frames of a journal that begin between two offsets.

    ``journal_id`` is the journal's id, or the null UUID as long as it is
    unknown: of journals in topics before the first read, and of brokers without topic ids. If frames were deleted,
    the reader logs a warning and continues with the next existing one.
    """

    @property
    def journal_id(self) -> UUID: ...

    def between(self, begin: int, end: int) -> Reader:
        """Return another reader of the same journal for these offsets; both readers stay usable."""

    def ranges(self, ranges: Sequence[tuple[int, int]]) -> Reader:
        """Return another reader of the same journal for some ranges of offsets.

        The ranges are sorted, and begin and end with a frame. There may be many, with one frame each.
        """


class Journals(Protocol):
    """A set of journals, in files or in topics."""

    def append(self, journal: str, data: bytes) -> AsyncAppend:
        """Begin to append a frame. Appends of one thread to one journal keep their order.

        The append is written in the background; ``AsyncAppend.result`` and ``flush`` write it immediately.

        Raises:
            UnknownJournalError: the journal does not exist.
            AppendError: the append cannot begin.
        """

    def reader(
        self,
        journal: str,
        begin: int = 0,
        end: int | None = None,
        *,
        journal_id: UUID | None = None,
        follow: bool = False,
    ) -> Reader:
        """Return a reader of the frames with ``begin <= offset < end``.

        Args:
            end: the default is the journal's current end.
            journal_id: the id that the journal must have, from a checkpoint. By default, or with the null UUID, the
                reader reads the journal that has the name when it begins.
            follow: without ``end``, wait for new frames forever, until another thread closes the reader.

        Raises:
            UnknownJournalError: the journal does not exist, or has another id.
        """

    def flush(self) -> None:
        """Wait until all appends are done or have failed."""


def append_intents(journals: Journals, intents: Iterable[AckIntent]) -> None:
    """Append stored intents, and wait until all are in their journals.

    This can be repeated with the same intents: repeated acknowledgements have no effect. Don't repeat it after the
    same producer has published again, because that would roll back its new messages.

    Raises the first error, AppendError or UnknownJournalError; the other intents are appended nevertheless.
    """
    appends = []
    failed: Exception | None = None
    for intent in intents:
        try:
            appends.append(journals.append(intent.journal, intent.intent))
        except Exception as error:
            failed = failed or error
    for append in appends:
        try:
            append.result()
        except Exception as error:
            failed = failed or error
    if failed is not None:
        raise failed


class Ticker:
    """A thread that writes appends in the background.

    It calls ``work`` ``linger`` seconds after ``wake``, and again as long as ``work`` returns true. The first call of
    ``wake`` starts the thread.
    """

    def __init__(self, work: Callable[[], bool], linger: float) -> None:
        self._work = work
        self._linger = linger
        self._woken = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    def wake(self) -> None:
        """Let the thread call ``work`` soon."""
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
        """Stop the thread, and wait until it has ended."""
        self._stopped.set()
        self._woken.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()
