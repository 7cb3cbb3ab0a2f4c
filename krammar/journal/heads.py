"""The file ``head`` of a journal in files: where the journal ends, and what of it is on the disk.

A head has two slots, which are written in turn, each with a checksum. If one slot is torn, the other one has the
previous head. Each slot is in a sector of its own, because a disk writes a sector completely or not at all.

After a power cut, any part of what was not forced to the disk may be missing: a head or bytes, also zeros in their
place. Four fields of a head make up for that:

``boot``     identifies the run of the machine, from its start to its end. If it has changed, bytes may be missing.
``synced``   the bytes before it were forced to the disk.
``sum``      the checksum of the bytes from ``synced`` to the end, which tells whether they are all there.
``limit``    no byte at this offset or after it was in the journal. It is forced to the disk before the journal reaches
             it, so new appends that begin there use no offset twice, however old the head is that the power cut left.

``journal_id`` is chosen when the journal is created. Heads before version 2 have none; the next append chooses one.

``visible`` is the end for readers as long as the machine runs. It is less than ``end`` while an append is forced to the
disk, so that no reader sees bytes that a power cut could still remove.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple
from uuid import UUID, uuid4
from zlib import crc32

from journal_wire import JournalHead

from krammar.journal.errors import CorruptJournalError, UnknownJournalError
from krammar.journal.uuids import NULL_UUID
from krammar.util.boot import current_boot
from krammar.wire.errors import WireError

HEAD = "head"
SUFFIX = ".fragment"
SLOT = 512

# Heads of version 0 have no boot. Nobody knows what of their journals is on the disk.
NO_BOOT = UUID(int=0)
_CHUNK = 1 << 20


class Head(NamedTuple):
    """The end of a journal; offsets are in bytes. ``definitions/journal_wire`` describes the fields."""

    end: int = 0
    fragment: int = 0
    number: int = 0
    visible: int = 0
    synced: int = 0
    sum: int = 0
    limit: int = 0
    boot: UUID = NO_BOOT
    journal_id: UUID = NULL_UUID

    def encode(self) -> bytes:
        """Return the bytes of a slot. The last field is the checksum of the others."""
        data = JournalHead(version=2, **self._asdict()).encode()[:-4]
        return data + crc32(data).to_bytes(4, "big")

    @property
    def is_stored(self) -> bool:
        """Whether the whole journal was forced to the disk, and no later head was."""
        return self.synced == self.end == self.limit

    def with_id(self) -> Head:
        """Return this head with an id; it chooses one if there is none."""
        return self if self.journal_id != NULL_UUID else self._replace(journal_id=uuid4())

    def is_of(self, journal_id: UUID) -> bool:
        """Return whether this can be a head of the journal with this id. An unknown id fits every journal."""
        return journal_id in (self.journal_id, NULL_UUID) or self.journal_id == NULL_UUID


_SIZES = {version: len(JournalHead(version=version).encode()) for version in range(3)}


def read_head(folder: Path) -> Head:
    """Return the newest head of a journal.

    Raises:
        UnknownJournalError: the journal was deleted.
        CorruptJournalError: both slots are damaged, or the file is missing.
    """
    try:
        with open(folder / HEAD, "rb", buffering=0) as file:
            return parse_head(folder, file.read(2 * SLOT))[0]
    except FileNotFoundError:
        if not folder.is_dir():
            raise UnknownJournalError(f"the journal in {folder} was deleted") from None
        raise CorruptJournalError(f"{folder}: the file {HEAD} is missing") from None


def parse_head(folder: Path, data: bytes) -> tuple[Head, int]:
    """Return the newest head and the number of its slot. Raises CorruptJournalError if both are damaged."""
    newest: tuple[Head, int] | None = None
    for slot in (0, 1):
        head = _parse_slot(data[slot * SLOT : (slot + 1) * SLOT])
        if head is not None and (newest is None or _age(head) > _age(newest[0])):
            newest = head, slot
    if newest is None:
        raise CorruptJournalError(f"{folder / HEAD}: both slots are damaged")
    return newest


def _age(head: Head) -> tuple[int, int, int]:
    # Heads of version 0 have no number.
    return head.number, head.end, head.fragment


def _parse_slot(data: bytes) -> Head | None:
    size = _SIZES.get(int.from_bytes(data[:2], "big"), 0)
    part = data[:size]
    if len(part) < max(size, 1) or crc32(part[:-4]) != int.from_bytes(part[-4:], "big"):
        return None
    try:
        wire = JournalHead.decode(part)
    except WireError:
        return None
    head = Head(*(getattr(wire, name) for name in Head._fields))
    if wire.version == 0:
        # Nothing is known of the bytes, so all of them count as stored, as they did for who wrote this head.
        return head._replace(visible=head.end, synced=head.end, limit=head.end)
    return head


def readable_end(folder: Path, head: Head) -> int:
    """Return the end of a journal for readers (exclusive)."""
    return head.visible if head.boot == current_boot() else intact_end(folder, head)


def intact_end(folder: Path, head: Head) -> int:
    """Return the end of the existing bytes. After a power cut, it can be less than the journal's end."""
    if head.synced == head.end or _is_intact(folder, head):
        return head.end
    return head.synced


@lru_cache(256)
def _is_intact(folder: Path, head: Head) -> bool:
    """Return whether the bytes that were not forced to the disk have the checksum in the head."""
    found, left = 0, head.end - head.synced
    try:
        with open(fragment_path(folder, head.fragment), "rb", buffering=0) as file:
            file.seek(head.synced - head.fragment)
            while left > 0:
                data = file.read(min(left, _CHUNK))
                if not data:
                    return False
                found = crc32(data, found)
                left -= len(data)
    except FileNotFoundError:
        return False
    return found == head.sum


def fragment_path(folder: Path, begin: int) -> Path:
    """Return the path of the fragment whose first byte has the offset ``begin``."""
    return folder / f"{begin:020}{SUFFIX}"


def fragments(folder: Path) -> list[int]:
    """Return the offsets at which the fragments of a journal begin, ascending.

    Raises:
        UnknownJournalError: the journal was deleted.
    """
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        raise UnknownJournalError(f"the journal in {folder} was deleted") from None
    return sorted(
        int(name.removesuffix(SUFFIX))
        for name in names
        if name.endswith(SUFFIX) and name.removesuffix(SUFFIX).isdecimal()
    )
