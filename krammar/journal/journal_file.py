"""Writes the last fragment and the head of a journal in files, and forces them to the disk."""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

from krammar.journal.errors import AppendError
from krammar.journal.heads import (
    HEAD,
    NO_BOOT,
    SLOT,
    Head,
    fragment_path,
    intact_end,
    parse_head,
)
from krammar.util.boot import current_boot
from krammar.util.durable import sync, write_again, write_fully

log = logging.getLogger("krammar.journal")

# Without fsync, a writer forces its bytes to the disk before it appends more than this after the
# last time, in bytes. It limits how much a power cut can lose, and how much must be read to check a
# journal afterwards.
UNSYNCED_BYTES = 1 << 28

# Held while a file is opened, and during a fork, so that the forked process knows all open files and closes them. A
# lock of a killed process would remain as long as another process had the same open file.
opening = threading.Lock()


@dataclass(frozen=True, slots=True)
class WriteSettings:
    """The settings of FileJournals. ``wake`` lets a thread write appends soon."""

    fragment_bytes: int
    fsync: bool
    buffer_bytes: int
    wake: Callable[[], None]


class JournalFile:
    """The last fragment and the head of a journal. Not thread-safe.

    Other processes may write to the journal too.

    Attributes:
        unsynced_seconds: as ``UNSYNCED_BYTES``, but in seconds
    """

    unsynced_seconds = 5.0

    def __init__(self, journal: str, folder: Path, settings: WriteSettings) -> None:
        self._journal = journal
        self._folder = folder
        self._settings = settings
        self._head_file = -1
        self._fragment = -1
        self._fragment_begin = -1
        # The last fragment whose name is on the disk.
        self._named = -1
        # Whether this object has written without fsync, and since when bytes of it are not on the disk; 0 if none are.
        self._has_written = False
        self._since = 0.0
        # The newest head, the number of its slot, and the bytes of both slots.
        self._head = Head()
        self._slot = 0
        self._slots = b""

    def append(self, data: bytes) -> int:
        """Append bytes; return the offset of the first one.

        Raises:
            AppendError: the journal was deleted or created again, or the outcome is unknown.
            OSError: a file cannot be written; nothing is in the journal.
        """
        try:
            self._lock()
            if self._head.boot != current_boot():
                self._recover()
            if not self._open():
                self._begin_fragment()
            head = self._head
            begin, end = head.end, head.end + len(data)
            if not self._settings.fsync and end > head.limit:
                self._put_durably(head._replace(limit=end + UNSYNCED_BYTES))
            write_fully(self._fragment, data, begin - self._fragment_begin)
            if self._settings.fsync:
                self._publish(end)
            else:
                head = self._head
                self._put(head._replace(end=end, visible=end, sum=crc32(data, head.sum)))
                self._has_written = True
                self._sync_from_time_to_time()
            return begin
        finally:
            self._unlock()

    def _publish(self, end: int) -> None:
        """Force the new bytes, and then the new end, to the disk, and only then show them to readers."""
        self._sync_fragment()
        head = self._head
        stored = head._replace(end=end, synced=end, sum=0, limit=max(end, head.limit))
        try:
            self._put(stored)
            # If this fails, the head may be on the disk or not. Thus no other bytes may be written where it says that
            # bytes are stored: it remains, and the next append comes after these bytes.
            os.fsync(self._head_file)
            self._put(stored._replace(visible=end))
        except OSError as error:
            raise AppendError(
                f"{self._journal}: it is unknown whether the append survives a power cut, and whether readers see "
                f"it: {error}"
            ) from error

    def _lock(self) -> None:
        """Lock the journal against all other writers, and read its head.

        Raises:
            AppendError: the journal was deleted, or created again since it was opened.
        """
        path = self._folder / HEAD
        try:
            if self._head_file < 0:
                with opening:
                    self._head_file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            fcntl.flock(self._head_file, fcntl.LOCK_EX)
            # An open file can still be written after it was deleted, but nobody would ever read it.
            is_current = os.path.samestat(os.fstat(self._head_file), os.stat(path))
        except FileNotFoundError:
            self.close()
            raise AppendError(
                f"{self._journal}: the journal was deleted; create it again, and repeat the append"
            ) from None
        if not is_current:
            # It could go on, but a transaction that began in the old journal would lose its first messages.
            self.close()
            raise AppendError(
                f"{self._journal}: the journal was deleted and created again, and nothing was appended; repeat the "
                "append, or the whole transaction, to write to the new journal"
            )
        slots = os.pread(self._head_file, 2 * SLOT, 0)
        if slots != self._slots:  # another process has written, or the file was just opened
            head, self._slot = parse_head(self._folder, slots)
            self._head = head.with_id()
            self._slots = slots

    def _unlock(self) -> None:
        if self._head_file >= 0:
            fcntl.flock(self._head_file, fcntl.LOCK_UN)

    def _put(self, head: Head) -> None:
        """Write a head to the slot with the older one."""
        head = head._replace(number=self._head.number + 1, boot=current_boot())
        data = head.encode()
        at = SLOT * (1 - self._slot)
        write_fully(self._head_file, data, at)
        self._slots = self._slots[:at] + data + self._slots[at + len(data) :]
        self._head = head
        self._slot = 1 - self._slot

    def _put_durably(self, head: Head) -> None:
        """Write a head and force it to the disk. If that fails, the earlier head remains valid."""
        before = self._head
        self._put(head)
        try:
            os.fsync(self._head_file)
        except OSError:
            with suppress(OSError):
                write_fully(self._head_file, before.encode(), SLOT * self._slot)
            self._slots = b""  # read them again
            raise

    # The disk.

    def _sync_fragment(self) -> None:
        """Force the last fragment, and its name, to the disk.

        If that fails, the bytes that the kernel could not write count as clean, and a second fsync would succeed
        without writing them. So the head says that they have to be written again; see ``_recover``.
        """
        try:
            os.fsync(self._fragment)
            if self._named != self._fragment_begin:
                sync(self._folder)
                self._named = self._fragment_begin
        except OSError:
            head = self._head
            if head.synced < head.end:
                head = head._replace(number=head.number + 1, boot=NO_BOOT)
                with suppress(OSError):
                    write_fully(self._head_file, head.encode(), SLOT * (1 - self._slot))
            raise

    def _sync_from_time_to_time(self) -> None:
        now = time.monotonic()
        self._since = self._since or now
        head = self._head
        if now - self._since < self.unsynced_seconds and head.end - head.synced < UNSYNCED_BYTES:
            return
        try:
            self._sync_fragment()
            self._put_durably(head._replace(synced=head.end, sum=0))
            self._since = 0.0
        except OSError as error:
            # The appends are in the journal. The next one forces them to the disk again, or fails.
            log.error(
                "%s: offsets %d to %d could not be forced to the disk, and may not survive a power cut: %s",
                self._journal,
                head.synced,
                head.end,
                error,
            )

    def finish(self) -> None:
        """Force the journal to the disk if this object has written to it. Raises OSError or AppendError."""
        if not self._has_written:
            return
        try:
            self._lock()
            head = self._head
            if head.boot == current_boot() and not head.is_stored and self._open():
                self._sync_fragment()
                # No restart of the machine can now make offsets doubtful, so nothing needs to be skipped.
                head = self._head
                self._put_durably(head._replace(synced=head.end, sum=0, limit=head.end))
        finally:
            self._unlock()

    def _recover(self) -> None:
        """Restore a journal after a restart of the machine, or after a failed fsync.

        What is damaged is cut off, and what follows begins at an offset that was never used.
        """
        head = self._head
        if head.is_stored:
            self._head = head._replace(visible=head.end)
            return
        end = intact_end(self._folder, head)
        self._open_fragment(head.fragment, 0)
        if self._fragment >= 0:
            written = end - head.fragment
            if os.fstat(self._fragment).st_size > written:
                os.ftruncate(self._fragment, written)
            write_again(self._fragment, head.synced - head.fragment, written)
            self._sync_fragment()
        restarted = head.boot != NO_BOOT
        if end < head.end:
            log.error(
                "%s: offsets %d to %d are lost: they were not forced to the disk before a power cut or a failed "
                "fsync. New messages begin at offset %d",
                self._journal,
                end,
                head.end,
                head.limit,
            )
        elif restarted and end < head.limit:
            log.warning(
                "%s: the machine was restarted while the journal was open. Messages after offset %d may be lost. "
                "New ones begin at offset %d",
                self._journal,
                end,
                head.limit,
            )
        if end < head.end or restarted:
            end = head.limit
            head = head._replace(fragment=end, limit=end)
        self._put_durably(head._replace(end=end, visible=end, synced=end, sum=0))

    # Fragments.

    def _open(self) -> bool:
        """Open the last fragment and cut it at the journal's end; return whether it has room."""
        head = self._head
        begin = head.fragment
        found = os.fstat(self._fragment) if self._fragment_begin == begin else None
        if (
            found is None or not found.st_nlink
        ):  # another fragment is open, or somebody has deleted this one
            self._open_fragment(begin, os.O_CREAT if head.end == begin else 0)
            found = os.fstat(self._fragment) if self._fragment >= 0 else None
        size = 0 if found is None else found.st_size
        written = head.end - begin
        if size > written:  # the writer of an append was killed
            os.ftruncate(self._fragment, written)
        elif size < written:
            log.error(
                "%s: offsets %d to %d are lost: the last fragment ends before the journal does",
                self._journal,
                begin + size,
                head.end,
            )
            return False
        return written == 0 or written < self._settings.fragment_bytes

    def _begin_fragment(self) -> None:
        """Begin a fragment at the journal's end."""
        head = self._head
        if self._fragment >= 0 and head.synced < head.end:
            self._sync_fragment()
            head = self._head
        # Store the head first. If only the fragment remained after a crash, readers would end the fragment before it
        # there.
        head = head._replace(fragment=head.end, visible=head.end, synced=head.end, sum=0)
        self._put_durably(head)
        self._open_fragment(head.end, os.O_CREAT | os.O_TRUNC)

    def _open_fragment(self, begin: int, flags: int) -> None:
        self._close_fragment()
        path = fragment_path(self._folder, begin)
        try:
            with opening:
                self._fragment = os.open(path, os.O_RDWR | os.O_CLOEXEC | flags, 0o644)
        except FileNotFoundError:
            return
        self._fragment_begin = begin

    def _close_fragment(self) -> None:
        if self._fragment >= 0:
            os.close(self._fragment)
        self._fragment = self._fragment_begin = -1

    def close(self) -> None:
        """Close the files, which releases the lock."""
        self._close_fragment()
        if self._head_file >= 0:
            os.close(self._head_file)
        self._head_file = self._named = -1
        self._since = 0.0
        self._has_written = False
